"""CustomTransformer: a U-Net whose neighbourhood, attention and position are chosen one by one.

n points of a level, m of the next, c channels, i input channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from pctx.geometry.curves import CURVES
from pctx.geometry.hierarchy import Hierarchy, Level, serial_levels
from pctx.geometry.kernel_map import kernel_maps
from pctx.geometry.packed import batch_from_offsets, cloud_minimum
from pctx.geometry.points import PointBatch
from pctx.models.arguments import (
    count_levels,
    per_level,
    require_curves,
    require_entries,
    require_numbers,
)
from pctx.models.backbone import Backbone
from pctx.models.recipe import Alternate, Attention, Position, Recipe, Window
from pctx.models.unet import DecoderStage, Stage, UNet, rising
from pctx.nn.block import TransformerBlock
from pctx.nn.linear import Linear
from pctx.nn.mlp import BATCH_NORM_MOMENTUM, BatchNorm
from pctx.nn.position import ConditionalEncoding
from pctx.nn.resample import PoolDown, UnpoolJoin
from pctx.nn.sparse_conv import SubmanifoldConv3d

STEM_KERNEL = 5
ENCODING_KERNEL = 3
"""Both as in Point Transformer V3."""


class CustomTransformer(Backbone):
    """The U-Net of Point Transformer V3 with blocks of your own recipe, to compare or to combine.

    Args:
        in_channels: channels of the points.
        window: which points meet: those of a window along a curve ("serial"), of equal counts in
            an octree's order ("octree"), of a cube ("grid"), or each point's nearest ("knn").
        attention: "dot"; "vector" (Point Transformer, V1), or "grouped_vector" (V2), which both
            compute on each pair of points: for windows of tens of points.
        position: how points know where they are; any of
            - "conditional": a submanifold convolution before each block, as in V3;
            - one of "sinusoidal" and "coordinate_mlp": of metres from the lowest corner of the
              cloud, added once after the stem;
            - with attention "dot" one of "relative_bias" (a table by voxel offset, as in
              OctFormer), "coordinate_bias" (a coordinate MLP of metres), "rotary" (as in LitePT)
              and "contextual" (tables that queries, keys and weights read, as in Swin3D); with
              window "knn" only "coordinate_bias". Vector attentions know offsets by themselves.
        alternate: how the blocks of a stage, in turns, cross the borders of windows: "curve" (each
            of `curves`), "dilation" (1 and `dilation`), "shift" (0 and half a window) or "none".
            "auto" is curve for serial, dilation for octree, shift for grid windows; knn has no
            borders.
        window_size: the most points a window, or neighbours a point; one number, or one a level.
            A cube of more points is split.
        window_edge: of a grid window, in voxels of its level.
        dilation: of every other block, where they alternate by it.
        curves: out of `geometry.curves.CURVES`; pooling follows the first, and so do windows that
            do not alternate by curve.
        shuffle_curves: permute them at every level where `plan` is given a generator.
        stem: "conv", a submanifold convolution as in V3, or "linear", which knows no neighbours.
        channels: of the encoder, a number a level.
        depths: blocks of each encoder stage.
        num_heads: of each encoder stage; groups of grouped vector attention.
        share_channels: channels that share a weight in vector attention.
        strides: voxels merged an axis between a level and the next, powers of two.
        decoder_channels: of the decoder, a number a level but the coarsest.
        decoder_depths: blocks of each decoder stage.
        decoder_num_heads: of each decoder stage.
        norm: layer norm "pre" or "post".
        mlp_ratio: hidden channels of a block's MLP over its channels.
        drop_path: share of clouds that the last block leaves out in training; rises from 0.
        norm_momentum: share of a batch in the running statistics of the batch norms.
        checkpoint: keep the input of each block only, and compute it again in the backward.

    Raises:
        ValueError: if choices do not go together, a number makes no sense or does not suit one, or
            the numbers a level disagree in how many levels there are.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        window: Window = "serial",
        attention: Attention = "dot",
        position: Position | Sequence[Position] = ("conditional",),
        alternate: Alternate = "auto",
        window_size: int | Sequence[int] = 32,
        window_edge: int = 8,
        dilation: int = 4,
        curves: Sequence[str] = CURVES,
        shuffle_curves: bool = True,
        stem: Literal["conv", "linear"] = "conv",
        channels: Sequence[int] = (48, 72, 144, 240, 384),
        depths: Sequence[int] = (2, 2, 2, 6, 2),
        num_heads: Sequence[int] = (2, 3, 6, 10, 16),
        share_channels: int = 8,
        strides: Sequence[int] = (2, 2, 2, 2),
        decoder_channels: Sequence[int] = (48, 72, 144, 240),
        decoder_depths: Sequence[int] = (2, 2, 2, 2),
        decoder_num_heads: Sequence[int] = (2, 3, 6, 10),
        norm: Literal["pre", "post"] = "pre",
        mlp_ratio: float = 4.0,
        drop_path: float = 0.3,
        norm_momentum: float = BATCH_NORM_MOMENTUM,
        checkpoint: bool = False,
    ):
        super().__init__()
        count = count_levels(channels)
        sizes = per_level(window_size, count)
        require_numbers(
            in_channels=in_channels,
            mlp_ratio=mlp_ratio,
            drop_path=drop_path,
            norm_momentum=norm_momentum,
        )
        require_entries(
            count, channels=channels, depths=depths, num_heads=num_heads, window_size=sizes
        )
        require_entries(
            count - 1,
            strides=strides,
            decoder_channels=decoder_channels,
            decoder_depths=decoder_depths,
            decoder_num_heads=decoder_num_heads,
        )
        require_curves(curves)
        widths = [*decoder_channels, channels[-1]]
        self.in_channels, self.out_channels = in_channels, widths[0]
        self.curves, self.shuffle_curves = tuple(curves), shuffle_curves
        self.strides, self.window_sizes = tuple(strides), sizes
        self.recipe = recipe = Recipe(
            window=window,
            attention=attention,
            position=(position,) if isinstance(position, str) else tuple(position),
            alternate=alternate,
            dilation=dilation,
            window_edge=window_edge,
            share_channels=share_channels,
        )

        conditional = "conditional" in recipe.position
        kernels = (ENCODING_KERNEL,) if conditional else ()
        first = (STEM_KERNEL, *kernels) if stem == "conv" else kernels
        self.kernel_sizes = [first] + [kernels] * (count - 1)

        def stage(level: int, width: int, heads: int, drops: Sequence[float]) -> Stage:
            mixers = (
                recipe.mixer(width, heads, turn=turn, size=sizes[level])
                for turn in range(len(drops))
            )
            return Stage(
                Block(
                    ConditionalEncoding(width, ENCODING_KERNEL) if conditional else None,
                    TransformerBlock(
                        width,
                        mixer,
                        norm=norm,
                        mlp_ratio=mlp_ratio,
                        drop_path=drop,
                        checkpoint=checkpoint,
                    ),
                )
                for mixer, drop in zip(mixers, drops, strict=True)
            )

        self.stem = Stem(
            in_channels, channels[0], stem, recipe.absolute(channels[0]), norm_momentum
        )
        rates = rising(drop_path, depths)
        encoder = [
            stage(*each) for each in zip(range(count), channels, num_heads, rates, strict=True)
        ]
        rates = [each[::-1] for each in rising(drop_path, decoder_depths)]
        decoder = [
            DecoderStage(
                UnpoolJoin(widths[level + 1], channels[level], widths[level], norm_momentum),
                stage(level, widths[level], heads, drops),
            )
            for level, (heads, drops) in enumerate(zip(decoder_num_heads, rates, strict=True))
        ]
        down = [PoolDown(a, b, norm_momentum) for a, b in pairwise(channels)]
        self.unet = UNet(encoder, down, decoder)

    def plan(self, points: PointBatch, generator: torch.Generator | None = None) -> Hierarchy:
        """Serialize and pool, then let the points of each level meet as the recipe says."""
        bare = serial_levels(
            points,
            curves=self.curves,
            strides=self.strides,
            generator=generator if self.shuffle_curves else None,
        )
        return Hierarchy(
            levels=tuple(
                replace(
                    self.recipe.meet(level, along, size),
                    kernel_maps=kernel_maps(level.grid_coord, level.offsets, kernels),
                )
                for (level, along), size, kernels in zip(
                    bare, self.window_sizes, self.kernel_sizes, strict=True
                )
            )
        )

    def forward(self, feat: Float[Tensor, "n i"], hierarchy: Hierarchy) -> Float[Tensor, "n c"]:
        """Compute features along a plan."""
        return self.unet(self.stem(feat, hierarchy.levels[0]), hierarchy)


class Stem(nn.Module):
    """Linear or a submanifold convolution, batch norm, GELU; and where the points are, if told."""

    def __init__(
        self,
        in_channels: int,
        channels: int,
        kind: Literal["conv", "linear"],
        encoding: nn.Module | None,
        norm_momentum: float,
    ):
        super().__init__()
        if kind not in ("conv", "linear"):
            raise ValueError(f"stem must be conv or linear, found {kind!r}")
        self.conv = kind == "conv"
        self.embed: nn.Module = (
            SubmanifoldConv3d(in_channels, channels, STEM_KERNEL, bias=False)
            if self.conv
            else Linear(in_channels, channels, bias=False)
        )
        self.norm = BatchNorm(channels, momentum=norm_momentum)
        self.encoding = encoding

    def forward(self, feat: Float[Tensor, "n i"], level: Level) -> Float[Tensor, "n c"]:
        """Embed the points' channels, and add the encoding of their place in the cloud."""
        maps = (level.kernel_maps[STEM_KERNEL],) if self.conv else ()
        feat = F.gelu(self.norm(self.embed(feat, *maps)))
        if self.encoding is None:
            return feat
        batch = batch_from_offsets(level.offsets, level.num_points)
        corner = cloud_minimum(level.coord, level.offsets).index_select(0, batch)
        return feat + self.encoding((level.coord - corner).to(self.norm.weight.dtype))


class Block(nn.Module):
    """Conditional encoding, added, or none; then mixer and MLP."""

    def __init__(self, encoding: ConditionalEncoding | None, block: TransformerBlock):
        super().__init__()
        self.encoding, self.block = encoding, block

    def forward(self, feat: Float[Tensor, "n c"], level: Level) -> Float[Tensor, "n c"]:
        """Mix the points that meet."""
        if self.encoding is not None:
            feat = feat + self.encoding(feat, level.kernel_maps[ENCODING_KERNEL])
        return self.block(feat, level.offsets, level)
