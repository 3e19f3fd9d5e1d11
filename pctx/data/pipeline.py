"""Pipeline: how a scan of a dataset becomes voxels, in training and in evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import numpy as np

from pctx.data.dataset import ScanDataset
from pctx.data.features import FeatureSpec
from pctx.data.labels import IGNORE_INDEX, LabelSet
from pctx.data.prepare import OFF_FACE, Sample, crop, prepare, voxelize
from pctx.data.transforms.protocol import Step, apply
from pctx.geometry.grid import voxelize as voxelize_coord
from pctx.geometry.points import PointBatch, PointCloud

COUNTED_SCANS = 64
"""Scans whose classes are looked at: some seconds at the start of a training."""

_CHOICES = MappingProxyType(
    {"voxel_points": ("mean", "random"), "crop_centers": ("uniform", "balanced")}
)


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """How a scan of a dataset becomes a sample; the same in training and evaluation.

    Attributes:
        dataset: reads scans.
        grid_size: edge of a voxel, metres.
        features: the channels that the model reads.
        augment: named steps that change a scan before it is voxelised, in training alone.
        max_points: voxels that a training scan is cut down to.
        voxel_points: what stands for the points of a voxel in training: their `mean` with the
            commonest label, as everywhere else, or a `random` one of them, as in published recipes.
        crop_centers: where a cut has its middle: at a `uniform` voxel, or at one of a class that is
            drawn first (`balanced`), so that rare classes are met as often as others: as likely as
            the other classes of the cloud, or by `class_scans`.
        class_scans: training scans that have each class, from `count_class_scans`: a class that few
            have is then drawn where it is, and one that all have elsewhere. None: not known.
        fill: values for fields that the model reads and a scan lacks, in the file's units: all its
            points then have the same.
    """

    dataset: ScanDataset
    grid_size: float
    features: FeatureSpec
    augment: Mapping[str, Step | None] = field(default_factory=dict)
    max_points: int | None = None
    voxel_points: Literal["mean", "random"] = "mean"
    crop_centers: Literal["uniform", "balanced"] = "uniform"
    class_scans: tuple[int, ...] | None = None
    fill: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.max_points is not None and self.max_points < 1:
            raise ValueError(f"data.max_points must be 1 or more, found {self.max_points}")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                found = getattr(self, name)
                raise ValueError(f"data.{name} must be {' or '.join(choices)}, found {found!r}")
        self.features.check_fill(self.fill)

    @property
    def labels(self) -> LabelSet:
        """The dataset's classes."""
        return self.dataset.card.labels

    @property
    def augments(self) -> bool:
        """Whether training changes scans at all."""
        return self.voxel_points == "random" or any(
            step is not None for step in self.augment.values()
        )

    def sample(self, scan: str) -> Sample:
        """Read and prepare a scan as it is."""
        cloud = self.dataset.read(scan)
        with _named(scan, cloud):
            return prepare(
                cloud,
                grid_size=self.grid_size,
                features=self.features,
                labels=self.labels,
                fill=self.fill,
            )

    def training_points(
        self,
        scan: str,
        rng: np.random.Generator,
        another: Callable[[np.random.Generator], str] | None = None,
    ) -> PointBatch:
        """Read, augment and prepare a scan; `another` names the scans that mixes add to it."""
        draw = None if another is None else lambda rng: self.dataset.read(another(rng))
        cloud = apply(self.augment, self.dataset.read(scan), rng, draw)
        with _named(scan, cloud):
            return voxelize(
                cloud,
                self.grid_size,
                self.features,
                self.labels,
                self.fill,
                rng if self.voxel_points == "random" else None,
            )

    def crop(self, points: PointBatch, max_points: int, rng: np.random.Generator) -> PointBatch:
        """Cut voxels down to `max_points` that lie together, those near a random one."""
        weights = None if self.class_scans is None else 1 / np.maximum(self.class_scans, 1)
        return crop(points, max_points, rng, self.crop_centers, weights)

    def count(self, scan: str) -> int:
        """Count the voxels of a scan as it is."""
        cloud = self.dataset.read(scan)
        with _named(scan, cloud):
            return len(voxelize_coord(cloud.coord[cloud.finite] + OFF_FACE, self.grid_size))


def count_class_scans(dataset: ScanDataset) -> tuple[int, ...]:
    """Count the scans of each class, of up to `COUNTED_SCANS` training scans spread over all."""
    scans = dataset.scans("train")
    some = np.unique(np.linspace(0, len(scans) - 1, min(len(scans), COUNTED_SCANS), dtype=int))
    counts = np.zeros(len(dataset.card.labels), dtype=np.int64)
    for scan in (scans[place] for place in some):
        cloud = dataset.read(scan)
        with _named(scan, cloud):
            assert cloud.label is not None
            label = np.unique(dataset.card.labels.encode(cloud.label))
            counts[label[label != IGNORE_INDEX]] += 1
    return tuple(counts.tolist())


@contextmanager
def _named(scan: str, cloud: PointCloud) -> Iterator[None]:
    """Let what is wrong with a scan name it."""
    if cloud.label is None:
        raise ValueError(
            f"{scan}: no labels, which training and evaluation need; leave it out by data.splits"
        )
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{scan}: {error}") from error
