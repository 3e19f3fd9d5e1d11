"""Loaders: scans to packed training batches and to single samples for evaluation.

What a loader gives depends on the seed, the epoch and the place in it alone, never on the number of
workers or how they are started.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from pctx.data.batch import Planner, TrainingBatch
from pctx.data.cache import CachedDataset
from pctx.data.parcel import Parcel, Sender, can_send
from pctx.data.pipeline import Pipeline
from pctx.data.prepare import Sample
from pctx.data.sampler import Draw, EpochSampler
from pctx.geometry.points import PointBatch, pack

MAX_KEPT = 200
"""Prepared scans that a loader process keeps: half a gigabyte of 64-beam scans."""

_MALLOC = ((-1, 1 << 30), (-3, 1 << 25))
"""Options of glibc's mallopt: a worker keeps up to 1 GB that is free (M_TRIM_THRESHOLD), and arrays
below 32 MB, the most that it takes, come from there (M_MMAP_THRESHOLD)."""

_CLOUDS, _PLANS = 1, 2
"""Streams of random numbers, so that none is drawn twice."""


class TrainingSet(Dataset["TrainingBatch | Parcel"]):
    """Batches of augmented and cropped clouds, with their plans, by lists of draws.

    Without augmentation a scan is prepared once and kept, up to `MAX_KEPT` scans.

    Args:
        pipeline: how a scan becomes points.
        scans: their names.
        plan: plans a batch, from a generator that hangs on its first draw.
        seed: of all randomness.
    """

    def __init__(
        self, pipeline: Pipeline, scans: list[str], *, plan: Planner | None = None, seed: int = 0
    ) -> None:
        self.pipeline, self.scans, self.plan, self.seed = pipeline, scans, plan, seed
        self.kept: dict[int, PointBatch] = {}
        self.sender: Sender | None = None

    def __len__(self) -> int:
        return len(self.scans)

    def __getitem__(self, draws: list[Draw]) -> TrainingBatch | Parcel:
        parts = [self._points(draw) for draw in draws]
        points = pack(parts, None if self.sender is None else self.sender.empty)
        plan = None
        if self.plan is not None:
            seed = np.random.SeedSequence([self.seed, _PLANS, draws[0].number])
            generator = torch.Generator().manual_seed(int(seed.generate_state(1, np.uint64)[0]))
            plan = self.plan(points, generator)
        batch = TrainingBatch(points=points, hierarchy=plan)
        return batch if self.sender is None else self.sender.pack(batch)

    def _points(self, draw: Draw) -> PointBatch:
        rng = np.random.default_rng([self.seed, _CLOUDS, draw.number])
        points = self.kept.get(draw.scan)
        if points is None:
            points = self.pipeline.training_points(
                self.scans[draw.scan], rng, lambda rng: self._another(draw.scan, rng)
            )
            if not self.pipeline.augments and len(self.kept) < MAX_KEPT:
                self.kept[draw.scan] = points
        if draw.max_points is None:
            return points
        return self.pipeline.crop(points, draw.max_points, rng)

    def _another(self, scan: int, rng: np.random.Generator) -> str:
        """Name any scan but the given one, if there is another."""
        n = len(self.scans)
        return self.scans[(scan + int(rng.integers(1, max(2, n)))) % n]


class EvaluationSet(Dataset["Sample | Parcel"]):
    """Whole clouds as they are, with their plans and the way back to every raw point."""

    def __init__(self, pipeline: Pipeline, scans: list[str], plan: Planner | None = None) -> None:
        self.pipeline, self.scans, self.plan = pipeline, scans, plan
        self.sender: Sender | None = None

    def __len__(self) -> int:
        return len(self.scans)

    def __getitem__(self, index: int) -> Sample | Parcel:
        sample = self.pipeline.sample(self.scans[index])
        if self.plan is not None:
            sample = replace(sample, hierarchy=self.plan(sample.points, None))
        return sample if self.sender is None else self.sender.pack(sample)


class _Sizes(Dataset[int]):
    def __init__(self, pipeline: Pipeline, scans: list[str]) -> None:
        self.pipeline, self.scans = pipeline, scans

    def __len__(self) -> int:
        return len(self.scans)

    def __getitem__(self, index: int) -> int:
        return self.pipeline.count(self.scans[index])


def training_loader(
    pipeline: Pipeline,
    scans: list[str],
    *,
    batch_size: int = 1,
    batch_points: int | None = None,
    sizes: Sequence[int] | None = None,
    num_samples: int | None = None,
    plan: Planner | None = None,
    num_workers: int = 0,
    start_method: str | None = None,
    share: tuple[int, int] = (0, 1),
    seed: int = 0,
) -> DataLoader[TrainingBatch]:
    """Load packed batches, voxelised and planned by the workers.

    Args:
        pipeline: how a scan becomes points.
        scans: their names.
        batch_size: clouds a batch.
        batch_points: voxels a batch, in place of `batch_size`; see `EpochSampler`.
        sizes: voxels of each scan, from `count_voxels`; needed by `batch_points`.
        num_samples: clouds an epoch, by default one a scan.
        plan: a backbone's, without its weights: `pctx.models.planner.planner_of`.
        num_workers: processes; what is loaded does not depend on it.
        start_method: fork or spawn; None is what the system does by itself.
        share: (number, processes) of those that share each batch.
        seed: of order, augmentation and plans.
    """
    most = pipeline.max_points
    if sizes is not None:
        sizes = [size if most is None else min(size, most) for size in sizes]
    elif most is not None:
        sizes = [most] * len(scans)
    sampler = EpochSampler(
        len(scans),
        num_samples=num_samples or len(scans),
        batch_size=batch_size,
        sizes=sizes,
        batch_points=batch_points,
        share=share,
        seed=seed,
    )
    dataset = TrainingSet(pipeline, scans, plan=plan, seed=seed)
    return _loader(dataset, num_workers, start_method, sampler=sampler)


def evaluation_loader(
    pipeline: Pipeline,
    scans: list[str],
    *,
    plan: Planner | None = None,
    num_workers: int = 0,
    start_method: str | None = None,
    share: tuple[int, int] = (0, 1),
) -> DataLoader[Sample]:
    """Load samples one by one, in order, voxelised and planned by the workers.

    Of several processes (`share`: number, processes) each has every so manyth. All have as many:
    the number i is a repeat, not to be counted, where i * processes + number is none of the scans.
    """
    number, processes = share
    rounds = -(-len(scans) // processes)
    mine = [(i * processes + number) % len(scans) for i in range(rounds)]
    return _loader(EvaluationSet(pipeline, scans, plan), num_workers, start_method, sampler=mine)


def count_voxels(pipeline: Pipeline, scans: list[str], *, num_workers: int = 0) -> list[int]:
    """Count the voxels of scans as they are.

    With a cache the counts are kept there; a scan is counted anew where its files have changed.
    """
    dataset, size = pipeline.dataset, pipeline.grid_size
    cache = dataset if isinstance(dataset, CachedDataset) else None
    known = {} if cache is None else cache.known_counts(scans, size)
    fresh = [scan for scan in scans if scan not in known]
    if fresh:
        counted = dict(zip(fresh, _loader(_Sizes(pipeline, fresh), num_workers), strict=True))
        known |= counted
        if cache is not None:
            cache.keep_counts(counted, size)
    return [known[scan] for scan in scans]


def _loader(
    dataset: Dataset[Any], num_workers: int, start_method: str | None = None, **options: Any
) -> DataLoader[Any]:
    return DataLoader(
        dataset,
        batch_size=None,  # what the dataset gives is a batch already
        num_workers=num_workers,
        worker_init_fn=_begin if num_workers else None,
        multiprocessing_context=start_method if num_workers else None,
        persistent_workers=num_workers > 0,
        pin_memory=torch.cuda.is_available(),
        **options,
    )


def _begin(_: int) -> None:
    """Let a worker send what it loads, and keep the memory that it works in."""
    info = get_worker_info()
    assert info is not None
    _leave_signals()
    if platform.libc_ver()[0] == "glibc":
        # Arrays of a scan are large: each would get new pages, and give them back a moment later.
        for option, value in _MALLOC:
            ctypes.CDLL(None).mallopt(option, value)
    if can_send() and isinstance(info.dataset, TrainingSet | EvaluationSet):
        info.dataset.sender = Sender()


def _leave_signals() -> None:
    """Leave signals that go to all processes of a run to the first, which saves and ends the rest.

    Another SIGTERM is that of the first, to a worker that does not hear it otherwise.
    """
    told: list[int] = []

    def end(number: int, _: object) -> None:
        told.append(number)
        if len(told) > 1:
            os._exit(0)

    signal.signal(signal.SIGTERM, end)
    for name in ("SIGINT", "SIGHUP"):
        if name in signal.Signals.__members__:  # Windows lacks one
            signal.signal(signal.Signals[name], signal.SIG_IGN)
