"""Loaders: scans to packed training batches and to single samples for evaluation.

What a loader gives depends on the seed, the epoch and the scan's place alone, never on the
number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from pctx.data.dataset import ScanDataset
from pctx.data.features import FeatureSpec
from pctx.data.labels import LabelSet
from pctx.data.prepare import Sample, crop, prepare
from pctx.data.transforms.protocol import Step, apply
from pctx.geometry.points import PointBatch, PointCloud, pack

MAX_KEPT = 200
"""Prepared scans that a loader process keeps: half a gigabyte of 64-beam scans."""


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """How a scan of a dataset becomes a sample; the same in training and evaluation."""

    dataset: ScanDataset
    grid_size: float
    features: FeatureSpec
    augment: Mapping[str, Step | None] = field(default_factory=dict)
    max_points: int | None = None

    def __post_init__(self) -> None:
        if self.max_points is not None and self.max_points < 1:
            raise ValueError(f"data.max_points must be 1 or more, found {self.max_points}")

    @property
    def labels(self) -> LabelSet:
        """The dataset's classes."""
        return self.dataset.card.labels

    def sample(self, scan: str) -> Sample:
        """Read and prepare a scan as it is."""
        return self._prepare(scan, self.dataset.read(scan))

    @property
    def augments(self) -> bool:
        """Whether training changes scans at all."""
        return any(step is not None for step in self.augment.values())

    def training_points(
        self,
        scan: str,
        rng: np.random.Generator,
        another: Callable[[np.random.Generator], str] | None = None,
    ) -> PointBatch:
        """Read, augment and prepare a scan; `another` names the scans that mixes add to it."""
        draw = None if another is None else lambda rng: self.dataset.read(another(rng))
        cloud = apply(self.augment, self.dataset.read(scan), rng, draw)
        return self._prepare(scan, cloud).points

    def _prepare(self, scan: str, cloud: PointCloud) -> Sample:
        if cloud.label is None:
            raise ValueError(f"{scan}: no labels, which training and evaluation need")
        try:
            return prepare(
                cloud, grid_size=self.grid_size, features=self.features, labels=self.labels
            )
        except ValueError as error:
            raise ValueError(f"{scan}: {error}") from error


class EpochSampler(Sampler[tuple[int, int]]):
    """Gives (draw, scan) pairs, each pass over the scans in a new seeded order; draws count on.

    Args:
        num_scans: scans there are.
        num_samples: samples an epoch; passes over the scans follow one another as needed.
    """

    def __init__(self, num_scans: int, num_samples: int, seed: int) -> None:
        self.num_scans, self.num_samples, self.seed, self.epoch = num_scans, num_samples, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch; the trainer calls this, also after a resume."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[tuple[int, int]]:
        rng = np.random.default_rng([self.seed, self.epoch])
        passes = -(-self.num_samples // self.num_scans)
        order = np.concatenate([rng.permutation(self.num_scans) for _ in range(passes)])
        # The place in the epoch makes each sample of a repeated scan its own.
        for place, scan in enumerate(order[: self.num_samples].tolist()):
            yield self.epoch * self.num_samples + place, scan


class TrainingSet(Dataset[PointBatch]):
    """Augmented, cropped clouds by (draw, scan) pairs.

    Without augmentation a scan is prepared once and kept, up to `MAX_KEPT` scans.
    """

    def __init__(self, pipeline: Pipeline, scans: list[str], seed: int) -> None:
        self.pipeline, self.scans, self.seed = pipeline, scans, seed
        self.kept: dict[int, PointBatch] = {}

    def __len__(self) -> int:
        return len(self.scans)

    def __getitem__(self, key: tuple[int, int]) -> PointBatch:
        draw, scan = key
        rng = np.random.default_rng([self.seed, 1, draw])
        points = self.kept.get(scan)
        if points is None:
            points = self.pipeline.training_points(
                self.scans[scan], rng, lambda rng: self._another(scan, rng)
            )
            if not self.pipeline.augments and len(self.kept) < MAX_KEPT:
                self.kept[scan] = points
        max_points = self.pipeline.max_points
        return points if max_points is None else crop(points, max_points, rng)

    def _another(self, scan: int, rng: np.random.Generator) -> str:
        """Name any scan but the given one, if there is another."""
        n = len(self.scans)
        return self.scans[(scan + int(rng.integers(1, max(2, n)))) % n]


class EvaluationSet(Dataset[Sample]):
    """Whole clouds as they are, with the way back to every raw point."""

    def __init__(self, pipeline: Pipeline, scans: list[str]) -> None:
        self.pipeline, self.scans = pipeline, scans

    def __len__(self) -> int:
        return len(self.scans)

    def __getitem__(self, index: int) -> Sample:
        return self.pipeline.sample(self.scans[index])


def training_loader(
    pipeline: Pipeline,
    scans: list[str],
    *,
    batch_size: int,
    num_samples: int | None = None,
    num_workers: int = 0,
    seed: int = 0,
) -> DataLoader[PointBatch]:
    """Load packed batches; an epoch has `num_samples` clouds, by default one a scan."""
    return DataLoader(
        TrainingSet(pipeline, scans, seed),
        batch_size=batch_size,
        sampler=EpochSampler(len(scans), num_samples or len(scans), seed),
        collate_fn=pack,
        num_workers=num_workers,
        persistent_workers=num_workers > 0,
        pin_memory=torch.cuda.is_available(),
    )


def evaluation_loader(
    pipeline: Pipeline, scans: list[str], *, num_workers: int = 0
) -> DataLoader[Sample]:
    """Load samples one by one, in order."""
    return DataLoader(
        EvaluationSet(pipeline, scans),
        batch_size=None,
        num_workers=num_workers,
        persistent_workers=num_workers > 0,
    )
