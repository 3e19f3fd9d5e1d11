"""Octrees: points, the leaves they lie in, and the nodes above, all along the z-curve.

Only nodes that hold points are kept. (Wang et al., O-CNN, 2017; its sorted shuffled keys are the
codes of the z-curve.)

n points, b clouds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pctx.geometry.curves import MAX_DEPTH
from pctx.geometry.hierarchy import Level
from pctx.geometry.kernel_map import KernelMap
from pctx.geometry.packed import batch_from_offsets, from_corner, segment_mean
from pctx.geometry.points import PointBatch
from pctx.geometry.pooling import merge_runs
from pctx.geometry.serialization import serialize
from pctx.geometry.sorting import changes
from pctx.geometry.strided_map import strided_map


def voxel_leaves(points: PointBatch) -> Int[Tensor, "n 3"]:
    """Take voxels as leaves, counted from the lowest corner of each cloud; any extent will do."""
    return from_corner(points.grid_coord.long(), points.offsets)


def cube_leaves(coord: Float[Tensor, "n 3"], scale: float, depth: int) -> Int[Tensor, "n 3"]:
    """Cut the cube from -scale to scale into 2**depth leaves an axis, and tell each point's.

    Computed in the dtype of coord, as published weights were trained.

    Args:
        coord: metres.
        scale: half the edge of the cube, in metres, above 0.
        depth: levels of the octree, from 1 to 21.

    Raises:
        ValueError: if a point is not in the cube, whose upper faces are not part of it, or if scale
            or depth are out of range.
    """
    if not 0 < scale < math.inf:
        raise ValueError(f"scale must be one number above 0 metres, found {scale}")
    if depth not in range(1, MAX_DEPTH + 1):
        raise ValueError(f"depth must be from 1 to {MAX_DEPTH} levels, found {depth}")
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
    level = Level(coord=points.coord, grid_coord=leaf, offsets=along_z.offsets)
    cell, batch = leaf, batch_from_offsets(points.offsets, len(points))
    levels = []
    for _ in range(count):
        pooling = merge_runs(order, changes(code) | changes(batch))  # a host sync
        begin = pooling.starts[:-1]
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
