"""What loading costs on this machine, beside the common way in numpy.

Scans lie in memory. Times are those of a scan: what processors work for it, in this process and in
the loader's, where the system tells; else the wall clock's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, RandomSampler

from pctx.data.batch import Planner
from pctx.data.dataset import ScanDataset
from pctx.data.features import FeatureSpec
from pctx.data.labels import Card, LabelSet
from pctx.data.loader import training_loader
from pctx.data.pipeline import Pipeline
from pctx.data.prepare import voxelize
from pctx.data.transforms import Flip, Jitter, Rotate, Scale, apply
from pctx.geometry.points import PointCloud, pack
from pctx.inference import common_loading as common
from pctx.inference.timing import Clock, Measurement
from pctx.models.factory import create_model
from pctx.models.planner import planner_of

BATCH = 4
"""Clouds a batch."""
MODEL = "ptv3_tiny"
"""The model whose plans are made."""
FIELDS = ("sensor_coord", "intensity")
"""What the models of SemanticKITTI read, and what the common way collects."""
COMMON = "common"
"""The name of the plainer way."""

_SCHEDULED = Path("/proc/self/schedstat")
"""Where Linux tells for how many nanoseconds a process has run."""


@dataclass(frozen=True, kw_only=True)
class LoadingReport:
    """What a scan costs, in seconds.

    Attributes:
        work: by loader processes, `drawn`, where a random point stands for each voxel, as in the
            common way, and `loader`, where means and the commonest label do; by this process the
            parts of `loader`: `augment`, `sample` and `collate`. Each against `common`. Then, by
            loader processes, `shape`, with the features that take longest, and `plan`, with the
            plans of a model.
        voxels: of a scan.
        by_processor: whether seconds are those that processors worked, and not the wall clock's.
    """

    work: tuple[Measurement, ...]
    voxels: int
    by_processor: bool


def measure_loading(
    clouds: Sequence[PointCloud],
    labels: LabelSet,
    *,
    grid_size: float,
    workers: int,
    scans: int,
    repeats: int,
    tell: Callable[[str], object] = lambda _: None,
) -> LoadingReport:
    """Time augmentation, voxels and collation of scans held in memory, both ways in turns.

    Args:
        clouds: scans with intensity and labels.
        labels: their classes.
        grid_size: edge of a voxel, metres.
        workers: processes of a loader.
        scans: that a loader gives in a turn.
        repeats: turns, at most.
        tell: called with what is being measured.
    """
    told = _SCHEDULED.is_file()
    place = torch.device("cpu")
    clock = Clock(repeats=repeats, device=place, process=told, helpers=_seconds_of_children)
    make = partial(_pipeline, clouds, labels, grid_size)
    load = partial(_by_loader, clock, scans=scans)
    ours = partial(_our_loader, num_samples=scans, num_workers=workers)
    tell(f"loaders of {workers} processes")
    sampler = RandomSampler(range(len(clouds)), replacement=True, num_samples=scans)
    theirs: DataLoader[Any] = DataLoader(
        common.CommonSet(clouds, grid_size),
        batch_size=BATCH,
        sampler=sampler,
        collate_fn=common.collate,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    plain = make(FIELDS)
    work = [
        load("drawn", ours(replace(plain, voxel_points="random")), theirs),
        load("loader", ours(plain), theirs),
    ]
    tell("the parts of loading")
    work += _measure_parts(clock, plain, clouds[0])
    tell("loaders with more to do")
    work.append(load("shape", ours(make(("height", "intensity", "range", "shape")))))
    with torch.device("meta"):
        backbone = create_model(MODEL, in_channels=4, num_classes=len(labels)).backbone
    work.append(load("plan", ours(plain, planner_of(backbone))))
    voxels = len(plain.sample("0").points)
    return LoadingReport(work=tuple(work), voxels=voxels, by_processor=told)


class _Held(ScanDataset):
    """Scans in memory, by their numbers."""

    def __init__(self, clouds: Sequence[PointCloud], labels: LabelSet) -> None:
        self.clouds, self.card = clouds, Card(name="held", labels=labels)

    def scans(self, split: str) -> list[str]:
        return [str(i) for i in range(len(self.clouds))]

    def read(self, scan: str) -> PointCloud:
        return self.clouds[int(scan)]


def _pipeline(
    clouds: Sequence[PointCloud], labels: LabelSet, grid_size: float, fields: tuple[str, ...]
) -> Pipeline:
    return Pipeline(
        dataset=_Held(clouds, labels),
        grid_size=grid_size,
        features=FeatureSpec(fields=fields),
        augment={"rotate": Rotate(), "scale": Scale(), "flip": Flip(), "jitter": Jitter()},
    )


def _our_loader(
    pipeline: Pipeline, plan: Planner | None = None, *, num_samples: int, num_workers: int
) -> DataLoader[Any]:
    return training_loader(
        pipeline,
        pipeline.dataset.scans("train"),
        batch_size=BATCH,
        num_samples=num_samples,
        plan=plan,
        num_workers=num_workers,
    )


def _by_loader(
    clock: Clock,
    name: str,
    ours: DataLoader[Any],
    theirs: DataLoader[Any] | None = None,
    *,
    scans: int,
) -> Measurement:
    """Time whole epochs; the workers are started before, and end after."""
    plain = {} if theirs is None else {COMMON: partial(_exhaust, theirs)}
    for loader in (ours, theirs):
        if loader is not None:
            _exhaust(loader)
    measured = clock.compare(name, scans, partial(_exhaust, ours), **plain)
    return _shared(measured, scans)


def _measure_parts(clock: Clock, pipeline: Pipeline, cloud: PointCloud) -> list[Measurement]:
    rng = np.random.default_rng(0)
    n = len(cloud)
    turned = apply(pipeline.augment, cloud, rng)
    points = pipeline.training_points("0", rng)
    held = common.arrays(cloud)
    changed = common.augment(held, rng)
    sampled = common.collect(common.sample_grid(changed, pipeline.grid_size, rng))

    def sample() -> object:
        return voxelize(turned, pipeline.grid_size, pipeline.features, pipeline.labels)

    def sample_commonly() -> object:
        return common.collect(common.sample_grid(changed, pipeline.grid_size, rng))

    compare = clock.compare
    return [
        compare(
            "augment",
            n,
            lambda: apply(pipeline.augment, cloud, rng),
            common=lambda: common.augment(held, rng),
        ),
        compare("sample", n, sample, common=sample_commonly),
        _shared(
            compare(
                "collate",
                n,
                lambda: pack([points] * BATCH),
                common=lambda: common.collate([sampled] * BATCH),
            ),
            BATCH,
        ),
    ]


def _seconds_of_children() -> float:
    """Sum what processors have worked for the processes that this one started."""
    tasks = (Path(f"/proc/{child.pid}/task") for child in active_children())
    spent = (
        int(file.read_text().split()[0]) for task in tasks for file in task.glob("*/schedstat")
    )
    return sum(spent) / 1e9


def _exhaust(loader: DataLoader[Any]) -> None:
    for batch in loader:
        del batch


def _shared(measured: Measurement, count: int) -> Measurement:
    """Give each of some scans its share of the time."""
    plain = {name: tuple(s / count for s in runs) for name, runs in measured.plain.items()}
    return replace(measured, seconds=tuple(s / count for s in measured.seconds), plain=plain)
