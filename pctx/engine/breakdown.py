"""Parts of a scan that are scored apart: near a change of class, by range, by density.

n raw points.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy.spatial import cKDTree

from pctx.data.labels import IGNORE_INDEX
from pctx.geometry.points import PointCloud


def near_change(coord: np.ndarray, label: np.ndarray, radius: float) -> np.ndarray:
    """Tell which points (n,) have a point of another class within `radius` metres, exactly.

    Points of class -1 and those that are not finite are at no change and make none. Cost: a tree
    of the points a class.

    Raises:
        ValueError: the radius is not above 0.
    """
    if not radius > 0:
        raise ValueError(f"boundary must be above 0 metres, found {radius}")
    near = np.zeros(len(label), dtype=bool)
    known = np.flatnonzero((label != IGNORE_INDEX) & np.isfinite(coord).all(axis=1))
    classes = np.unique(label[known])
    for number in classes if len(classes) > 1 else ():
        own = label[known] == number
        others = cKDTree(coord[known[~own]], balanced_tree=False, compact_nodes=False)
        limit = np.nextafter(radius, np.inf)  # the tree leaves its limit out
        distance, _ = others.query(coord[known[own]], distance_upper_bound=limit)
        near[known[own]] = np.isfinite(distance)
    return near


def range_of(cloud: PointCloud) -> np.ndarray:
    """Give (n,) metres: how far points are from the local origin, the sensor of a LiDAR scan."""
    return np.hypot(cloud.coord[:, 0], cloud.coord[:, 1])


def density_of(cloud: PointCloud) -> np.ndarray:
    """Give (n,): how many points share a point's cubic metre; NaN where it is not finite."""
    finite = np.flatnonzero(cloud.finite)
    cell = np.floor(cloud.coord[finite]).astype(np.int64)
    _, inverse, counts = np.unique(cell, axis=0, return_inverse=True, return_counts=True)
    density = np.full(len(cloud), np.nan)
    density[finite] = counts[inverse.reshape(-1)]
    return density


def band_names(edges: Sequence[float], unit: str) -> list[str]:
    """Name the bands that edges make: below the first, between two, from the last on.

    Raises:
        ValueError: the edges do not ascend.
    """
    if any(low >= high for low, high in pairwise(edges)):
        raise ValueError(f"the limits of bands must ascend, found {list(edges)}")
    between = [f"{low:g} to {high:g}" for low, high in pairwise(edges)]
    names = [f"below {edges[0]:g}", *between, f"{edges[-1]:g} and more"]
    return [f"{name} {unit}" for name in names]


def bands(values: np.ndarray, edges: Sequence[float]) -> np.ndarray:
    """Give the band of each value (n,); -1 where it is not finite. An edge is in the band above."""
    return np.where(np.isfinite(values), np.searchsorted(edges, values, side="right"), -1)
