"""Pooling: which fine rows merge into which coarse row, by cubic cells.

n fine rows, m coarse rows, b clouds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int, Real
from torch import Tensor

from pctx.geometry.checks import check_grid_coord, check_offsets, check_whole
from pctx.geometry.curves import MAX_DEPTH
from pctx.geometry.grid import too_wide
from pctx.geometry.packed import batch_from_offsets, from_corner, segment_mean, segment_min
from pctx.geometry.sorting import argsort_pairs, changes, places


@dataclass(frozen=True, kw_only=True, eq=False)
class Pooling:
    """A partition of fine rows into clusters, each one coarse row.

    Attributes:
        cluster: the coarse row of each fine row.
        order: the fine rows, sorted by cluster; a gather by it makes clusters segments.
        starts: cluster i owns order[starts[i] : starts[i + 1]], never empty.
    """

    cluster: Int[Tensor, "n"]
    order: Int[Tensor, "n"]
    starts: Int[Tensor, "m+1"]

    @property
    def num_coarse(self) -> int:
        """The number of coarse rows."""
        return len(self.starts) - 1

    def to(self, device: torch.device | str) -> Pooling:
        """Copy every tensor to a device."""
        return Pooling(
            cluster=self.cluster.to(device, non_blocking=True),
            order=self.order.to(device, non_blocking=True),
            starts=self.starts.to(device, non_blocking=True),
        )


def merge_runs(
    order: Int[Tensor, "n"], head: Bool[Tensor, "n"], inverse: Int[Tensor, "n"] | None = None
) -> Pooling:
    """Merge the runs of an order. Syncs with the host: how many there are.

    Args:
        order: the fine rows.
        head: whether a place of the order begins a run.
        inverse: the place of each fine row, where it is known.
    """
    begin, run = places(head), torch.cumsum(head, 0) - 1
    return Pooling(
        cluster=torch.empty_like(order).scatter_(0, order, run)
        if inverse is None
        else run.index_select(0, inverse),
        order=order,
        starts=torch.cat([begin, begin.new_full((1,), len(order))]),
    )


def voxel_pooling(
    coord: Real[Tensor, "n 3"], offsets: Int[Tensor, "b+1"], size: float
) -> tuple[Pooling, Int[Tensor, "b+1"]]:
    """Merge the points of each cube of edge `size`: the pooling, and the coarse clouds' limits.

    A cell is floor((coord - minimum of its cloud) / size). Coarse rows ascend by cloud, z, y, x.
    float32 is subtracted and divided in float32, as published weights were trained (unlike
    `voxelize`, which divides in float64), any other dtype in float64. (Partition-based pooling of
    Wu et al., Point Transformer V2, 2022, section 3.4.)

    Args:
        coord: positions, all finite; or voxel numbers.
        offsets: the limits of the clouds.
        size: in the unit of coord, any number above 0.

    Raises:
        ValueError: if size is not one positive number, a coordinate is not finite, an axis needs
            more than 21 bits, or offsets do not fit.
    """
    if not 0 < size < math.inf:
        raise ValueError(f"size must be one number above 0, found {size}")
    offsets = check_offsets(offsets, len(coord))
    batch = batch_from_offsets(offsets, len(coord))
    wide = coord.detach() if coord.dtype == torch.float32 else coord.detach().double()
    planes = from_corner(wide, offsets, batch).t().contiguous()
    # A number would do on the CPU, but CUDA multiplies by a number's rounded reciprocal.
    cells = planes.div_(torch.full_like(planes[:, :1], size)).floor_()
    extents = _extents(cells)
    if not all(extent < 1 << MAX_DEPTH for extent in extents):
        _raise_too_wide(coord, offsets, size, extents)
    x, y, z = cells.long().unbind()
    return _merge((z, y, x), [int(extent) for extent in reversed(extents)], offsets, batch)


def stride_pooling(
    grid_coord: Int[Tensor, "n 3"], offsets: Int[Tensor, "b+1"], stride: int
) -> tuple[Pooling, Int[Tensor, "b+1"], Int[Tensor, "m 3"]]:
    """Merge the voxels of each cube of stride**3: the pooling, and the coarse clouds.

    Coarse voxels are floor(grid_coord / stride), negative ones too, so that where the cubes begin
    does not depend on the cloud. They ascend by cloud, x, y, z.

    Args:
        grid_coord: voxel numbers, any integers.
        offsets: the limits of the clouds.
        stride: voxels an axis, any integer from 2.

    Returns:
        The pooling, the limits of the coarse clouds, and their voxel numbers.

    Raises:
        ValueError: if stride is below 2, an axis needs more than 21 bits, or a shape or offsets do
            not fit.
    """
    stride = check_whole("stride", stride, 2)
    check_grid_coord(grid_coord)
    offsets = check_offsets(offsets, len(grid_coord))
    batch = batch_from_offsets(offsets, len(grid_coord))
    cells = torch.div(grid_coord.long(), stride, rounding_mode="floor")
    planes = from_corner(cells, offsets, batch).t().contiguous()
    extents = [int(extent) for extent in _extents(planes)]
    if max(extents) >= 1 << MAX_DEPTH:
        # One cell of slack, as a cloud need not begin at the edge of a cube.
        enough = -(-(max(extents) + 1) * stride // ((1 << MAX_DEPTH) - 2))
        raise ValueError(
            f"stride {stride} leaves clouds of up to {max(extents) + 1} voxels an axis, which take "
            f"{max(extents).bit_length()} bits, more than {MAX_DEPTH}; remove far outliers or use "
            f"a stride of at least {enough}"
        )
    pooling, coarse_offsets = _merge(planes.unbind(), extents, offsets, batch)
    first = pooling.order.index_select(0, pooling.starts[:-1])
    return pooling, coarse_offsets, cells.index_select(0, first)


def nearest_to_mean(coord: Real[Tensor, "n 3"], pooling: Pooling) -> Int[Tensor, "m"]:
    """Return the fine row that stands for each cluster: the nearest to its mean position.

    Of equally near ones it is the first in the pooling's order. Measured in float64. (As released
    with Yang et al., Swin3D, 2023.)
    """
    rows = coord.double().index_select(0, pooling.order)
    cluster = pooling.cluster.index_select(0, pooling.order)
    mean = segment_mean(rows, pooling.starts).index_select(0, cluster)
    far = (rows - mean).square().sum(1, keepdim=True)
    least = segment_min(far, pooling.starts).index_select(0, cluster)
    nearest = places((far == least).squeeze(1))  # a host sync
    first = places(changes(cluster.index_select(0, nearest)))
    return pooling.order.index_select(0, nearest.index_select(0, first))


def _extents(cells: Tensor) -> list[float]:
    """Return the largest cell on each axis, of all clouds. Syncs with the host."""
    return cells.amax(1).tolist() if cells.shape[1] else [0, 0, 0]


def _merge(
    axes: Sequence[Tensor], extents: Sequence[int], offsets: Tensor, batch: Tensor
) -> tuple[Pooling, Tensor]:
    """Merge rows of one cloud and cell; coarse rows ascend by cloud, then by axis after axis.

    Args:
        axes: int64 cell numbers from 0, the axis that counts most first.
        extents: the largest number on each.
        offsets: the limits of the clouds.
        batch: the cloud of each row.
    """
    bits = [extent.bit_length() for extent in extents]
    key = axes[0]
    for axis, width in zip(axes[1:], bits[1:], strict=True):
        key = (key << width) | axis
    b = len(offsets) - 1
    order = argsort_pairs(batch, max(b - 1, 0).bit_length(), key, sum(bits))
    # Clouds are packed one after another, so sorting by cloud leaves `batch` as it is.
    head = changes(key.index_select(0, order)) | changes(batch)
    pooling = merge_runs(order, head)
    return pooling, torch.searchsorted(pooling.starts[:-1], offsets)


def _raise_too_wide(coord: Tensor, offsets: Tensor, size: float, extents: Sequence[float]) -> None:
    finite = torch.isfinite(coord).all(1)
    if not finite.all():
        count = int((~finite).sum())
        raise ValueError(f"{count} of {len(coord)} points are not finite; drop them first")
    extent = float(from_corner(coord.double(), offsets).max())
    raise too_wide(extent, max(extents), "size", size)
