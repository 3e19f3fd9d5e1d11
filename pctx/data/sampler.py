"""EpochSampler: which scans make each batch of an epoch, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from torch.utils.data import Sampler

_EPOCH = 2**32
"""Draws that an epoch may have."""


class Draw(NamedTuple):
    """One cloud of a batch.

    Attributes:
        number: no other cloud of a run has it: its randomness hangs on this alone.
        scan: which scan it is drawn from.
        max_points: voxels that it is cut down to; None keeps all.
    """

    number: int
    scan: int
    max_points: int | None


class EpochSampler(Sampler[list[Draw]]):
    """Gives the draws of each batch. Passes over the scans follow one another, each shuffled anew.

    Every epoch has as many batches as any other, so that schedules know.

    Args:
        num_scans: scans there are.
        num_samples: clouds an epoch, where their number makes a batch.
        batch_size: clouds a batch.
        sizes: voxels of each scan; a draw is cut down to as many. None keeps all.
        batch_points: voxels a batch in place of `batch_size`: clouds are added while their sizes
            fit, but at least one. An epoch has the batches that `num_samples` clouds make.
        share: (number, processes): every so manyth cloud of each batch, from that number on. Where
            a batch has none, a single voxel of its first cloud fills in (see `fills_in`).
        seed: of the orders.
    """

    def __init__(
        self,
        num_scans: int,
        *,
        num_samples: int,
        batch_size: int = 1,
        sizes: Sequence[int] | None = None,
        batch_points: int | None = None,
        share: tuple[int, int] = (0, 1),
        seed: int = 0,
    ) -> None:
        if batch_points is not None and sizes is None:
            raise ValueError("batches by points need the sizes of the scans")
        self.num_scans, self.num_samples, self.batch_size = num_scans, num_samples, batch_size
        self.sizes, self.batch_points, self.seed = sizes, batch_points, seed
        self.share = share
        self.epoch, self.start = 0, 0
        self.num_batches = -(-num_samples // batch_size)
        if batch_points is not None:
            self.num_batches = sum(1 for _ in self._by_points(islice(self._draws(), num_samples)))

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, as the trainer does; another than before begins at its start."""
        if epoch != self.epoch:
            self.epoch, self.start = epoch, 0

    def resume(self, epoch: int, start: int) -> None:
        """Go on within an epoch, after its first `start` batches."""
        self.epoch, self.start = epoch, start

    def batches(self) -> list[list[Draw]]:
        """List all batches of the epoch."""
        number, processes = self.share
        return [
            batch[number::processes] or [batch[0]._replace(max_points=1)]
            for batch in self._whole_batches()
        ]

    def fills_in(self, batch: int) -> bool:
        """Tell whether a batch of the epoch has no cloud for this process."""
        return len(self._whole_batches()[batch]) <= self.share[0]

    def _whole_batches(self) -> list[list[Draw]]:
        """List the batches of all processes."""
        if self.batch_points is not None:
            return list(islice(self._by_points(self._draws()), self.num_batches))
        draws = list(islice(self._draws(), self.num_samples))
        return [draws[i : i + self.batch_size] for i in range(0, len(draws), self.batch_size)]

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[list[Draw]]:
        return iter(self.batches()[self.start :])

    def _draws(self) -> Iterator[Draw]:
        """Draw without end."""
        rng = np.random.default_rng([self.seed, self.epoch])
        number = self.epoch * _EPOCH
        while True:
            for scan in rng.permutation(self.num_scans).tolist():
                yield Draw(number, scan, None if self.sizes is None else self.sizes[scan])
                number += 1

    def _by_points(self, draws: Iterator[Draw]) -> Iterator[list[Draw]]:
        batch: list[Draw] = []
        room = limit = self.batch_points or 0
        for draw in draws:
            size = min(max(draw.max_points or 0, 1), limit)  # an empty cloud counts, or none ends
            if batch and size > room:
                yield batch
                batch, room = [], limit
            batch.append(draw._replace(max_points=size))
            room -= size
        if batch:
            yield batch
