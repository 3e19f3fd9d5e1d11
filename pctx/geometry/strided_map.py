"""The kernel map of a strided convolution, from the voxels of a level to those of a coarser one.

n voxels, m coarse voxels, b clouds.
"""

from __future__ import annotations

from itertools import accumulate

import torch
from jaxtyping import Int
from torch import Tensor

from pctx.geometry.checks import check_grid_coord, check_offsets, check_whole
from pctx.geometry.columns import find, sort_into_columns
from pctx.geometry.kernel_map import KernelMap
from pctx.geometry.packed import batch_from_offsets, cloud_minimum
from pctx.geometry.sorting import places, stable_sort


def strided_map(
    grid_coord: Int[Tensor, "n 3"],
    offsets: Int[Tensor, "b+1"],
    coarse_coord: Int[Tensor, "m 3"],
    coarse_offsets: Int[Tensor, "b+1"],
    *,
    kernel_size: int,
    stride: int,
    padding: int = 0,
) -> KernelMap:
    """Pair the coarse voxel (X, Y, Z) as target with its cloud's voxels stride * X - padding + i.

    Tap (i * k + j) * k + l, with k = kernel_size, reads the voxel (stride * X - padding + i,
    stride * Y - padding + j, stride * Z - padding + l), as dense convolutions of that stride and
    padding do; voxels under no tap are read by none. The same map, turned round, is that of the
    transposed convolution.

    Args:
        grid_coord: voxel numbers, no two of a cloud equal.
        offsets: the limits of the clouds.
        coarse_coord: voxel numbers of the coarser level, on the same origin; no two of a cloud
            are equal.
        coarse_offsets: the limits of the same clouds.
        kernel_size: taps an axis.
        stride: voxels an axis to a coarse one, at least 2.
        padding: voxels that the kernel reaches back.

    Raises:
        ValueError: if kernel_size, stride or padding is too small, if the levels disagree in how
            many clouds there are, if a shape or offsets do not fit, and, on the CPU, if two coarse
            voxels are equal.
    """
    kernel_size = check_whole("kernel_size", kernel_size, 1)
    stride, padding = check_whole("stride", stride, 2), check_whole("padding", padding, 0)
    check_grid_coord(grid_coord)
    check_grid_coord(coarse_coord, "coarse_coord")
    offsets = check_offsets(offsets, len(grid_coord))
    coarse_offsets = check_offsets(coarse_offsets, len(coarse_coord), "coarse_offsets")
    if len(offsets) != len(coarse_offsets):
        raise ValueError(
            f"offsets has {len(offsets) - 1} clouds and coarse_offsets {len(coarse_offsets) - 1}"
        )
    n, m = len(grid_coord), len(coarse_coord)
    batch = batch_from_offsets(offsets, n)
    columns = sort_into_columns(coarse_coord, coarse_offsets, 0)
    size = torch.tensor([columns.width, columns.row, columns.height], device=grid_coord.device)
    origin = cloud_minimum(coarse_coord, coarse_offsets).index_select(0, batch)
    ahead = grid_coord.long() + padding
    cells = [(ahead - tap) // stride - origin for tap in range(kernel_size)]
    fits = [
        ((ahead - tap) % stride == 0) & (cell >= 0) & (cell < size)
        for tap, cell in enumerate(cells)
    ]
    sources, targets = [], []
    for tap in range(kernel_size**3):
        i, rest = divmod(tap, kernel_size**2)
        j, k = divmod(rest, kernel_size)
        row = places(fits[i][:, 0] & fits[j][:, 1] & fits[k][:, 2])
        number = batch[row] * columns.width + cells[i][row, 0]
        number = number * columns.row + cells[j][row, 1]
        target = find(columns, number, torch.arange(len(row), device=row.device), cells[k][row, 2])
        met = places(target >= 0)
        target, order = stable_sort(target[met], m.bit_length())
        sources.append(row[met[order]])
        targets.append(target)
    return KernelMap(
        source=torch.cat(sources),
        target=torch.cat(targets),
        starts=tuple(accumulate((len(target) for target in targets), initial=0)),
        kernel_size=kernel_size,
        num_sources=n,
        num_targets=m,
        stride=stride,
    )
