"""Columns: packed voxels sorted by cloud, x, y and then z, so that a neighbour is found by search.

n voxels, b clouds, m columns (voxels of one cloud, x and y).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from pctx.geometry.checks import check_grid_coord, check_offsets
from pctx.geometry.curves import MAX_DEPTH
from pctx.geometry.packed import batch_from_offsets, cloud_minimum
from pctx.geometry.sorting import WORD_BITS, argsort_pairs, changes, places, search


@dataclass(frozen=True, kw_only=True, eq=False)
class Columns:
    """Sorted voxels, with a margin below each axis that keeps neighbours from wrapping round.

    Attributes:
        order: the row at each sorted place.
        number: of each column, ascending; columns one y apart differ by 1, one x apart by `row`.
        first: the first place of each column.
        rank: the column of each place.
        key: rank * height + z of each place, ascending.
        width: numbers of x, the margin included.
        row: numbers of y, likewise.
        height: levels of z, likewise.
    """

    order: Int[Tensor, "n"]
    number: Int[Tensor, "m"]
    first: Int[Tensor, "m"]
    rank: Int[Tensor, "n"]
    key: Int[Tensor, "n"]
    width: int
    row: int
    height: int


def sort_into_columns(
    grid_coord: Int[Tensor, "n 3"], offsets: Int[Tensor, "b+1"], radius: int, dilation: int = 1
) -> Columns:
    """Sort the voxels of each cloud by x, y and z.

    Args:
        grid_coord: voxel numbers, any integers, at most 2**21 voxels an axis and cloud.
        offsets: the limits of the clouds.
        radius: the margin: the farthest neighbour that will be looked for, in steps.
        dilation: voxels a step. Voxels whose coordinates differ modulo the dilation never meet,
            so they are columns of different clouds, numbered in steps.

    Raises:
        ValueError: if a cloud is too large, if there are too many clouds and phases of the dilation
            to number their columns, if a shape or offsets do not fit, and, on the CPU, if two
            voxels are equal.
    """
    check_grid_coord(grid_coord)
    n, b = len(grid_coord), len(offsets) - 1
    offsets = check_offsets(offsets, n)
    batch: Tensor | int = 0 if b == 1 else batch_from_offsets(offsets, n)
    cells = grid_coord.long() - cloud_minimum(grid_coord, offsets)[batch]
    if dilation > 1:
        phase = cells % dilation
        cells = cells // dilation
        for axis in range(3):
            batch = batch * dilation + phase[:, axis]
        b *= dilation**3
    width, row, height = (most + 1 + radius for most in _largest(cells))
    if (b * width * row).bit_length() > WORD_BITS:
        raise ValueError(
            f"dilation {dilation} parts the voxels into {b} clouds of {width} x {row} columns, too "
            f"many for {WORD_BITS} bits; use a smaller dilation, or fewer clouds at a time"
        )
    x, y, z = (cells + radius).unbind(1)
    number = (batch * width + x) * row + y
    order = argsort_pairs(number, (b * width * row).bit_length(), z, height.bit_length())
    number, z = number.index_select(0, order), z.index_select(0, order)
    head = changes(number)
    first = places(head)
    rank = torch.cumsum(head, 0) - 1
    key = rank * height + z
    # Checked where that costs no transfer.
    if key.device.type == "cpu" and bool((key[1:] == key[:-1]).any()):
        twice = int((key[1:] == key[:-1]).sum())
        raise ValueError(
            f"grid_coord has {twice} of {n} rows equal to another of their cloud; keep one point "
            "a voxel, as voxelize() does"
        )
    return Columns(
        order=order,
        number=number.index_select(0, first),
        first=first,
        rank=rank,
        key=key,
        width=width,
        row=row,
        height=height,
    )


def find(
    columns: Columns, number: Int[Tensor, "q"], rank: Int[Tensor, "n"], z: Int[Tensor, "n"]
) -> Int[Tensor, "n"]:
    """Return the rows at height z of the columns number[rank], or -1 where there is none.

    Args:
        columns: the voxels to find.
        number: of q columns, which may not exist.
        rank: into `number`.
        z: from 0 to height - 1.
    """
    if len(columns.order) == 0:
        return torch.full_like(z, -1)
    near = search(columns.number, number).clamp(max=len(columns.number) - 1)
    there = columns.number[near] == number
    key = near[rank] * columns.height + z
    place = search(columns.key, key).clamp(max=len(columns.key) - 1)
    return torch.where(there[rank] & (columns.key[place] == key), columns.order[place], -1)


def _largest(cells: Tensor) -> list[int]:
    """Return the largest cell on each axis. Syncs with the host."""
    if len(cells) == 0:
        return [0, 0, 0]
    low, high = torch.stack(torch.aminmax(cells, dim=0)).tolist()
    # Below 0 where a difference of two int64 has wrapped.
    if min(low) < 0 or max(high) >= 1 << MAX_DEPTH:
        found = "over 2**63" if min(low) < 0 else max(high) + 1
        raise ValueError(
            f"grid_coord spans {found} voxels an axis in a cloud, more than 2**{MAX_DEPTH}; remove "
            "far outliers or use a larger grid_size"
        )
    return [int(most) for most in high]
