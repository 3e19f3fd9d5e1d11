"""How close the points of a cloud lie, and the grid size that suits them.

n points.
"""

from __future__ import annotations

import numpy as np

SAMPLE = 2000
"""Points whose nearest neighbour is looked up."""
SPACINGS_A_VOXEL = 2
"""A voxel of two spacings holds some four points of a surface: enough for a mean."""
_MOST_SORTED = 3_000_000
"""Points above which repeated ones are found by a hash, in a tenth of the time."""


def median_spacing(coord: np.ndarray) -> float | None:
    """Give the median distance, in metres, of a sample of finite points to their nearest others.

    Repeated points count once. None where fewer than two points are distinct.
    """
    from scipy.spatial import cKDTree

    distinct = np.unique(coord, axis=0) if len(coord) <= _MOST_SORTED else _distinct(coord)
    if len(distinct) < 2:
        return None
    sample = distinct[:: max(1, len(distinct) // SAMPLE)]
    distance = cKDTree(distinct).query(sample, k=2)[0][:, 1]
    return round(float(np.median(distance)), 4)


def _distinct(coord: np.ndarray) -> np.ndarray:
    """Leave out repeated points; of many millions perhaps one that is not."""
    key = np.zeros(len(coord), np.uint64)
    for column in coord.T:
        bits = (column.astype(np.float32) + np.float32(0)).view(np.uint32)  # -0 becomes 0
        key = (key ^ bits) * np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, wraps around
        key ^= key >> np.uint64(32)
    return coord[np.sort(np.unique(key, return_index=True)[1])]


def suggest_grid_size(spacing: float) -> float:
    """Give two spacings, rounded to 1, 2 or 5 times a power of ten."""
    size = max(SPACINGS_A_VOXEL * spacing, 1e-6)
    steps = np.array([1, 2, 5, 10]) * 10.0 ** np.floor(np.log10(size))
    return float(f"{steps[np.argmin(np.abs(np.log(steps / size)))]:.6g}")
