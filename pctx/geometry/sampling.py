"""Sampling: the farthest points of packed clouds, in the order in which they are chosen.

n points, m samples, b clouds; within one cloud p pairs.

Seconds on one core of an AMD EPYC (Zen 4), torch 2.13, numpy 2.4, scipy 1.17; in brackets, from
the first few hundred steps:

    points, samples        60 k, 15 k   125 k, 31 k   200 k, 50 k   1 M, 250 k
    in bands               0.18-0.24    0.51          0.74          5.8
    single steps, torch    (2.5)        (9.8)         (28)          (1260)
    single steps, numpy    (1.0)        (4.3)         (11)          (570)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.spatial import KDTree
from torch import Tensor

from pctx.geometry.checks import check_offsets, check_whole
from pctx.geometry.packed import batch_from_offsets, offsets_from_counts

_SINGLE_STEPS = 256
"""Samples from which bands are the faster way."""

_BAND_DEPTH = 0.7
"""The least value in a band over the largest: deeper bands are fewer, but hold more pairs."""

_BAND_SHARE = 8
"""Points in a band over the samples so far, which a band then raises by about half."""

_BAND_PAIRS = 1 << 21
"""Pairs of points that a band may hold: some 100 MB at work."""


def strided_counts(offsets: Int[Tensor, "b+1"], stride: int) -> Int[Tensor, "b"]:
    """Return floor(points / stride) for each cloud: 0 for a cloud of fewer than `stride` points.

    Raises:
        ValueError: if stride is below 1.
    """
    stride = check_whole("stride", stride, 1)
    return torch.div(offsets.diff(), stride, rounding_mode="floor")


def farthest_points(
    coord: Float[Tensor, "n 3"], offsets: Int[Tensor, "b+1"], counts: Int[Tensor, "b"]
) -> tuple[Int[Tensor, "m"], Int[Tensor, "b+1"]]:
    """Sample each cloud by farthest points: the rows chosen, and the limits of the samples.

    The first sample is the cloud's first point; each next one is the point farthest from its
    nearest sample, ties to the lowest row, and no point is chosen twice. So m samples are the
    first m of m + 1. Distances are squared and summed as (dx * dx + dy * dy) + dz * dz in float32,
    or in float64 where coord is: rows then equal those of published networks, which rounding
    would otherwise change. (Eldar et al., The farthest point strategy, 1997; Qi et al.,
    PointNet++, 2017.)

    On the CPU clouds are sampled in bands, on other devices by `plain_farthest_points`; the rows
    are the same.

    Args:
        coord: metres, all finite.
        offsets: the limits of the clouds.
        counts: samples of each cloud, from 0 to its points; see `strided_counts`.

    Raises:
        ValueError: if counts are not one a cloud or out of range, a coordinate is not finite or its
            square would overflow, or a shape or offsets do not fit.
    """
    coord, offsets = _checked(coord, offsets, counts)
    if coord.device.type != "cpu":
        return _sample_step_by_step(coord, offsets, counts)
    starts = offsets.tolist()
    clouds = zip(starts[:-1], starts[1:], counts.tolist(), strict=True)
    rows = [
        start + _sample_in_bands(coord[start:stop].numpy(), count) for start, stop, count in clouds
    ]
    index = np.concatenate([np.zeros(0, np.int64), *rows])
    return torch.from_numpy(index), offsets_from_counts(counts)


def plain_farthest_points(
    coord: Float[Tensor, "n 3"], offsets: Int[Tensor, "b+1"], counts: Int[Tensor, "b"]
) -> tuple[Int[Tensor, "m"], Int[Tensor, "b+1"]]:
    """Sample as `farthest_points` does, one sample of each cloud a step.

    Cost: b * (points of the largest cloud) * (largest count).
    """
    coord, offsets = _checked(coord, offsets, counts)
    return _sample_step_by_step(coord, offsets, counts)


def _checked(coord: Tensor, offsets: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    if coord.ndim != 2 or coord.shape[1] != 3:
        raise ValueError(f"coord must be (n, 3), found {tuple(coord.shape)}")
    offsets = check_offsets(offsets, len(coord))
    sizes = offsets.diff()
    if counts.shape != sizes.shape:
        raise ValueError(f"counts must be one a cloud, found {len(counts)} for {len(sizes)} clouds")
    wrong = (counts < 0) | (counts > sizes)
    coord = coord.detach() if coord.dtype == torch.float64 else coord.detach().float()
    # The squared diagonal of a cube from -limit to limit.
    limit = math.sqrt(torch.finfo(coord.dtype).max / 12)
    far = ~(coord.abs() <= limit).all(1)
    any_wrong, num_far = torch.stack([wrong.any().long(), far.sum()]).tolist()  # one host sync
    if any_wrong:
        cloud = int(wrong.long().argmax())
        raise ValueError(
            f"cloud {cloud} has {int(sizes[cloud])} points, but {int(counts[cloud])} are to be "
            "sampled; ask for 0 up to its points"
        )
    if num_far:
        raise ValueError(
            f"{num_far} of {len(coord)} points are not finite, or beyond {limit:.1g} and too far "
            "to be squared; drop them first"
        )
    return coord, offsets


def _sample_step_by_step(coord: Tensor, offsets: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    n, b = len(coord), len(counts)
    if b == 0:
        return offsets.new_zeros(0), offsets
    longest, steps = torch.stack([offsets.diff().max(), counts.max()]).tolist()  # one host sync
    batch = batch_from_offsets(offsets, n)
    place = torch.arange(n, device=coord.device) - offsets.index_select(0, batch)
    planes = coord.new_zeros(3, b, longest)
    planes[:, batch, place] = coord.t()
    # -1 where there is no point, or a sample.
    nearest = coord.new_full((b, longest), -1)
    nearest[batch, place] = math.inf
    chosen = offsets.new_zeros(b, steps)
    for step in range(steps):
        farthest = nearest.argmax(1, keepdim=True)  # the first of equals
        chosen[:, step] = farthest.squeeze(1)
        nearest.scatter_(1, farthest, -1)
        dx, dy, dz = planes - planes.gather(2, farthest.expand(3, b, 1))
        nearest = torch.minimum(nearest, (dx * dx + dy * dy) + dz * dz)
    wanted = torch.arange(steps, device=coord.device) < counts[:, None]
    return (chosen + offsets[:-1, None])[wanted], offsets_from_counts(counts)


def _sample_in_bands(coord: np.ndarray, count: int) -> np.ndarray:
    """Return the rows of `count` samples of one cloud, found many at a time.

    Let D be the squared distance of two points and v(p) that of p from its nearest sample. Say
    that q comes before p if v(q) is larger, or equal and q the lower row: single steps take the
    point that comes before all others. So p is certain to be taken, at its present v(p), if every
    point q before it has D(p, q) >= v(p). For only a sample q with D(p, q) < v(p) lowers v(p), and
    as no v ever rises, what is taken before p comes before p already now. The order of the samples
    is that of their v when taken, ties by row.

    A band holds the points that come before all others, down to a limit. Rounds of certain points
    settle it until none is left above the limit; then all other points learn of the new samples.
    These are apart by the root of the limit or more, so that no point has more than 13 of them
    within it and memory is O(n). Only values of D as single steps compute them are compared:
    rounding changes nothing.
    """
    planes = np.ascontiguousarray(coord.T)
    found = min(count, _SINGLE_STEPS)
    value, taken_at = _first_samples(planes, found)
    tree = _tree(coord) if found < count else None
    while found < count:
        if value.max() == 0:
            taken_at[value == 0] = 0  # only copies of samples are left
            break
        size = min(_BAND_SHARE * found, 4 * (count - found) + _SINGLE_STEPS)
        band, pairs = _farthest_band(coord, value, size)
        value[band.rows], taken_at[band.rows] = _settle(planes, value, band, pairs)
        samples = band.rows[taken_at[band.rows] >= 0]
        found += len(samples)
        if found < count:
            near = _tree(coord[samples]).sparse_distance_matrix(
                tree, _radius(band.limit), output_type="ndarray"
            )
            rows = near["j"]
            apart = _squared(planes[:, samples[near["i"]]], planes[:, rows])
            closer = apart < value[rows]
            np.minimum.at(value, rows[closer], apart[closer])
    rows = np.flatnonzero(taken_at >= 0)
    return rows[np.argsort(-taken_at[rows], kind="stable")][:count]


class _Band(NamedTuple):
    """The points that come first: v above `limit`, or equal to it and the row at most `last`."""

    rows: np.ndarray
    limit: np.floating
    last: int


def _first_samples(planes: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Sample step by step; return v of each point, -1 for samples, and v when taken, or -1."""
    n = planes.shape[1]
    value = np.full(n, np.inf, planes.dtype)
    taken_at = np.full(n, -1, planes.dtype)
    for _ in range(steps):
        row = int(value.argmax())
        taken_at[row] = value[row]
        value[row] = -1
        np.minimum(value, _squared(planes, planes[:, row, None]), out=value)
    return value, taken_at


def _farthest_band(coord: np.ndarray, value: np.ndarray, size: int) -> tuple[_Band, np.ndarray]:
    """Return a band of at most `size` points, and the pairs in it that may matter: (p, 2)."""
    band = _first(value, size)
    tree, radius = _tree(coord[band.rows]), _radius(value.max())
    r = len(band.rows)
    # The tree counts each pair twice.
    if r * r > 2 * _BAND_PAIRS and tree.count_neighbors(tree, radius) > 2 * _BAND_PAIRS:
        return _farthest_band(coord, value, r // 2)
    return band, tree.query_pairs(radius, output_type="ndarray")


def _first(value: np.ndarray, size: int) -> _Band:
    """Return the `size` points that come first, but none too far below the first of all."""
    size = min(size, len(value))
    kth = np.partition(value, -size)[-size]
    limit = max(kth, value.dtype.type(_BAND_DEPTH * float(value.max())))
    rows = np.flatnonzero(value >= limit)
    surplus = len(rows) - size
    if surplus <= 0:
        return _Band(rows, limit, len(value))
    ties = rows[value[rows] == limit]
    last = int(ties[-surplus - 1])
    return _Band(rows[(value[rows] > limit) | (rows <= last)], limit, last)


def _settle(
    planes: np.ndarray, value: np.ndarray, band: _Band, pairs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sample a band, by rounds of certain points; return as `_first_samples` does."""
    value, planes = value[band.rows], planes[:, band.rows]
    taken_at = np.full_like(value, -1)
    left = np.ones(len(value), bool)
    i, j = pairs.T
    apart = _squared(planes[:, i], planes[:, j])
    while left.any():
        close = left[i] & left[j] & (apart < np.minimum(value[i], value[j]))
        i, j, apart = i[close], j[close], apart[close]
        swap = value[i] < value[j]  # i < j, so i is the first of equals
        first, second = np.where(swap, j, i), np.where(swap, i, j)
        certain = left.copy()
        certain[second] = False
        taken_at[certain] = value[certain]
        hit = certain[first]
        np.minimum.at(value, second[hit], apart[hit])
        value[certain] = -1
        left = (value > band.limit) | ((value == band.limit) & (band.rows <= band.last))
    return value, taken_at


def _squared(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Square the distances of points (3, p); rounded as in `_sample_step_by_step`."""
    dx, dy, dz = a - b
    return (dx * dx + dy * dy) + dz * dz


def _radius(squared: np.floating) -> float:
    """Return a distance that no pair exceeds whose rounded squared distance is below `squared`."""
    return math.sqrt(float(squared)) * (1 + 1e-6) + 1e-22


def _tree(coord: np.ndarray) -> KDTree:
    """Build a tree in the quickest way, for few queries."""
    return KDTree(coord, leafsize=16, compact_nodes=False, balanced_tree=False)
