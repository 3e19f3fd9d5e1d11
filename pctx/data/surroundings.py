"""Heights and shapes: what points are by those around them.

n points.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pctx.geometry.curves import MAX_DEPTH
from pctx.geometry.grid import Voxelization, voxelize
from pctx.geometry.points import all_finite

SHAPE_CELL = 1.0
"""Metres: the edge of the cubes whose points are looked at together for their shape."""
MIN_SHAPE_POINTS = 4
"""Points in a cube below which it has no shape."""
GROUND_CELL = 4.0
"""Metres: the edge of the square cells whose lowest point stands for the ground."""


def height_above_ground(coord: np.ndarray) -> np.ndarray:
    """Give (n,) float32 metres above the lowest finite point of the 3 x 3 cells around a point.

    Cells are squares of 4 m in x and y. Non-finite points get 0.
    """
    known, axes = finite_axes(coord)
    if not axes.size:
        return np.zeros(len(coord), dtype=np.float32)
    cells = group_cells(np.floor(axes[:2].astype(np.float64) / GROUND_CELL))
    z = axes[2]
    lowest = np.minimum.reduceat(z[cells.order], cells.starts[:-1])
    # Cells by sorted key, so that one far stray point costs nothing.
    key = cells.grid_coord[:, 0] * 2**32 + cells.grid_coord[:, 1]
    around = lowest.copy()
    for dx in (-1, 0, 1):
        for dy in (-1, 0, 1):
            wanted = key + (dx * 2**32 + dy)
            place = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
            here = key[place] == wanted
            around[here] = np.minimum(around[here], lowest[place[here]])
    return spread([z - around[cells.inverse]], known)[:, 0]


def local_shape(coord: np.ndarray) -> np.ndarray:
    """Describe the points of each cube of 1 m: (n, 5) float32.

    With the eigenvalues a >= b >= c of their covariance, square roots taken (metres): linearity
    (a - b) / a, planarity (b - c) / a, scattering c / a; verticality 1 - |z of the normal|; and the
    roughness c, which the model sees as asinh(c / 2 cm). Cubes of fewer than 4 points, and points
    that are not finite, get zeros. (Demantke et al., Dimensionality based scale selection in 3D
    lidar point clouds, 2011.)
    """
    known, axes = finite_axes(coord)
    if not axes.size:
        return np.zeros((len(coord), 5), dtype=np.float32)
    xyz = axes.astype(np.float64)
    cells = group_cells(np.floor(xyz / SHAPE_CELL))
    cell_of, count = cells.inverse, cells.counts
    covariance = np.empty((len(count), 3, 3))
    for axis in xyz:
        axis -= (np.bincount(cell_of, weights=axis) / count)[cell_of]
    for i in range(3):
        for j in range(i + 1):
            products = np.bincount(cell_of, weights=xyz[i] * xyz[j])
            covariance[:, i, j] = covariance[:, j, i] = products / count
    described = np.zeros((5, len(count)), dtype=np.float32)
    full = count >= MIN_SHAPE_POINTS
    described[:, full] = _describe(covariance[full]).T
    return spread([column.take(cell_of) for column in described], known)


def spread(columns: Sequence[np.ndarray], known: np.ndarray | None) -> np.ndarray:
    """Give every point its row (n, c) of columns of the finite ones; the others have zeros."""
    if known is None:
        return np.stack(columns).T
    values = np.zeros((len(columns), len(known)), dtype=np.float32)
    values[:, known] = columns
    return values.T


def finite_axes(coord: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """Give the finite points (3, m), and which of all they are: None where all are.

    Axis by axis in memory: over the rows of a narrow array numpy is many times slower.
    """
    known = None if all_finite(coord) else np.isfinite(coord).all(axis=1)
    return known, np.ascontiguousarray((coord if known is None else coord[known]).T)


def _describe(covariance: np.ndarray) -> np.ndarray:
    """Give the five numbers of `local_shape` for (k, 3, 3) covariances."""
    values, vectors = np.linalg.eigh(covariance)  # ascending
    c, b, a = np.sqrt(values.clip(0)).T
    longest = np.maximum(a, 1e-6)
    columns = [
        (a - b) / longest,
        (b - c) / longest,
        c / longest,
        1 - np.abs(vectors[:, 2, 0]),
        np.arcsinh(c / 0.02),
    ]
    return np.stack(columns, axis=1)


def group_cells(cell: np.ndarray) -> Voxelization:
    """Group points by their cells' numbers (2, n) or (3, n), whole float64 ones.

    Where an axis takes more than 21 bits, cells further than 2**20 from the middle one count as
    that far away.
    """
    if np.ptp(cell, axis=1).max() >= 1 << MAX_DEPTH:
        reach = (1 << (MAX_DEPTH - 1)) - 1
        middle = np.median(cell, axis=1, keepdims=True).round()
        cell = cell.clip(middle - reach, middle + reach)
    flat = np.zeros((3 - len(cell), cell.shape[1]))
    return voxelize(np.concatenate([cell, flat]).T, 1.0)
