"""Serialization: packed clouds ordered along space-filling curves, and its coarsening.

n points, m coarse points, b clouds, o curves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from pctx.geometry.curves import MAX_DEPTH, encode_curves
from pctx.geometry.packed import batch_from_offsets, cloud_maximum, cloud_minimum
from pctx.geometry.pooling import Pooling
from pctx.geometry.sorting import argsort_pairs, changes, places


@dataclass(frozen=True, kw_only=True, eq=False)
class Serialization:
    """The order of packed points along each of several curves.

    Attributes:
        codes: the place of each point on its own cloud's curve; the cloud is not part of it.
        order: the points cloud by cloud, ascending by code, equal codes by row.
        inverse: the rank of each point in that order.
        curves: the name of each row.
        offsets: (b + 1,) the limits of the clouds.
        depth: (b,) levels of each cloud's curve.
    """

    codes: Int[Tensor, "o n"]
    order: Int[Tensor, "o n"]
    inverse: Int[Tensor, "o n"]
    curves: tuple[str, ...]
    offsets: Int[Tensor, "b+1"]
    depth: Int[Tensor, "b"]


def serialize(
    grid_coord: Int[Tensor, "n 3"],
    offsets: Int[Tensor, "b+1"],
    curves: Sequence[str],
    depth: int | Int[Tensor, "b"] | None = None,
    *,
    origin: Int[Tensor, "b 3"] | None = None,
) -> Serialization:
    """Order packed points along curves; a cloud's order does not depend on the other clouds.

    Args:
        grid_coord: voxel numbers, any integers.
        offsets: the limits of the clouds.
        curves: names out of `curves.CURVES`.
        depth: levels, one number for all clouds or one a cloud; by default the bit length of
            (the largest coordinate of the cloud + 1), at most 21. (The order along a Hilbert curve
            depends on the depth modulo 3.)
        origin: the voxel where each cloud's curve starts; by default the cloud's minimum, so that
            whole-voxel translations change nothing.

    Raises:
        ValueError: if a cloud reaches beyond its curve's cube: 2**depth voxels an axis, at most
            2**21.
    """
    n, b = len(grid_coord), len(offsets) - 1
    batch = batch_from_offsets(offsets, n)
    if origin is None:
        origin = cloud_minimum(grid_coord, offsets)
    cells = grid_coord.long() - origin.index_select(0, batch)
    largest = (cloud_maximum(grid_coord, offsets) - origin).amax(1)
    if depth is None:
        depth = bit_length(largest + 1).clamp(max=MAX_DEPTH)
    depth = torch.as_tensor(depth, device=offsets.device).long().expand(b)
    levels = _common_depth(depth, largest)
    codes = encode_curves(cells, levels, curves, own_depth=depth.index_select(0, batch))
    cloud_bits = max(b - 1, 0).bit_length()
    order = torch.stack([argsort_pairs(batch, cloud_bits, code, 3 * levels) for code in codes])
    return Serialization(
        codes=codes,
        order=order,
        inverse=_inverted(order),
        curves=tuple(curves),
        offsets=offsets,
        depth=depth,
    )


def coarsen(serialization: Serialization, stride: int) -> tuple[Serialization, Pooling]:
    """Merge cells of stride**3 voxels: the next level's serialization, and which points merge.

    Nothing is sorted: points of one cell are neighbours in every order. Coarse points ascend by
    cloud and the first curve's code.

    Args:
        serialization: the level to merge.
        stride: voxels an axis, a power of two.

    Raises:
        ValueError: if stride is not a power of two from 2 to 2**21.
    """
    if not 2 <= stride <= 1 << MAX_DEPTH or stride & (stride - 1):
        raise ValueError(f"stride must be a power of two from 2 to 2**{MAX_DEPTH}, found {stride}")
    levels = stride.bit_length() - 1
    first_order, offsets = serialization.order[0], serialization.offsets
    n = len(first_order)
    batch = batch_from_offsets(offsets, n)
    cell = serialization.codes[0].index_select(0, first_order) >> (3 * levels)
    head = changes(cell)
    head[1:] |= batch[1:] != batch[:-1]
    begin = places(head)  # one host sync: how many coarse points there are
    m = len(begin)
    rank = torch.cumsum(head, 0) - 1
    cluster = rank.index_select(0, serialization.inverse[0])
    order = torch.empty(len(serialization.order), m, dtype=torch.int64, device=cell.device)
    torch.arange(m, out=order[0])
    for fine, coarse in zip(serialization.order[1:], order[1:], strict=True):
        along = cluster.index_select(0, fine)
        coarse.scatter_(0, torch.cumsum(changes(along), 0) - 1, along)
    coarser = replace(
        serialization,
        codes=serialization.codes.index_select(1, first_order[begin]) >> (3 * levels),
        order=order,
        inverse=_inverted(order),
        offsets=torch.searchsorted(begin, offsets),
        depth=(serialization.depth - levels).clamp(min=0),
    )
    starts = torch.cat([begin, begin.new_full((1,), n)])
    return coarser, Pooling(cluster=cluster, order=first_order, starts=starts)


def shuffle_curves(serialization: Serialization, generator: torch.Generator) -> Serialization:
    """Permute the curves at random, so that another may come first."""
    rows = torch.randperm(len(serialization.curves), generator=generator, device=generator.device)
    names = rows.tolist()
    rows = rows.to(serialization.codes.device)
    return replace(
        serialization,
        codes=serialization.codes[rows],
        order=serialization.order[rows],
        inverse=serialization.inverse[rows],
        curves=tuple(serialization.curves[i] for i in names),
    )


def bit_length(value: Int[Tensor, "b"]) -> Int[Tensor, "b"]:
    """Return how many bits non-negative integers take: 0 for 0."""
    powers = 2 ** torch.arange(63, device=value.device)
    return (value[:, None] >= powers).sum(1)


def _common_depth(depth: Tensor, largest: Tensor) -> int:
    """Return the levels to read for all clouds, after checking that they lie in their cubes."""
    if len(depth) == 0:
        return 0
    # The one host sync.
    beyond = (largest >> depth.clamp(0, MAX_DEPTH)).amax()
    levels, lowest, beyond, extent = torch.stack(
        [depth.amax(), depth.amin(), beyond, largest.amax() + 1]
    ).tolist()
    if beyond > 0 or lowest < 0 or levels > MAX_DEPTH:
        raise ValueError(
            f"depth {depth.tolist()} does not hold clouds that span up to {extent} voxels an axis: "
            f"2**depth must be at least that, with depth at most {MAX_DEPTH}; use another depth "
            "or a larger grid_size"
        )
    return levels


def _inverted(order: Tensor) -> Tensor:
    ranks = torch.arange(order.shape[1], device=order.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, ranks)
