"""Neighborhood: the points around each query, k a query.

q queries, k neighbours a query, n points, b clouds. Milliseconds for k = 16 on one core of an AMD
EPYC (Zen 4), scipy 1.17; `cKDTree` alone, whose ties come in any order, beside `knn`:

    n                              cKDTree  knn      plain_knn
    aerial scan, 20 k                       57       5900
    aerial scan, 60 k              147      169
    driving scan, 60 k             128      157
    voxel numbers of one, 41 k     89       164
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int, Real
from torch import Tensor

from pctx.geometry.checks import check_offsets, check_whole
from pctx.geometry.neighbor_search import search_all, search_nearest

_LARGEST = 1e150
"""A coordinate whose square is finite."""

_SOFTENING = 1e-8
"""Metres, of Zhao et al.'s interpolation: finite at distance 0."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Neighborhood:
    """A dense table of neighbours, nearest first, ties by lowest index.

    Attributes:
        index: the row of each neighbour. A masked place names some point of the same cloud, or
            row 0 where the cloud has none.
        valid: whether a place holds a neighbour; None if all do. Real places come first.
        distance: metres from the query; infinite at a masked place, and where the dtype ends
            before the distance. None if not asked for.
    """

    index: Int[Tensor, "q k"]
    valid: Bool[Tensor, "q k"] | None
    distance: Float[Tensor, "q k"] | None = None

    def to(self, device: torch.device | str) -> Neighborhood:
        """Copy every tensor to a device."""
        return self._each(lambda table: table.to(device, non_blocking=True))

    def first(self, k: int) -> Neighborhood:
        """Keep the k nearest of each query."""
        return self._each(lambda table: table[:, :k])

    def rows(self, index: Int[Tensor, "r"]) -> Neighborhood:
        """Keep some queries."""
        return self._each(lambda table: table.index_select(0, index))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Neighborhood:
        valid = None if self.valid is None else change(self.valid)
        distance = None if self.distance is None else change(self.distance)
        return Neighborhood(index=change(self.index), valid=valid, distance=distance)


def knn(
    coord: Real[Tensor, "n 3"],
    offsets: Int[Tensor, "b+1"],
    k: int,
    *,
    query: Real[Tensor, "q 3"] | None = None,
    query_offsets: Int[Tensor, "b+1"] | None = None,
) -> Neighborhood:
    """Find the k nearest points of each query's own cloud, exactly.

    Distances are compared in float64, so an order does not change with device, threads or the
    other clouds. A cloud of fewer than k points leaves masked places, which name its first point;
    if it has none, they name row 0. Needs host syncs on a GPU.

    Args:
        coord: metres or voxel numbers, of any dtype and strides.
        offsets: the limits of the clouds.
        k: neighbours a query, at least 1.
        query: where to look from: cloud i of the queries searches cloud i of the points. By
            default the points themselves, each its own first neighbour unless points are equal.
        query_offsets: the limits of the clouds of queries; given with `query` only.

    Raises:
        ValueError: if k is below 1, a shape or offsets do not fit, or a coordinate is not finite.
    """
    k = check_whole("k", k, 1)
    search = partial(search_nearest, limit=math.inf)
    return _find(search, k, math.inf, coord, offsets, query, query_offsets)


def radius(
    coord: Real[Tensor, "n 3"],
    offsets: Int[Tensor, "b+1"],
    r: float,
    max_k: int,
    *,
    query: Real[Tensor, "q 3"] | None = None,
    query_offsets: Int[Tensor, "b+1"] | None = None,
) -> Neighborhood:
    """Find the points within a distance of r, r included: the nearest max_k of them.

    Masked places and the other arguments are those of `knn`.

    Args:
        r: in the unit of coord, above 0; compared in float64.
        max_k: neighbours a query, at least 1.

    Raises:
        ValueError: as `knn`, and if r is not above 0.
    """
    if not r > 0:
        raise ValueError(f"r must be above 0, found {r}")
    max_k = check_whole("max_k", max_k, 1)
    search = partial(search_nearest, limit=r)
    return _find(search, max_k, r, coord, offsets, query, query_offsets)


def plain_knn(
    coord: Real[Tensor, "n 3"],
    offsets: Int[Tensor, "b+1"],
    k: int,
    *,
    query: Real[Tensor, "q 3"] | None = None,
    query_offsets: Int[Tensor, "b+1"] | None = None,
) -> Neighborhood:
    """Do as `knn` by measuring every distance, in chunks: its twin."""
    k = check_whole("k", k, 1)
    return _find(search_all, k, math.inf, coord, offsets, query, query_offsets)


def interpolation_weights(neighborhood: Neighborhood) -> Float[Tensor, "q k"]:
    """Weigh neighbours by 1 / (distance + 1e-8), so that each row sums to 1.

    Masked places weigh 0, and a row of nothing else is 0; where all neighbours are infinitely far,
    they weigh alike. (Qi et al., PointNet++, 2017, eq. 2,
    with p = 1, as in the decoder of Zhao et al., Point Transformer, 2021.)

    Raises:
        ValueError: if the neighbourhood has no distances.
    """
    if neighborhood.distance is None:
        raise ValueError("neighborhood.distance must be given to weigh by it, found None")
    distance = neighborhood.distance
    # float16 holds no 1e-8.
    wide = distance.float() if distance.dtype in (torch.float16, torch.bfloat16) else distance
    closeness = 1 / (wide + _SOFTENING)
    real = torch.ones_like(wide)
    if neighborhood.valid is not None:
        real = real.masked_fill(~neighborhood.valid, 0)
        closeness = closeness.masked_fill(~neighborhood.valid, 0)
    closeness = torch.where((closeness > 0).any(1, keepdim=True), closeness, real)
    total = closeness.sum(1, keepdim=True)
    return (closeness / total.masked_fill(total == 0, 1)).to(distance.dtype)


_Search = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
"""Points, queries and k in; k rows a query and their squared distances out, nearest first."""


def _find(
    search: _Search,
    k: int,
    limit: float,
    coord: Tensor,
    offsets: Tensor,
    query: Tensor | None,
    query_offsets: Tensor | None,
) -> Neighborhood:
    """Search cloud by cloud, and mask what is missing or beyond the limit."""
    if (query is None) != (query_offsets is None):
        raise ValueError("query and query_offsets must be given together, found one of them")
    starts, points = _checked("coord", coord, "offsets", offsets)
    query_starts, queries = starts, points
    if query is not None and query_offsets is not None:
        query_starts, queries = _checked("query", query, "query_offsets", query_offsets)
    if len(starts) != len(query_starts):
        raise ValueError(
            f"query_offsets must have as many clouds as offsets, found {len(query_starts) - 1} "
            f"and {len(starts) - 1}"
        )
    shape, device = (len(queries), k), points.device
    index = torch.zeros(shape, dtype=torch.int64, device=device)
    valid = torch.zeros(shape, dtype=torch.bool, device=device)
    dtype = coord.dtype if coord.is_floating_point() else torch.float32
    distance = torch.full(shape, math.inf, dtype=dtype, device=device)
    for (start, end), (first, last) in zip(pairwise(starts), pairwise(query_starts), strict=True):
        if start == end or first == last:
            continue
        found, d2 = search(points[start:end], queries[first:last], min(k, end - start))
        far = d2.sqrt()
        real = far <= limit
        index[first:last] = start
        index[first:last, : found.shape[1]] += found.masked_fill(~real, 0)
        valid[first:last, : found.shape[1]] = real
        distance[first:last, : found.shape[1]] = far.masked_fill(~real, math.inf)
    return Neighborhood(index=index, valid=None if valid.all() else valid, distance=distance).to(
        coord.device
    )


def _checked(
    name: str, coord: Tensor, offsets_name: str, offsets: Tensor
) -> tuple[list[int], Tensor]:
    """Return the limits of clouds and their points in float64, if they fit."""
    if coord.ndim != 2 or coord.shape[1] != 3:
        raise ValueError(f"{name} must be (n, 3), found {tuple(coord.shape)}")
    starts = check_offsets(offsets.cpu(), len(coord), offsets_name).tolist()
    # No float64 on the GPUs of Apple.
    device = coord.device if coord.is_cuda else "cpu"
    points = coord.detach().to(device).to(torch.float64)
    usual = (points.abs() < _LARGEST).all(1)
    if not usual.all():
        row = int(usual.logical_not().nonzero()[0])
        raise ValueError(
            f"{name} must be finite, and below {_LARGEST:g} in size, found {points[row].tolist()} "
            f"in row {row}; leave such points out"
        )
    return starts, points
