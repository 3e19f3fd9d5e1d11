"""Voxels by a small compiled kernel, `grid.c`: the bytes that numpy gives, in a third of the time.

Products of points with a matrix are the same but for their rounding. Who calls asks
`compiled_suits` first. One thread does it all.

n points, m voxels, c columns.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pctx.geometry.compiled import kernel

COMPILED_FROM = 4096
"""Points below which nothing is gained that can be measured."""

_MOST = 2**31
"""Points that the kernel counts to."""
_SOURCE = Path(__file__).with_name("grid.c")


def compiled_suits(values: np.ndarray, *dtypes: type) -> bool:
    """Tell whether the kernel can read values, a row a point, of these types, and gains time."""
    return (
        COMPILED_FROM <= len(values) < _MOST
        and values.dtype in dtypes
        and values.dtype.isnative
        and values.flags.aligned
        and all(step % values.itemsize == 0 for step in values.strides)
        and compiled_agrees()
    )


def find_bounds(coord: np.ndarray) -> np.ndarray:
    """Give the smallest and the largest of each axis (2, 3) float64; NaN if one is not finite.

    Args:
        coord: (n, 3) float32 or float64, n above 0.
    """
    bounds = np.empty((2, 3))
    _call("pctx_bounds", *_coordinates(coord), bounds)
    return bounds


def multiply(coord: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Give coord @ matrix, of (n, 3) and (3, 3) float32."""
    coord, matrix = np.ascontiguousarray(coord), np.ascontiguousarray(matrix)
    product = np.empty_like(coord)
    _call("pctx_multiply", coord, len(coord), matrix, product)
    return product


def sort_points(
    coord: np.ndarray, grid_size: float, low: np.ndarray, bits: list[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort points by voxel: `order`, `starts` and `grid_coord` of a `Voxelization`.

    Args:
        coord: (n, 3) float32 or float64.
        grid_size: metres.
        low: (3,) float64, the lowest of floor(coord / grid_size) on each axis.
        bits: what voxel numbers from there take on each axis; with `row_bits` at most 63.
    """
    n, widths = len(coord), np.array(bits, np.int64)
    order, scratch = np.empty(n, np.int64), np.empty(n, np.int64)
    corner = np.ascontiguousarray(low)
    given = (float(grid_size), corner, widths, row_bits(n), order, scratch)
    m = _call("pctx_sort_voxels", *_coordinates(coord), *given)
    starts, grid_coord = np.empty(m + 1, np.int64), np.empty((m, 3), np.int64)
    _call("pctx_split_words", order, n, m, widths, row_bits(n), starts, grid_coord)
    return order, starts, grid_coord


def row_bits(n: int) -> int:
    """Give the bits that the number of a point takes."""
    return max(n - 1, 0).bit_length()


def invert(order: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Give the voxel of each point (n,)."""
    inverse = np.empty(len(order), np.int64)
    _call("pctx_invert", order, starts, len(starts) - 1, inverse)
    return inverse


def average(values: np.ndarray, order: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Average the columns of (n, c) float32 over each voxel, summed in float64: (m, c) float32."""
    m, c = len(starts) - 1, values.shape[1]
    means = np.empty((m, c), np.float32)
    _call("pctx_average", values, _steps(values), c, order, starts, m, means)
    return means


def draw(share: np.ndarray, order: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Give the point of each voxel (m,) at a share of them (m,) float64, in [0, 1)."""
    drawn = np.empty(len(share), np.int64)
    _call("pctx_draw", share, order, starts, len(share), drawn)
    return drawn


def take(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Take some rows of (n, c) float32."""
    taken = np.empty((len(rows), values.shape[1]), np.float32)
    _call("pctx_take", values, _steps(values), values.shape[1], rows, len(rows), taken)
    return taken


def elect(label: np.ndarray, order: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Give each voxel its commonest label (m,), the lowest of several; -1 counts only alone.

    Args:
        label: (n,) int64, from -1 on; the memory of as many as the largest is taken.
    """
    m, votes = len(starts) - 1, np.zeros(int(label.max(initial=0)) + 1, np.int64)
    elected = np.empty(m, np.int64)
    _call("pctx_elect", np.ascontiguousarray(label), order, starts, m, votes, elected)
    return elected


@cache
def compiled_agrees() -> bool:
    """Build or find the kernel and try it once, against plain numpy."""
    return _library() is not None and all(map(_agrees, (np.float32, np.float64)))


class _Steps(ctypes.Structure):
    """Between rows and between columns, in elements."""

    _fields_ = (("row", ctypes.c_int64), ("column", ctypes.c_int64))


def _steps(values: np.ndarray) -> _Steps:
    return _Steps(*(step // values.itemsize for step in values.strides))


def _coordinates(coord: np.ndarray) -> tuple[Any, ...]:
    return coord, int(coord.dtype == np.float64), _steps(coord), len(coord)


def _call(name: str, *arguments: Any) -> int:
    """Call a function of the kernel, which keeps none of the arguments."""
    found: int = getattr(_library(), name)(*map(_in_c, arguments))
    return found


def _in_c(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.ctypes
    kind = {int: ctypes.c_int64, float: ctypes.c_double}.get(type(value))
    return value if kind is None else kind(value)


@cache
def _library() -> ctypes.CDLL | None:
    library = kernel(_SOURCE)
    if library is not None:  # all others give nothing
        library.pctx_sort_voxels.restype = ctypes.c_int64
    return library


def _agrees(dtype: type) -> bool:
    rng = np.random.default_rng(0)
    coord = rng.uniform(-2, 2, (3, 700)).astype(dtype).T  # a part of a block too
    cells = np.floor(coord.astype(np.float64) / 0.5).astype(np.int64)
    grid_coord, voxel = np.unique(cells - cells.min(0), axis=0, return_inverse=True)
    voxel, m = voxel.reshape(-1), len(grid_coord)
    counts = np.bincount(voxel)
    order, starts = np.argsort(voxel, kind="stable"), np.append(0, counts.cumsum())
    bounds = find_bounds(coord)
    values = rng.normal(size=(700, 5)).astype(np.float32)  # of columns four go together
    sums = np.stack([np.bincount(voxel, column) for column in values.T], axis=1)
    label = rng.integers(-1, 3, 700)
    votes = np.zeros((m, 3), np.int64)
    np.add.at(votes, (voxel[label >= 0], label[label >= 0]), 1)
    share = rng.random(m)
    drawn = order[starts[:-1] + (share * counts).astype(np.int64)]
    means = (sums / counts[:, None]).astype(np.float32)
    elected = np.where(votes.any(1), votes.argmax(1), -1)
    corners = (coord.min(0), coord.max(0))
    expected = (corners, order, starts, grid_coord, voxel, means, drawn, values[order], elected)
    found = (
        bounds,
        *sort_points(coord, 0.5, np.floor(bounds[0] / 0.5), [3, 3, 3]),
        invert(order, starts),
        average(values, order, starts),
        draw(share, order, starts),
        take(values, order),
        elect(label, order, starts),
    )
    rows = values[:, :3]
    turned = np.allclose(multiply(rows, rows[:3]), rows @ rows[:3], rtol=1e-5, atol=1e-6)
    return turned and all(map(np.array_equal, found, expected))
