"""PointTransformerV2: grouped vector attention among nearest neighbours; pooling by cells.

Wu, Lao, Jiang, Liu, Zhao, "Point Transformer V2: Grouped Vector Attention and Partition-based
Pooling", NeurIPS 2022 (arXiv 2210.05666); sections and equations below are its.

n points of a level, m points of the next, c channels, i input channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pctx.geometry.canonical import canonical_level, level_as_given, restore_rows
from pctx.geometry.hierarchy import Hierarchy, Level, nearest_coarse
from pctx.geometry.neighbors import knn
from pctx.geometry.packed import segment_mean
from pctx.geometry.points import PointBatch
from pctx.geometry.pooling import Pooling, voxel_pooling
from pctx.models.arguments import count_levels, per_level, require_entries, require_numbers
from pctx.models.backbone import Backbone
from pctx.models.head import HiddenHead
from pctx.models.unet import DecoderStage, Stage, UNet, rising
from pctx.nn.linear import Linear
from pctx.nn.mlp import NORM_EPS, NORM_MOMENTUM, BatchNorm, DropPath, LinearNormReLU
from pctx.nn.resample import interpolate, pool_max, unpool
from pctx.nn.vector_attention import GroupedVectorAttention


class PointTransformerV2(Backbone):
    """The network for segmentation (section 3.5); the defaults are the released m2 for ScanNet.

    An encoder of `len(depths)` levels, the first of which is the released patch embedding, and a
    decoder back to the points. Clouds of fewer than k points are ordinary.

    Args:
        in_channels: channels of the points.
        channels: of the encoder, a number a level.
        depths: blocks of each encoder stage.
        groups: of channels that share a weight of attention, a number a level.
        num_neighbors: k of each encoder stage, the point itself included; one number, or one a
            level.
        cell_sizes: edge of the cubes that merge between a level and the next, in voxels of the
            points; released for S3DIS were (2.5, 5, 10).
        decoder_channels: of the decoder, a number a level but the coarsest.
        decoder_depths: blocks of each decoder stage.
        decoder_groups: of each decoder stage.
        decoder_num_neighbors: k of each decoder stage; one number, or one a level.
        unpooling: features come up by copies to the points merged ("map"), or interpolated between
            the three nearest ("interpolation", as released for S3DIS).
        encoding: the first layer of the weight encoding: "linear" (m2) or "grouped" (m1, as
            printed).
        position_multiplier: whether offsets multiply the relation too (m1, as printed).
        qkv_bias: whether query, key and value have biases.
        drop_path: share of clouds that the last block leaves out in training; rises from 0.
        grid_size: edge of a voxel, metres, to cut cells in metres from each cloud's lowest
            coordinates, as released; by default they are cut between voxels.
        checkpoint: in training, saves memory for time.
        published: does in small clouds as the released code does: missing neighbours take part in
            norms and softmax, as zero rows, and equally near ones are taken by row. By default
            missing neighbours take no part, and the order of rows decides nothing.

    Raises:
        ValueError: if a number makes no sense, the numbers a level disagree in how many levels
            there are, or unpooling or encoding is unknown.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        channels: Sequence[int] = (48, 96, 192, 384, 512),
        depths: Sequence[int] = (1, 2, 2, 6, 2),
        groups: Sequence[int] = (6, 12, 24, 48, 64),
        num_neighbors: int | Sequence[int] = (8, 16, 16, 16, 16),
        cell_sizes: Sequence[float] = (3.0, 7.5, 18.75, 46.875),
        decoder_channels: Sequence[int] = (48, 96, 192, 384),
        decoder_depths: Sequence[int] = (1, 1, 1, 1),
        decoder_groups: Sequence[int] = (6, 12, 24, 48),
        decoder_num_neighbors: int | Sequence[int] = 16,
        unpooling: Literal["map", "interpolation"] = "map",
        encoding: Literal["linear", "grouped"] = "linear",
        position_multiplier: bool = False,
        qkv_bias: bool = True,
        drop_path: float = 0.3,
        grid_size: float | None = None,
        checkpoint: bool = False,
        published: bool = False,
    ):
        super().__init__()
        count = count_levels(channels)
        near = per_level(num_neighbors, count)
        decoder_near = per_level(decoder_num_neighbors, count - 1)
        require_numbers(in_channels=in_channels, drop_path=drop_path)
        require_entries(count, channels=channels, depths=depths, groups=groups, num_neighbors=near)
        require_entries(
            count - 1,
            cell_sizes=cell_sizes,
            decoder_channels=decoder_channels,
            decoder_depths=decoder_depths,
            decoder_groups=decoder_groups,
            decoder_num_neighbors=decoder_near,
        )
        if unpooling not in ("map", "interpolation"):
            raise ValueError(f"unpooling must be map or interpolation, found {unpooling}")
        if grid_size is not None:
            require_numbers(grid_size=grid_size)
        widths = [*decoder_channels, channels[-1]]
        self.in_channels, self.out_channels = in_channels, widths[0]
        self.most_neighbors = [*map(max, near, decoder_near), near[-1]]
        self.cell_sizes, self.grid_size = tuple(cell_sizes), grid_size
        self.interpolates, self.published = unpooling == "interpolation", published

        attention = partial(
            GroupedVectorAttention,
            qkv_bias=qkv_bias,
            encoding=encoding,
            position_multiplier=position_multiplier,
            checkpoint=checkpoint,
            published=published,
        )

        def stage(width: int, parts: int, k: int, drops: Sequence[float]) -> Stage:
            return Stage(Block(width, attention(width, parts), k, drop) for drop in drops)

        # The patch embedding drops nothing, as released.
        rates = [[0.0] * depths[0], *rising(drop_path, depths[1:])]
        up_rates = rising(drop_path, decoder_depths)
        joins = map(Unpool, widths[1:], channels, decoder_channels)
        stages = map(stage, decoder_channels, decoder_groups, decoder_near, up_rates)
        self.stem = LinearNormReLU(in_channels, channels[0], bias=False)
        self.unet = UNet(
            encoder=list(map(stage, channels, groups, near, rates)),
            down=list(map(GridPool, channels[:-1], channels[1:])),
            decoder=list(map(DecoderStage, joins, stages)),
        )

    def plan(self, points: PointBatch, generator: torch.Generator | None = None) -> Hierarchy:
        """Find neighbours, and merge the points of each cell (section 3.4).

        A merged point lies at the mean of its points, and has the voxel number of the first.

        Args:
            points: the packed clouds.
            generator: not used: nothing is drawn.
        """
        del generator
        level, order = level_as_given(points), None
        if not self.published:
            level, order = canonical_level(points)
        edge = self.grid_size
        position = level.grid_coord.double() if edge is None else level.coord
        levels = []
        for k, size in zip(self.most_neighbors, (*self.cell_sizes, None), strict=True):
            around = knn(level.coord, level.offsets, k)
            level = replace(level, neighbors=replace(around, distance=None))
            coarse = level
            if size is not None:
                size *= 1 if edge is None else edge
                pooling, offsets = voxel_pooling(position, level.offsets, size)
                level, coarse = self._merge(level, pooling, offsets)
                position = segment_mean(position.index_select(0, pooling.order), pooling.starts)
            levels.append(level)
            level = coarse
        if order is not None:
            levels[0] = restore_rows(levels[0], order)
        return Hierarchy(levels=tuple(levels))

    def _merge(self, level: Level, pooling: Pooling, offsets: Tensor) -> tuple[Level, Level]:
        """Return a level that knows how to reach the next, and the next."""
        first = pooling.order.index_select(0, pooling.starts[:-1])
        coarse = Level(
            coord=segment_mean(level.coord.index_select(0, pooling.order), pooling.starts),
            grid_coord=level.grid_coord.index_select(0, first),
            offsets=offsets,
        )
        nearest = nearest_coarse(level, coarse) if self.interpolates else None
        return replace(level, pooling=pooling, nearest_coarse=nearest), coarse

    def forward(self, feat: Float[Tensor, "n i"], hierarchy: Hierarchy) -> Float[Tensor, "n c"]:
        """Compute features along a plan."""
        return self.unet(self.stem(feat), hierarchy)

    def make_head(self, num_classes: int) -> nn.Module:
        """Make the published head, of two layers."""
        return HiddenHead(self.out_channels, num_classes)


class Block(nn.Module):
    """Linear, grouped vector attention (sections 3.2 and 3.3), linear; and the residual.

    A batch norm and a ReLU follow each; the last ReLU is after the sum.
    """

    def __init__(self, channels: int, attention: GroupedVectorAttention, k: int, drop_path: float):
        super().__init__()
        self.k = k
        self.fc1 = Linear(channels, channels, bias=False)
        self.norm1 = BatchNorm(channels, NORM_EPS, NORM_MOMENTUM)
        self.attention = attention
        self.norm2 = BatchNorm(channels, NORM_EPS, NORM_MOMENTUM)
        self.fc2 = Linear(channels, channels, bias=False)
        self.norm3 = BatchNorm(channels, NORM_EPS, NORM_MOMENTUM)
        self.drop_path = DropPath(drop_path)

    def forward(self, feat: Float[Tensor, "n c"], level: Level) -> Float[Tensor, "n c"]:
        """Let each point attend to the k nearest."""
        assert level.neighbors is not None
        hidden = self.norm1(self.fc1(feat)).relu()
        hidden = self.attention(hidden, level.coord, level.neighbors.first(self.k))
        hidden = self.norm3(self.fc2(self.norm2(hidden).relu()))
        return (feat + self.drop_path(hidden, level.offsets)).relu()


class GridPool(nn.Module):
    """Partition-based pooling (section 3.4): linear, batch norm, ReLU, maximum of each cell."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.embed = LinearNormReLU(in_channels, out_channels, bias=False)

    def forward(self, feat: Float[Tensor, "n i"], level: Level) -> Float[Tensor, "m c"]:
        """Bring the rows of a level to the next."""
        assert level.pooling is not None
        return pool_max(self.embed(feat), level.pooling)


class Unpool(nn.Module):
    """Unpooling (section 3.4): coarse features, copied or interpolated, and the encoder's, added.

    Each first passes a linear layer, batch norm and ReLU.
    """

    def __init__(self, in_channels: int, skip_channels: int, out_channels: int):
        super().__init__()
        self.up = LinearNormReLU(in_channels, out_channels)
        self.skip = LinearNormReLU(skip_channels, out_channels)

    def forward(
        self, feat: Float[Tensor, "m i"], skip: Float[Tensor, "n s"], level: Level
    ) -> Float[Tensor, "n c"]:
        """Bring coarse rows to the points of a level."""
        coarse = self.up(feat)
        if level.nearest_coarse is not None:
            return interpolate(coarse, level.nearest_coarse) + self.skip(skip)
        assert level.pooling is not None
        return unpool(coarse, level.pooling) + self.skip(skip)
