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
from pctx.geometry.packed import batch_from_offsets
from pctx.geometry.pooling import Pooling
from pctx.geometry.sorting import argsort_clouds


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
    cells = grid_coord.long()
    cells = cells - (cloud_minimum(cells, offsets) if origin is None else origin)[batch]
    largest = _cloud_extreme(cells, batch, b, "amax").amax(1)
    if depth is None:
        depth = bit_length(largest + 1).clamp(max=MAX_DEPTH)
    depth = torch.as_tensor(depth, device=offsets.device).expand(b)
    # The one host sync: the levels to read, and whether the clouds lie inside their cubes.
    levels, beyond = (
        torch.stack([depth.amax(), (largest >> depth).amax()]).tolist() if b else (0, 0)
    )
    if beyond:
        extent = int(largest.amax()) + 1
        raise ValueError(
            f"a cloud spans {extent} voxels on an axis, more than its curve holds "
            f"(depth {depth.tolist()}, at most {MAX_DEPTH}); use a larger depth or grid_size"
        )
    codes = encode_curves(cells, levels, curves, own_depth=depth[batch])
    order = torch.stack([argsort_clouds(code, 3 * levels, batch, b) for code in codes])
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
        ValueError: if stride is not a power of two above 1.
    """
    if stride < 2 or stride & (stride - 1):
        raise ValueError(f"stride must be a power of two above 1, found {stride}")
    levels = stride.bit_length() - 1
    order, offsets = serialization.order, serialization.offsets
    n = order.shape[1]
    first_order = order[0]
    cell = serialization.codes[0][first_order] >> (3 * levels)
    head = torch.ones(n, dtype=torch.bool, device=order.device)
    batch = batch_from_offsets(offsets, n)
    head[1:] = (cell[1:] != cell[:-1]) | (batch[1:] != batch[:-1])
    begin = head.nonzero().squeeze(1)
    rank = torch.cumsum(head, 0) - 1
    cluster = torch.empty_like(rank)
    cluster[first_order] = rank
    starts = torch.cat([begin, begin.new_full((1,), n)])
    coarse_orders = [torch.arange(len(begin), device=order.device)]
    for k in range(1, len(order)):
        along = cluster[order[k]]
        head = torch.ones(n, dtype=torch.bool, device=order.device)
        head[1:] = along[1:] != along[:-1]
        coarse_orders.append(along[head])
    coarse_order = torch.stack(coarse_orders)
    coarse = replace(
        serialization,
        codes=serialization.codes[:, first_order[begin]] >> (3 * levels),
        order=coarse_order,
        inverse=_inverted(coarse_order),
        offsets=torch.searchsorted(begin, offsets),
        depth=(serialization.depth - levels).clamp(min=0),
    )
    return coarse, Pooling(cluster=cluster, order=first_order, starts=starts)


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


def cloud_minimum(
    grid_coord: Int[Tensor, "n 3"], offsets: Int[Tensor, "b+1"]
) -> Int[Tensor, "b 3"]:
    """Return the smallest coordinate of each cloud on each axis; 0 for an empty cloud."""
    batch = batch_from_offsets(offsets, len(grid_coord))
    return _cloud_extreme(grid_coord.long(), batch, len(offsets) - 1, "amin")


def bit_length(value: Int[Tensor, "b"]) -> Int[Tensor, "b"]:
    """Return how many bits non-negative integers take: 0 for 0."""
    powers = 2 ** torch.arange(63, device=value.device)
    return (value[:, None] >= powers).sum(1)


def _cloud_extreme(cells: Tensor, batch: Tensor, b: int, reduce: str) -> Tensor:
    if b == 1 and len(cells):
        return getattr(cells, reduce)(0, keepdim=True)
    return cells.new_zeros(b, 3).scatter_reduce(
        0, batch[:, None].expand(-1, 3), cells, reduce, include_self=False
    )


def _inverted(order: Tensor) -> Tensor:
    ranks = torch.arange(order.shape[1], device=order.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, ranks)
