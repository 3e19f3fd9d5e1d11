"""Strays: points far from all others, which would move a cloud's voxels, windows and middle.

n points or cells.
"""

from __future__ import annotations

import logging

import numpy as np

log = logging.getLogger(__name__)

STRAY = 10.0
"""Sizes of a cloud beyond its middle from which on a point belongs to nothing there."""
TAIL = 0.005
"""Part of the points on either side that says nothing about a cloud's size."""
STRAY_VOXELS = 2**13
"""Voxels from the middle up to which a point is no stray, however small the cloud."""


def near_bulk(keys: np.ndarray, least: float, counts: np.ndarray | None = None) -> np.ndarray:
    """Tell (n,) which cells (n, 3) are no further from the middle than ten times the size.

    The middle is the median along each axis; the size is the longest side of the box of all but
    0.5 % of the points on either side. So a cloud of fewer than 200 points has no strays.

    Args:
        keys: int64, numbers of cells along the axes; at least one.
        least: cells from the middle up to which a point is near, whatever the size.
        counts: (n,) points in each; None where every row is one point.
    """
    total = len(keys) if counts is None else int(counts.sum())
    tail = int(TAIL * total)
    ranks = [tail, total // 2, total - 1 - tail]
    low, middle, high = np.stack([_at_ranks(column, counts, ranks) for column in keys.T], axis=1)
    limit = max(STRAY * (int((high - low).max()) + 1), least)
    near: np.ndarray = (np.abs(keys - middle) <= limit).all(axis=1)
    return near


def tell(count: int) -> None:
    """Say how many points are left out, where there are any."""
    if count:
        points = "stray point lies" if count == 1 else "stray points lie"
        log.warning(
            "%s %s %g times as far off as all others: no class", f"{count:,}", points, STRAY
        )


def _at_ranks(values: np.ndarray, counts: np.ndarray | None, ranks: list[int]) -> np.ndarray:
    """Give the values (n,) of some ranks, each value as often as it counts."""
    if counts is None:
        found: np.ndarray = np.partition(values, ranks)[ranks]
        return found
    order = np.argsort(values, kind="stable")
    picked: np.ndarray = values[order][np.searchsorted(np.cumsum(counts[order]), ranks, "right")]
    return picked
