"""Voxelize: metres to voxel numbers, one point a voxel, and the exact map back.

n points, m voxels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from pctx.geometry.compiled_grid import (
    compiled_suits,
    find_bounds,
    invert,
    row_bits,
    sort_points,
)
from pctx.geometry.curves import MAX_DEPTH
from pctx.geometry.sorting import WORD_BITS, changes, stable_sort


@dataclass(frozen=True, kw_only=True, eq=False)
class Voxelization:
    """The voxels of one cloud, sorted by x, then y, then z.

    Attributes:
        order: (n,) int64, the points sorted by voxel, those of a voxel ascending.
        starts: (m + 1,) int64, voxel i owns order[starts[i] : starts[i + 1]].
        grid_coord: (m, 3) int64, from 0 on each axis.
    """

    order: np.ndarray
    starts: np.ndarray
    grid_coord: np.ndarray

    def __len__(self) -> int:
        return len(self.grid_coord)

    @property
    def counts(self) -> np.ndarray:
        """(m,) int64, the points in each voxel."""
        return np.diff(self.starts)

    @property
    def first(self) -> np.ndarray:
        """(m,) int64, the lowest point index in each voxel."""
        return self.order[self.starts[:-1]]

    @property
    def inverse(self) -> np.ndarray:
        """(n,) int64, the voxel of each point: grid_coord[inverse] are the points' voxels."""
        if compiled_suits(self.order, np.int64):
            return invert(self.order, self.starts)
        inverse = np.empty(len(self.order), np.int64)
        inverse[self.order] = np.repeat(np.arange(len(self)), self.counts)
        return inverse


def voxelize(coord: np.ndarray, grid_size: float) -> Voxelization:
    """Sort points into cubes of edge `grid_size`: floor(coord / grid_size) less its minimum.

    Args:
        coord: (n, 3) float, metres, all finite. Divided in float64.
        grid_size: metres, above 0.

    Raises:
        ValueError: if grid_size is not one positive number, a coordinate is not finite, or an
            axis needs more than 21 bits.
    """
    if np.ndim(grid_size) != 0 or not 0 < float(grid_size) < math.inf:
        raise ValueError(f"grid_size must be one number above 0 metres, found {grid_size}")
    coord = np.asarray(coord)
    if coord.ndim != 2 or coord.shape[1] != 3:
        raise ValueError(f"coord must be (n, 3), found {coord.shape}")
    if len(coord) == 0:
        none = np.zeros(0, np.int64)
        return Voxelization(order=none, starts=np.zeros(1, np.int64), grid_coord=none.reshape(0, 3))
    compiled = compiled_suits(coord, np.float32, np.float64)
    bounds = find_bounds(coord) if compiled else _bounds(coord)
    with np.errstate(over="ignore", invalid="ignore"):
        # The bounds of the cells are those of the points: division and floor keep their order.
        low, high = np.floor(bounds / float(grid_size))
        widest = (high - low).max()
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            _raise_not_finite(coord, float(grid_size))
        if not widest < 1 << MAX_DEPTH:
            extent = np.ptp(coord.astype(np.float64), axis=0).max()
            raise too_wide(extent, widest, "grid_size", float(grid_size), " m")
    bits = [int(extent).bit_length() for extent in high - low]
    fits = sum(bits) + row_bits(len(coord)) <= WORD_BITS
    sort = sort_points if compiled and fits else _sort_plainly
    order, starts, grid_coord = sort(coord, float(grid_size), low, bits)
    return Voxelization(order=order, starts=starts, grid_coord=grid_coord)


def smallest_grid_size(extent: float) -> float:
    """Return the edge at which an extent fits in 21 bits an axis, rounded up to three digits."""
    # One cell of slack, as a cloud need not begin at the edge of a voxel.
    smallest = extent / ((1 << MAX_DEPTH) - 2)
    unit = 10.0 ** (math.floor(math.log10(smallest)) - 2)
    return math.ceil(smallest / unit) * unit


def too_wide(extent: float, cells: float, name: str, size: float, unit: str = "") -> ValueError:
    """Return the error that an extent needs more than 21 bits an axis; it says what would do."""
    if not math.isfinite(extent):
        return ValueError("coord spans more than float64 holds; remove far outliers")
    bits = int(cells).bit_length() if math.isfinite(cells) else f"over {MAX_DEPTH}"
    return ValueError(
        f"an extent of {extent:.6g}{unit} at {name} {size:g}{unit} needs {bits} bits an axis, more "
        f"than {MAX_DEPTH}; remove far outliers or use a {name} of at least "
        f"{smallest_grid_size(extent):.3g}{unit}"
    )


def _bounds(coord: np.ndarray) -> np.ndarray:
    """Give the smallest and the largest of each axis (2, 3) float64, NaN if that is among them."""
    # Column by column: over the rows of a narrow array numpy is many times slower.
    return np.array(
        [[axis.min() for axis in coord.T], [axis.max() for axis in coord.T]], np.float64
    )


def _sort_plainly(
    coord: np.ndarray, grid_size: float, low: np.ndarray, bits: list[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Give `order`, `starts` and `grid_coord`, as the compiled `sort_points` does."""
    cells = np.divide(coord.T, grid_size, dtype=np.float64, order="C")  # (3, n)
    np.floor(cells, out=cells)
    cells -= low[:, None]
    # Two axes take at most 42 bits, which float64 holds.
    lower = cells[1] * (1 << bits[2]) + cells[2]
    key = cells[0].astype(np.int64) << (bits[1] + bits[2])
    key |= lower.astype(np.int64)
    ascending, rows = stable_sort(torch.from_numpy(key), sum(bits))
    head = np.flatnonzero(changes(ascending).numpy())
    key = ascending.numpy()[head]
    grid_coord = np.empty((len(key), 3), np.int64)
    for axis in (2, 1, 0):
        np.bitwise_and(key, (1 << bits[axis]) - 1, out=grid_coord[:, axis])
        key >>= bits[axis]
    return rows.numpy(), np.append(head, len(coord)), grid_coord


def _raise_not_finite(coord: np.ndarray, grid_size: float) -> None:
    count = int((~np.isfinite(coord).all(axis=1)).sum())
    if count:
        raise ValueError(f"{count} of {len(coord)} points are not finite; drop them first")
    raise ValueError(f"grid_size {grid_size} m is too small for these coordinates")
