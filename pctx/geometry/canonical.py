"""Rows in an order of their own: plans that break ties by row, whatever order the points come in.

n points, b clouds, k neighbours a point.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from pctx.geometry.hierarchy import Level
from pctx.geometry.neighbors import Neighborhood
from pctx.geometry.packed import batch_from_offsets, from_corner
from pctx.geometry.points import PointBatch
from pctx.geometry.serialization import serialize


def level_as_given(points: PointBatch) -> Level:
    """Return the points as a bare level, row by row."""
    return Level(coord=points.coord, grid_coord=points.grid_coord, offsets=points.offsets)


def canonical_level(points: PointBatch) -> tuple[Level, Int[Tensor, "n"]]:
    """Sort the points of each cloud along the z curve, and put its lowest corner at 0.

    What is planned for such a level depends neither on the order of the points nor, where float32
    holds the coordinates exactly, on translations by whole voxels.

    Returns:
        The level, bare, and for each of its rows that of the batch; see `restore_rows`.
    """
    order = serialize(points.grid_coord, points.offsets, ("z",)).order[0]
    batch = batch_from_offsets(points.offsets, len(points))

    def at_corner(position: Tensor) -> Tensor:
        return from_corner(position, points.offsets, batch).index_select(0, order)

    level = Level(
        coord=at_corner(points.coord),
        grid_coord=at_corner(points.grid_coord.long()),
        offsets=points.offsets,
    )
    return level, order


def restore_rows(level: Level, order: Int[Tensor, "n"]) -> Level:
    """Bring a level, planned for sorted rows, back to the rows as they were.

    Args:
        level: without windows and kernel maps.
        order: the former row of each.
    """
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))

    def renamed(around: Neighborhood) -> Neighborhood:
        return replace(around, index=order.take(around.index))

    neighbors, pooling, sampled = level.neighbors, level.pooling, level.sampled
    near, around = level.nearest_coarse, level.nearest_fine
    if pooling is not None:
        cluster = pooling.cluster.index_select(0, rank)
        pooling = replace(pooling, cluster=cluster, order=order.take(pooling.order))
    return replace(
        level,
        coord=level.coord.index_select(0, rank),
        grid_coord=level.grid_coord.index_select(0, rank),
        neighbors=None if neighbors is None else renamed(neighbors).rows(rank),
        pooling=pooling,
        sampled=None if sampled is None else order.take(sampled),
        nearest_coarse=None if near is None else near.rows(rank),
        nearest_fine=None if around is None else renamed(around),
    )
