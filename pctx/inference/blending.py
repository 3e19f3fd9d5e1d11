"""What boxes have to say of points near their faces, put together point by point.

k points of a box, c classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pctx.data.io.atomic import replacing
from pctx.inference.predictor import BoxResult


class Core:
    """The places in `results.bin` of the points of a box: ranges of it, one after another."""

    def __init__(self, runs: Iterator[tuple[int, int]]) -> None:
        ranges = np.array(list(runs), np.int64).reshape(-1, 2)
        self.starts, self.stops = ranges.T
        self.before = np.concatenate([[0], np.cumsum(self.stops - self.starts)])
        self.size = int(self.before[-1])

    def places(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Give where points are among those of the core, and which are of it at all."""
        if not len(self.starts):
            return np.zeros_like(points), np.zeros(len(points), dtype=bool)
        run = np.searchsorted(self.starts, points, side="right") - 1
        here = (run >= 0) & (points < self.stops[run])
        return np.where(here, points - self.starts[run] + self.before[run], 0), here

    def read(self, path: Path, dtype: np.dtype) -> np.ndarray:
        """Read the results of the core."""
        with path.open("rb") as stream:
            runs = zip(self.starts.tolist(), (self.stops - self.starts).tolist(), strict=True)
            parts = [read_run(stream, run, dtype) for run in runs]
        return np.concatenate([np.zeros(0, dtype), *parts])

    def write(self, path: Path, rows: np.ndarray) -> None:
        """Write the results of the core."""
        with path.open("r+b") as stream:
            for start, first, end in zip(
                self.starts.tolist(),
                self.before[:-1].tolist(),
                self.before[1:].tolist(),
                strict=True,
            ):
                stream.seek(start * rows.itemsize)
                stream.write(rows[first:end].tobytes())


class Totals:
    """Weighted sums over boxes, of the points of a core."""

    def __init__(self, size: int, classes: int) -> None:
        self.weight, self.variance = np.zeros((2, size), np.float32)
        self.probability = np.zeros((size, classes), np.float32)

    def add(self, core: Core, told: BoxResult) -> None:
        """Add what a box has to say."""
        at, here = core.places(told.points)
        at, weight = at[here], told.weight[here]
        np.add.at(self.weight, at, weight)
        np.add.at(self.variance, at, weight * told.variance[here])
        np.add.at(self.probability, at, weight[:, None] * told.probability[here])

    def part(self, at: np.ndarray) -> BoxResult:
        """Give the means at some places."""
        weight = self.weight[at]
        return BoxResult(
            points=at,
            weight=np.ones_like(weight),
            probability=self.probability[at] / weight[:, None],
            variance=self.variance[at] / weight,
            features=None,
            core=len(at),
        )


def part_of(result: BoxResult, chosen: np.ndarray) -> BoxResult:
    """Cut all columns by a mask (k,)."""
    return replace(
        result,
        points=result.points[chosen],
        weight=result.weight[chosen],
        probability=result.probability[chosen],
        variance=result.variance[chosen],
    )


def save_shared(path: Path, results: list[BoxResult]) -> None:
    """Write results, without features, to an .npz file."""
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(result, name) for result in results])
        for name in ("points", "weight", "probability", "variance")
        if results
    }
    with replacing(path, overwrite=True) as beside:
        np.savez(beside, **columns)


def load_shared(path: Path) -> BoxResult:
    """Read what `save_shared` wrote."""
    with np.load(path) as kept:
        found = {name: kept[name] for name in kept.files}
    if not found:
        none = np.zeros(0, np.float32)
        found = {"points": np.zeros(0, np.int64), "weight": none, "variance": none}
        found["probability"] = np.zeros((0, 1), np.float32)
    return BoxResult(features=None, core=0, **found)


def read_run(stream: BinaryIO, run: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """Read (start, count) of a file of records."""
    start, count = run
    stream.seek(start * dtype.itemsize)
    return np.fromfile(stream, dtype, count)
