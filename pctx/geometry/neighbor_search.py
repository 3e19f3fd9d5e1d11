"""The nearest rows of one cloud, exactly, equal distances by row: by a tree or by all distances."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

_ROUNDING = 1e-12
"""Relative; above what a tree's own sums and bounds of squared distances lose, some 1e-14."""

_SMALLEST = 1e-300
"""A square with all its digits."""

_CHUNK = 1 << 20
"""Distances in memory at a time: 8 MB an array."""

_EXTRA = 2
"""Neighbours asked for beyond k; four times as many each time that ties go on."""

_ROWS_A_THREAD = 2048
"""Queries below which a thread takes longer to start than to find them."""

_PAIRS_ON_GPU = 1 << 30
"""Pairs of a cloud of 32 k points; a tree on the CPU takes as long as they do, by estimate."""

_MIX = (1.0, 2.0**0.5, 3.0**0.5)
"""Factors that make one number of three coordinates."""


def search_nearest(points: Tensor, queries: Tensor, k: int, limit: float) -> tuple[Tensor, Tensor]:
    """Find the k nearest by the faster way: on a GPU a small cloud is measured whole."""
    if points.is_cuda and len(points) * len(queries) <= _PAIRS_ON_GPU:
        return search_all(points, queries, k)
    index, d2 = _search_tree(points.cpu().numpy(), queries.cpu().numpy(), k, limit)
    return torch.from_numpy(index).to(points.device), torch.from_numpy(d2).to(points.device)


def search_all(points: Tensor, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k nearest rows and their squared distances, by all distances of a few queries."""
    n = len(points)
    row = torch.arange(n, device=points.device)
    index, d2 = [], []
    for some in queries.split(max(_CHUNK // n, 1)):
        far = torch.zeros(len(some), n, dtype=torch.float64, device=points.device)
        for axis in range(3):
            delta = points[:, axis] - some[:, axis, None]  # (some, n)
            far += delta.mul_(delta)
        kth = far.topk(k, largest=False).values.amax(1, keepdim=True)
        # All nearer than the k-th, then the lowest rows that are as far.
        rank = torch.where(far < kth, row - n, torch.where(far == kth, row, n))
        nearest = (rank.topk(k, largest=False).values % n).sort(1).values
        near, place = far.gather(1, nearest).sort(dim=1, stable=True)
        index.append(nearest.gather(1, place))
        d2.append(near)
    return torch.cat(index), torch.cat(d2)


def _search_tree(
    points: np.ndarray, queries: np.ndarray, k: int, limit: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k nearest rows and their squared distances, infinite where beyond the limit.

    A tree breaks ties at will and rounds in its own way. So it is asked for more than k, and again
    for still more where the last of them is no farther than the k-th.
    """
    rows = _eligible(points, k)
    # A third faster to build than a balanced one, and no slower to ask.
    tree = cKDTree(points[rows], balanced_tree=False)
    index = np.empty((len(queries), k), np.int64)
    d2 = np.empty((len(queries), k))
    # Queries near one another find what they need in the cache: up to three times as fast.
    own = np.array_equal(queries, tree.data)
    near = tree if own else cKDTree(queries, balanced_tree=False)
    open_rows, extra = near.indices, _EXTRA
    while len(open_rows):
        width = min(k + extra, tree.n)
        still_open = []
        chunks = math.ceil(len(open_rows) / max(_CHUNK // width, 1))
        for some in np.array_split(open_rows, chunks):
            found, far = _candidates(tree, queries[some], width, limit)
            index[some] = rows.take(found[:, :k], mode="clip")
            d2[some] = far[:, :k]
            as_far = far[:, -1] <= far[:, k - 1] * (1 + _ROUNDING) + _SMALLEST
            still_open.append(some[as_far & (far[:, -1] < math.inf)])
        if width == tree.n:
            break
        open_rows, extra = np.concatenate(still_open), 4 * extra
    return index, d2


def _eligible(points: np.ndarray, k: int) -> np.ndarray:
    """Return the rows, ascending, that can be among k neighbours: of equal points the first k."""
    n = len(points)
    # Equal points have equal keys. Should others have them too, only time is lost.
    key = np.sort(points[:, 0] * _MIX[0] + points[:, 1] * _MIX[1] + points[:, 2] * _MIX[2])
    if not (key[k:] == key[: n - k]).any():
        return np.arange(n)
    order = np.lexsort(points.T)  # equal points by row
    sorted_points = points[order]
    head = np.ones(n, bool)
    head[1:] = (sorted_points[1:] != sorted_points[:-1]).any(axis=1)
    place = np.arange(n)
    rank = place - np.maximum.accumulate(np.where(head, place, 0))
    return np.sort(order[rank < k])


def _candidates(
    tree: cKDTree, queries: np.ndarray, width: int, limit: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return nearest rows of a tree by (squared distance, row); tree.n where there is none."""
    _, index = tree.query(
        queries,
        width,
        distance_upper_bound=max(limit * (1 + _ROUNDING), math.sqrt(_SMALLEST)),
        workers=max(min(torch.get_num_threads(), len(queries) // _ROWS_A_THREAD), 1),
    )
    index = index.reshape(len(queries), width)
    d2 = np.zeros(index.shape)
    for axis in range(3):
        delta = tree.data[:, axis].take(index, mode="clip") - queries[:, axis, None]
        delta *= delta
        d2 += delta
    d2[index == tree.n] = math.inf
    swapped = ((d2[:, 1:] <= d2[:, :-1]) & (d2[:, 1:] < math.inf)).any(axis=1)
    if swapped.any():
        order = np.lexsort((index[swapped], d2[swapped]))
        index[swapped] = np.take_along_axis(index[swapped], order, axis=1)
        d2[swapped] = np.take_along_axis(d2[swapped], order, axis=1)
    return index, d2
