"""Serialization: packed clouds ordered along space-filling curves, and its coarsening.

n points, m coarse points, b clouds, o curves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from pctx.geometry.checks import check_grid_coord, check_offsets, first_few
from pctx.geometry.curves import MAX_DEPTH, encode_curves, scramble, unscramble
from pctx.geometry.packed import batch_from_offsets, cloud_maximum, cloud_minimum
from pctx.geometry.pooling import Pooling, merge_runs
from pctx.geometry.sorting import argsort_pairs, bit_length, changes

PLAIN = "plain"
"""The order of the rows as they come, beside the curves of `geometry.curves`."""

RANDOM = "random"
"""The curve without locality; `seed` says which."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Serialization:
    """The order of packed points along each of several curves.

    Attributes:
        codes: the place of each point on its own cloud's curve; the cloud is not part of it. Along
            `plain`, the row within the cloud.
        order: the points cloud by cloud, ascending by code, equal codes by row.
        inverse: the rank of each point in that order.
        curves: the name of each row.
        offsets: (b + 1,) the limits of the clouds.
        depth: (b,) levels of each cloud's curve.
        seed: which of the random curves `random` is.
    """

    codes: Int[Tensor, "o n"]
    order: Int[Tensor, "o n"]
    inverse: Int[Tensor, "o n"]
    curves: tuple[str, ...]
    offsets: Int[Tensor, "b+1"]
    depth: Int[Tensor, "b"]
    seed: int = 0


def serialize(
    grid_coord: Int[Tensor, "n 3"],
    offsets: Int[Tensor, "b+1"],
    curves: Sequence[str],
    depth: int | Int[Tensor, "b"] | None = None,
    *,
    origin: Int[Tensor, "b 3"] | None = None,
    seed: int = 0,
) -> Serialization:
    """Order packed points along curves; a cloud's order does not depend on the other clouds.

    Args:
        grid_coord: voxel numbers, any integers of any dtype and strides.
        offsets: the limits of the clouds.
        curves: names as `geometry.curves` reads them, or `plain`; at least one.
        depth: levels, one number for all clouds or one a cloud; by default the bit length of
            (the largest coordinate of the cloud + 1), at most 21. (The order along a Hilbert curve
            depends on the depth modulo 3.)
        origin: the voxel where each cloud's curve starts; by default the cloud's minimum, so that
            whole-voxel translations change nothing.
        seed: which of the random curves `random` is.

    Raises:
        ValueError: for an unknown curve, if a cloud reaches beyond its curve's cube: 2**depth
            voxels an axis, at most 2**21, and if a shape or offsets do not fit.
    """
    check_grid_coord(grid_coord)
    n, b = len(grid_coord), len(offsets) - 1
    offsets = check_offsets(offsets, n)
    batch = batch_from_offsets(offsets, n)
    if origin is None:
        origin = cloud_minimum(grid_coord, offsets)
    cells = grid_coord.long() - (origin if b == 1 else origin.index_select(0, batch))
    largest = (cloud_maximum(grid_coord, offsets) - origin).amax(1)
    if depth is None:
        depth = bit_length(largest + 1).clamp(max=MAX_DEPTH)
    depth = torch.as_tensor(depth, device=offsets.device)
    if depth.is_floating_point() or depth.shape not in ((), (1,), (b,)):
        raise ValueError(
            f"depth must be a whole number, or one for each of {b} clouds, found {first_few(depth)}"
        )
    depth = depth.long().expand(b)
    levels, equal = _common_depth(depth, largest)
    # The plain order is no curve: its codes are written over.
    spatial = ["z" if curve == PLAIN else curve for curve in curves]
    own_depth = None if equal else depth.index_select(0, batch)
    codes = encode_curves(cells, levels, spatial, own_depth=own_depth, seed=seed)
    order = torch.empty_like(codes)
    cloud_bits = max(b - 1, 0).bit_length()
    for curve, code, along in zip(curves, codes, order, strict=True):
        if curve == PLAIN:
            _number_rows(code, along, batch, offsets)
        else:
            along.copy_(argsort_pairs(batch, cloud_bits, code, 3 * levels))
    return Serialization(
        codes=codes,
        order=order,
        inverse=inverted(order),
        curves=tuple(curves),
        offsets=offsets,
        depth=depth,
        seed=seed,
    )


def shared_depth(grid_coord: Int[Tensor, "n 3"], offsets: Int[Tensor, "b+1"]) -> Int[Tensor, "1"]:
    """Return one depth that serves all clouds, for `serialize`: that of the largest of them."""
    largest = (cloud_maximum(grid_coord, offsets) - cloud_minimum(grid_coord, offsets)).amax(1)
    deepest = bit_length(largest + 1).clamp(max=MAX_DEPTH)
    return F.pad(deepest, (0, 1)).amax(0, keepdim=True)  # 0 where there are no clouds


def coarsen(serialization: Serialization, stride: int) -> tuple[Serialization, Pooling]:
    """Merge cells of stride**3 voxels: the next level's serialization, and which points merge.

    Equal to serializing the coarse points from origin 0 at the depth that is returned, but nothing
    is sorted: points of one cell are neighbours along every z and Hilbert curve. (Along `random`
    they are not, so that one is sorted.) Coarse points ascend by cloud and the code of the first z
    or Hilbert curve.

    Args:
        serialization: the level to merge.
        stride: voxels an axis, a power of two.

    Raises:
        ValueError: if stride is not a power of two from 2 to 2**21, or if there is neither a z nor
            a Hilbert curve.
    """
    if stride not in (1 << level for level in range(1, MAX_DEPTH + 1)):
        raise ValueError(f"stride must be a power of two from 2 to 2**{MAX_DEPTH}, found {stride}")
    levels = int(stride).bit_length() - 1
    curves, offsets = serialization.curves, serialization.offsets
    leading = next((i for i, curve in enumerate(curves) if curve not in (PLAIN, RANDOM)), None)
    if leading is None:
        raise ValueError(f"to merge cells takes a z or hilbert curve; there is {', '.join(curves)}")
    along = serialization.order[leading]
    batch = batch_from_offsets(offsets, len(along))
    cell = serialization.codes[leading].index_select(0, along) >> (3 * levels)
    pooling = merge_runs(
        along, changes(cell) | changes(batch), serialization.inverse[leading]
    )  # the one host sync
    begin = pooling.starts[:-1]
    first = along.index_select(0, begin)
    # Row by row, which is faster than all at once.
    codes = torch.stack([code.index_select(0, first) for code in serialization.codes])
    coarser = replace(
        serialization,
        codes=codes.bitwise_right_shift_(3 * levels),
        offsets=torch.searchsorted(begin, offsets),
        depth=(serialization.depth - levels).clamp(min=0),
    )
    order = torch.empty_like(coarser.codes)
    for row, curve in enumerate(curves):
        if curve in (PLAIN, RANDOM):
            _order_anew(row, serialization, first, coarser, order[row])
        elif row == leading:
            torch.arange(len(begin), out=order[row])
        else:
            fine = pooling.cluster.index_select(0, serialization.order[row])
            order[row].scatter_(0, torch.cumsum(changes(fine), 0) - 1, fine)
    return replace(coarser, order=order, inverse=inverted(order)), pooling


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


def inverted(order: Int[Tensor, "o n"]) -> Int[Tensor, "o n"]:
    """Return the rank of each point in each order."""
    ranks = torch.arange(order.shape[1], device=order.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, ranks)


def _common_depth(depth: Tensor, largest: Tensor) -> tuple[int, bool]:
    """Return the levels to read for all clouds, and whether they are all alike; check both."""
    if len(depth) == 0:
        return 0, True
    # The one host sync.
    beyond = (largest >> depth.clamp(0, MAX_DEPTH)).amax()
    levels, lowest, beyond, extent = torch.stack(
        [depth.amax(), depth.amin(), beyond, largest.amax() + 1]
    ).tolist()
    if lowest < 0 or levels > MAX_DEPTH:
        raise ValueError(f"depth must be from 0 to {MAX_DEPTH} levels, found {first_few(depth)}")
    if beyond > 0:
        bits = (extent - 1).bit_length()
        if bits <= MAX_DEPTH:
            raise ValueError(
                f"depth {first_few(depth)} does not hold clouds that span up to {extent} voxels an "
                f"axis, which take {bits} bits; use a depth of at least {bits}"
            )
        # One cell of slack, as a cloud need not begin at the edge of a voxel.
        factor = math.ceil(extent / ((1 << MAX_DEPTH) - 2) * 100) / 100
        raise ValueError(
            f"a cloud spans {extent} voxels an axis, which take {bits} bits, more than "
            f"{MAX_DEPTH}; remove far outliers, or use a grid_size at least {factor:g} times as "
            "large"
        )
    return levels, levels == lowest


def _order_anew(
    row: int, fine: Serialization, first: Tensor, coarse: Serialization, order: Tensor
) -> None:
    """Fill in the coarse codes and order of a row along which cells are not contiguous."""
    code = coarse.codes[row]
    batch = batch_from_offsets(coarse.offsets, len(code))
    if coarse.curves[row] == PLAIN:
        _number_rows(code, order, batch, coarse.offsets)
        return
    cell = unscramble(
        fine.codes[row].index_select(0, first), 3 * fine.depth.index_select(0, batch), fine.seed
    )
    levels = fine.depth - coarse.depth
    cell >>= 3 * levels.index_select(0, batch)
    code.copy_(scramble(cell, 3 * coarse.depth.index_select(0, batch), coarse.seed))
    order.copy_(argsort_pairs(batch, len(coarse.depth).bit_length(), code, 3 * MAX_DEPTH))


def _number_rows(code: Tensor, order: Tensor, batch: Tensor, offsets: Tensor) -> None:
    """Fill in the plain order."""
    torch.arange(len(order), out=order)
    torch.sub(order, offsets.index_select(0, batch), out=code)
