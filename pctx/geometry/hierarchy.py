"""Level and Hierarchy: the plan a backbone walks, all integers and positions, no features.

n points, m points of the next level, b clouds, o curves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pctx.geometry.kernel_map import KernelMap, kernel_maps
from pctx.geometry.neighbors import Neighborhood, knn
from pctx.geometry.packed import from_corner, segment_mean
from pctx.geometry.points import PointBatch
from pctx.geometry.pooling import Pooling
from pctx.geometry.serialization import (
    Serialization,
    coarsen,
    serialize,
    shuffle_curves,
)
from pctx.geometry.tap_table import TapTable
from pctx.geometry.window_parts import WindowParts
from pctx.geometry.windows import Windows, curve_windows


@dataclass(frozen=True, kw_only=True, eq=False)
class Level:
    """The points of one resolution and how they meet.

    Attributes:
        coord: metres, relative to each cloud's own origin.
        grid_coord: voxel numbers at this resolution.
        offsets: (b + 1,) the limits of the clouds.
        windows: the partitions that the blocks take in turns; in PTv3 one a curve.
        window_parts: each of these, its windows sorted by how full they are.
        neighbors: the points around each point, for attention without windows.
        kernel_maps: by kernel size; tables only in a settled plan, see `flat`.
        strided_maps: to the next level, likewise.
        pooling: to the next level; None at the last.
        sampled: the rows that are the next level, where none are merged.
        nearest_coarse: the points of the next level near each point, to interpolate between.
        nearest_fine: the points of this level near each point of the next.
    """

    coord: Float[Tensor, "n 3"]
    grid_coord: Int[Tensor, "n 3"]
    offsets: Int[Tensor, "b+1"]
    windows: tuple[Windows, ...] = ()
    window_parts: tuple[WindowParts, ...] = ()
    neighbors: Neighborhood | None = None
    kernel_maps: Mapping[int, KernelMap | TapTable] = field(default_factory=dict)
    strided_maps: Mapping[int, KernelMap | TapTable] = field(default_factory=dict)
    pooling: Pooling | None = None
    sampled: Int[Tensor, "m"] | None = None
    nearest_coarse: Neighborhood | None = None
    nearest_fine: Neighborhood | None = None

    @property
    def num_points(self) -> int:
        """The number of points of all clouds."""
        return self.coord.shape[0]

    def to(self, device: torch.device | str) -> Level:
        """Copy every tensor to a device."""
        near, around, sampled = self.nearest_coarse, self.nearest_fine, self.sampled
        return Level(
            coord=self.coord.to(device, non_blocking=True),
            grid_coord=self.grid_coord.to(device, non_blocking=True),
            offsets=self.offsets.to(device, non_blocking=True),
            windows=tuple(windows.to(device) for windows in self.windows),
            window_parts=tuple(parts.to(device) for parts in self.window_parts),
            neighbors=None if self.neighbors is None else self.neighbors.to(device),
            kernel_maps={size: pairs.to(device) for size, pairs in self.kernel_maps.items()},
            strided_maps={size: pairs.to(device) for size, pairs in self.strided_maps.items()},
            pooling=None if self.pooling is None else self.pooling.to(device),
            sampled=None if sampled is None else sampled.to(device, non_blocking=True),
            nearest_coarse=None if near is None else near.to(device),
            nearest_fine=None if around is None else around.to(device),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Hierarchy:
    """Levels from fine to coarse; the first has the rows of the batch it was planned for."""

    levels: tuple[Level, ...]

    def to(self, device: torch.device | str) -> Hierarchy:
        """Copy every tensor to a device."""
        return Hierarchy(levels=tuple(level.to(device) for level in self.levels))


INTERPOLATED = 3
"""Coarse points that a finer one is interpolated between (Qi et al., PointNet++, 2017)."""


def nearest_coarse(fine: Level, coarse: Level) -> Neighborhood:
    """Find the points of the next level that each of a level is to be interpolated between."""
    return knn(
        coarse.coord,
        coarse.offsets,
        INTERPOLATED,
        query=fine.coord,
        query_offsets=fine.offsets,
    )


def serial_hierarchy(
    points: PointBatch,
    *,
    curves: Sequence[str],
    strides: Sequence[int],
    window_sizes: Sequence[int],
    kernel_sizes: Sequence[Sequence[int]],
    depth: int | Int[Tensor, "1"] | None = None,
    smallest: bool = False,
    generator: torch.Generator | None = None,
) -> Hierarchy:
    """Plan a U-Net over serialized points: windows a curve, kernel maps and pooling, a level each.

    Args:
        points: the packed clouds.
        curves: names out of `curves.CURVES`; pooling follows the first.
        strides: between a level and the next, powers of two; one fewer than levels.
        window_sizes: the largest window of each level.
        kernel_sizes: the kernel sizes that each level needs a map for.
        depth: levels of the curves for all clouds; by default each cloud's own.
        smallest: cuts all clouds into windows no larger than the smallest cloud that has points at
            their level, which costs a host sync each.
        generator: shuffles the curves, at each level anew; None keeps their order.

    Raises:
        ValueError: if the lists disagree on the number of levels.
    """
    count = len(strides) + 1
    if len(window_sizes) != count or len(kernel_sizes) != count:
        raise ValueError(
            f"{len(strides)} strides make {count} levels, but window_sizes has "
            f"{len(window_sizes)} and kernel_sizes {len(kernel_sizes)}"
        )
    bare = serial_levels(points, curves=curves, strides=strides, depth=depth, generator=generator)
    return Hierarchy(
        levels=tuple(
            replace(
                level,
                windows=curve_windows(
                    serialization, _limited(window_size, level) if smallest else window_size
                ),
                kernel_maps=kernel_maps(level.grid_coord, level.offsets, sizes),
            )
            for (level, serialization), window_size, sizes in zip(
                bare, window_sizes, kernel_sizes, strict=True
            )
        )
    )


def serial_levels(
    points: PointBatch,
    *,
    curves: Sequence[str],
    strides: Sequence[int],
    depth: int | Int[Tensor, "1"] | None = None,
    generator: torch.Generator | None = None,
) -> list[tuple[Level, Serialization]]:
    """Pool serialized points, level by level: bare levels, each with the order of its points.

    A level has positions and pooling; windows, neighbours and kernel maps are for the caller to
    add. The arguments are those of `serial_hierarchy`.
    """

    def shuffled(serialization: Serialization) -> Serialization:
        return serialization if generator is None else shuffle_curves(serialization, generator)

    cells = from_corner(points.grid_coord.long(), points.offsets)
    serialization = shuffled(serialize(cells, points.offsets, curves, depth))
    coord = points.coord
    levels = []
    for stride in strides:
        coarser, pooling = coarsen(serialization, stride)
        offsets = serialization.offsets
        level = Level(coord=coord, grid_coord=cells, offsets=offsets, pooling=pooling)
        levels.append((level, serialization))
        coord = segment_mean(coord.index_select(0, pooling.order), pooling.starts)
        first = pooling.order[pooling.starts[:-1]]
        cells = cells.index_select(0, first) >> (stride.bit_length() - 1)
        serialization = shuffled(coarser)
    last = Level(coord=coord, grid_coord=cells, offsets=serialization.offsets)
    return [*levels, (last, serialization)]


def _limited(window_size: int, level: Level) -> int:
    counts = level.offsets.diff()
    return min([window_size, *counts[counts > 0].tolist()])
