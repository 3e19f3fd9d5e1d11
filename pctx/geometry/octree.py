"""Octrees: points, the leaves they lie in, and the nodes above, all along the z-curve.

Only nodes that hold points are kept. (Wang et al., O-CNN, 2017; its sorted shuffled keys are the
codes of the z-curve.)

n points, b clouds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pctx.geometry.hierarchy import Level
from pctx.geometry.kernel_map import KernelMap
from pctx.geometry.packed import batch_from_offsets, cloud_minimum, segment_mean
from pctx.geometry.points import PointBatch
from pctx.geometry.pooling import Pooling
from pctx.geometry.serialization import serialize
from pctx.geometry.sorting import changes, places
from pctx.geometry.strided_map import strided_map


def voxel_leaves(points: PointBatch) -> Int[Tensor, "n 3"]:
    """Take voxels as leaves, counted from the lowest corner of each cloud; any extent will do."""
    cells = points.grid_coord.long()
    batch = batch_from_offsets(points.offsets, len(points))
    return cells - cloud_minimum(cells, points.offsets).index_select(0, batch)


def cube_leaves(coord: Float[Tensor, "n 3"], scale: float, depth: int) -> Int[Tensor, "n 3"]:
    """Cut the cube from -scale to scale into 2**depth leaves an axis, and tell each point's.

    Computed in the dtype of coord, as published weights were trained.

    Args:
        coord: metres.
        scale: half the edge of the cube, in metres, above 0.
        depth: levels of the octree, from 1 to 21.

    Raises:
        ValueError: if a point is not in the cube; the upper faces are not part of it.
    """
    place = (coord / scale + 1.0) * 2 ** (depth - 1)
    inside = ((place >= 0) & (place < 2**depth)).all(1)
    if not inside.all():  # a host sync
        raise ValueError(
            f"{int((~inside).sum())} of {len(coord)} points are outside the octree, which reaches "
            f"{scale:g} m from the origin along each axis; centre the clouds or use a larger scale"
        )
    return place.long()


def octree_levels(points: PointBatch, leaf: Int[Tensor, "n 3"], count: int) -> list[Level]:
    """Group points into leaves, and those into nodes: bare levels, each pooled into the next.

    Level 0 has the rows of the batch, in their order; level i, from 1 to `count`, has the nodes of
    2**(i - 1) leaves an axis, ascending by cloud and by code along the z-curve. The position of a
    node is the mean of those it is made of.

    Args:
        points: the packed clouds.
        leaf: the leaf of each point, from 0 to 2**21 - 1 on each axis.
        count: levels of nodes, at least 1.

    Raises:
        ValueError: if a leaf's number is too large.
    """
    corner = leaf.new_zeros(points.num_clouds, 3)
    along_z = serialize(leaf, points.offsets, ("z",), origin=corner)
    order = along_z.order[0]
    code = along_z.codes[0].index_select(0, order)
    level = Level(coord=points.coord, grid_coord=leaf, offsets=points.offsets)
    cell, batch = leaf, batch_from_offsets(points.offsets, len(points))
    levels = []
    for _ in range(count):
        head = changes(code) | changes(batch)
        begin = places(head)  # a host sync: how many nodes there are
        pooling = Pooling(
            cluster=torch.empty_like(order).scatter_(0, order, torch.cumsum(head, 0) - 1),
            order=order,
            starts=torch.cat([begin, begin.new_full((1,), len(order))]),
        )
        levels.append(replace(level, pooling=pooling))
        level = Level(
            coord=segment_mean(level.coord.index_select(0, order), pooling.starts),
            grid_coord=cell.index_select(0, order.index_select(0, begin)),
            offsets=torch.searchsorted(begin, level.offsets),
        )
        # Their parents:
        cell, code = level.grid_coord >> 1, code.index_select(0, begin) >> 3
        batch = batch.index_select(0, begin)
        order = torch.arange(len(begin), device=begin.device)
    return [*levels, level]


def parent_maps(level: Level, parent: Level, kernel_sizes: Sequence[int]) -> dict[int, KernelMap]:
    """Map kernels from the nodes of a level to their parents, by size, as O-CNN aligns them.

    A kernel of 2 covers the children of a node; one of 3 also reaches the last of the neighbours
    before it.
    """
    return {
        size: strided_map(
            level.grid_coord,
            level.offsets,
            parent.grid_coord,
            parent.offsets,
            kernel_size=size,
            stride=2,
            padding=(size - 1) // 2,
        )
        for size in kernel_sizes
    }
