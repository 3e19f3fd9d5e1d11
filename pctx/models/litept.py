"""LitePT: convolution where points are many, attention where they are few.

Yue et al., "LitePT: Lighter Yet Stronger Point Transformer", CVPR 2026 (arXiv 2512.13689).

n points of a level, m points of the next, c channels, i and s input channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pctx.geometry.curves import CURVES
from pctx.geometry.hierarchy import Hierarchy, Level
from pctx.geometry.kernel_map import kernel_maps
from pctx.geometry.packed import batch_from_offsets, cloud_minimum, segment_mean
from pctx.geometry.points import PointBatch
from pctx.geometry.pooling import stride_pooling
from pctx.geometry.serialization import serialize, shared_depth, shuffle_curves
from pctx.geometry.windows import Windows, curve_windows
from pctx.models.arguments import (
    count_levels,
    per_level,
    require_curves,
    require_entries,
    require_numbers,
)
from pctx.models.backbone import Backbone
from pctx.models.unet import DecoderStage, Stage, UNet, rising
from pctx.nn.block import TransformerBlock
from pctx.nn.mlp import BATCH_NORM_MOMENTUM
from pctx.nn.position import ConditionalEncoding
from pctx.nn.relative import ROTARY_BASE
from pctx.nn.resample import PoolDown, UnpoolJoin
from pctx.nn.rotary_attention import RotaryWindowAttention
from pctx.nn.stem import STEM_KERNEL, ConvStem

BLOCK_KERNEL = 3

KINDS = ("convolution", "attention", "both")


class LitePT(Backbone):
    """The published network; the defaults are its small size, LitePT-S.

    A stem, an encoder of `len(depths)` levels, and a decoder back to the points, by default without
    blocks. Block i of a stage attends along curve i modulo the number of curves.

    Args:
        in_channels: channels of the points.
        curves: the curves, out of `geometry.curves.CURVES`.
        shuffle_curves: permute them at every level where `plan` is given a generator.
        channels: of the encoder, a number a level; where it attends, a multiple of 6 a head.
        depths: blocks of each encoder stage.
        kinds: of the blocks of each encoder stage: convolution, attention or both.
        num_heads: of each encoder stage.
        strides: voxels merged an axis between a level and the next, any integers from 2.
        decoder_channels: of the decoder, a number a level but the coarsest.
        decoder_depths: blocks of each decoder stage.
        decoder_kinds: of the blocks of each decoder stage.
        decoder_num_heads: of each decoder stage.
        window_size: the largest number of points in a window; one number, or one a level.
        rotary_base: of the rotary encoding's frequencies; one number, or one a level.
        decoder_rotary_base: likewise, in the decoder; one number, or one a level but the coarsest.
        mlp_ratio: hidden channels of a block's MLP over its channels.
        qkv_bias: whether query, key and value have biases.
        pre_norm: layer norm before attention and MLP; else after their residual sums.
        drop_path: share of clouds for which the last block leaves out attention and MLP in
            training; rises from 0. Convolutions are never left out.
        norm_momentum: share of a batch in the running statistics of the batch norms; a training of
            a few hundred steps wants 0.1.
        encoder_only: leaves the decoder out; `forward` then gives rows of the coarsest level.
        published: one depth of the curves for all clouds, as in the released code, so that a
            cloud's order along Hilbert curves depends on its batch; False lets each have its own.
            A cloud by itself is the same either way.

    Raises:
        ValueError: if a number makes no sense, the numbers a level disagree in how many levels
            there are, or there is no such curve or kind.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        curves: Sequence[str] = CURVES,
        shuffle_curves: bool = True,
        channels: Sequence[int] = (36, 72, 144, 252, 504),
        depths: Sequence[int] = (2, 2, 2, 6, 2),
        kinds: Sequence[str] = ("convolution",) * 3 + ("attention",) * 2,
        num_heads: Sequence[int] = (2, 4, 8, 14, 28),
        strides: Sequence[int] = (2, 2, 2, 2),
        decoder_channels: Sequence[int] = (72, 72, 144, 252),
        decoder_depths: Sequence[int] = (0, 0, 0, 0),
        decoder_kinds: Sequence[str] = ("convolution",) * 3 + ("attention",),
        decoder_num_heads: Sequence[int] = (4, 4, 8, 14),
        window_size: int | Sequence[int] = 1024,
        rotary_base: float | Sequence[float] = ROTARY_BASE,
        decoder_rotary_base: float | Sequence[float] = ROTARY_BASE,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        pre_norm: bool = True,
        drop_path: float = 0.3,
        norm_momentum: float = BATCH_NORM_MOMENTUM,
        encoder_only: bool = False,
        published: bool = False,
    ):
        super().__init__()
        count = count_levels(channels)
        sizes, bases = per_level(window_size, count), per_level(rotary_base, count)
        up_bases = per_level(decoder_rotary_base, count - 1)
        require_numbers(
            in_channels=in_channels,
            mlp_ratio=mlp_ratio,
            drop_path=drop_path,
            norm_momentum=norm_momentum,
        )
        require_entries(count, channels=channels, depths=depths, kinds=kinds, num_heads=num_heads)
        require_entries(count, window_size=sizes, rotary_base=bases)
        require_entries(count - 1, strides=strides)
        if encoder_only:
            decoder_channels, decoder_depths, decoder_kinds, decoder_num_heads = (), (), (), ()
        else:
            require_entries(
                count - 1,
                decoder_channels=decoder_channels,
                decoder_depths=decoder_depths,
                decoder_kinds=decoder_kinds,
                decoder_num_heads=decoder_num_heads,
                decoder_rotary_base=up_bases,
            )
        require_curves(curves)
        _require_kinds(kinds=kinds, decoder_kinds=decoder_kinds)
        widths = [*decoder_channels, channels[-1]]
        self.in_channels, self.out_channels = in_channels, widths[0]
        self.out_level = count - 1 if encoder_only else 0
        self.curves, self.shuffle_curves = tuple(curves), shuffle_curves
        self.strides, self.window_sizes, self.published = tuple(strides), sizes, published

        self.kinds = [{kind} if depth else set() for kind, depth in zip(kinds, depths, strict=True)]
        for level, depth in enumerate(decoder_depths):
            self.kinds[level] |= {decoder_kinds[level]} if depth else set()

        def stage(
            kind: str, width: int, heads: int, rotary_base: float, drops: Sequence[float]
        ) -> Stage:
            def transformer(drop: float) -> TransformerBlock:
                return TransformerBlock(
                    width,
                    RotaryWindowAttention(width, heads, qkv_bias=qkv_bias, base=rotary_base),
                    norm="pre" if pre_norm else "post",
                    mlp_ratio=mlp_ratio,
                    drop_path=drop,
                )

            return Stage(
                Block(
                    width,
                    convolution=kind != "attention",
                    transformer=transformer(drop) if kind != "convolution" else None,
                    curve=i,
                )
                for i, drop in enumerate(drops)
            )

        self.stem = ConvStem(in_channels, channels[0], norm_momentum)
        drops = rising(drop_path, depths)
        encoder = [
            stage(*each) for each in zip(kinds, channels, num_heads, bases, drops, strict=True)
        ]
        # The deepest block of a stage comes first, on the way up.
        up_drops = [rates[::-1] for rates in rising(drop_path, decoder_depths)]
        stages = map(stage, decoder_kinds, decoder_channels, decoder_num_heads, up_bases, up_drops)
        decoder = [
            DecoderStage(UnpoolJoin(below, beside, width, norm_momentum), blocks)
            for below, beside, width, blocks in zip(
                widths[1:], channels, decoder_channels, stages, strict=False
            )
        ]
        down = [PoolDown(a, b, norm_momentum) for a, b in pairwise(channels)]
        self.unet = UNet(encoder, down, decoder)

    def plan(self, points: PointBatch, generator: torch.Generator | None = None) -> Hierarchy:
        """Pool by strides, map kernels, and serialize anew every level that attends.

        Args:
            points: the packed clouds.
            generator: shuffles the curves at every level, if the model shuffles at all.
        """
        offsets, coord = points.offsets, points.coord
        cells = points.grid_coord.long()
        batch = batch_from_offsets(offsets, len(cells))
        cells = cells - cloud_minimum(cells, offsets).index_select(0, batch)
        levels = []
        for number, stride in enumerate([*self.strides, None]):
            sizes = [STEM_KERNEL] if number == 0 else []
            if self.kinds[number] & {"convolution", "both"}:
                sizes.append(BLOCK_KERNEL)
            windows: tuple[Windows, ...] = ()
            if self.kinds[number] & {"attention", "both"}:
                windows = self._cut(cells, offsets, self.window_sizes[number], generator)
            level = Level(
                coord=coord,
                grid_coord=cells,
                offsets=offsets,
                windows=windows,
                kernel_maps=kernel_maps(cells, offsets, sizes),
            )
            if stride is not None:
                pooling, offsets, cells = stride_pooling(cells, offsets, stride)
                coord = segment_mean(coord.index_select(0, pooling.order), pooling.starts)
                level = replace(level, pooling=pooling)
            levels.append(level)
        return Hierarchy(levels=tuple(levels))

    def _cut(
        self, cells: Tensor, offsets: Tensor, window_size: int, generator: torch.Generator | None
    ) -> tuple[Windows, ...]:
        depth = shared_depth(cells, offsets) if self.published else None
        serialization = serialize(cells, offsets, self.curves, depth)
        if generator is not None and self.shuffle_curves:
            serialization = shuffle_curves(serialization, generator)
        return curve_windows(serialization, window_size)

    def forward(self, feat: Float[Tensor, "n i"], hierarchy: Hierarchy) -> Float[Tensor, "r c"]:
        """Compute features along a plan."""
        return self.unet(self.stem(feat, hierarchy.levels[0]), hierarchy)


class Block(nn.Module):
    """A convolution; attention with rotary encoding (PointROPE) and an MLP; or one, then the other.

        feat = feat + LN(linear(convolution(feat)))
        feat = feat + attention(LN(feat))
        feat = feat + MLP(LN(feat))

    A block without convolution begins with feat = LN(feat). `RotaryEncoding` has PointROPE.
    """

    def __init__(
        self,
        channels: int,
        *,
        convolution: bool,
        transformer: TransformerBlock | None,
        curve: int,
    ):
        super().__init__()
        self.curve = curve
        self.convolution = ConditionalEncoding(channels, BLOCK_KERNEL) if convolution else None
        self.norm = nn.Identity() if convolution else nn.LayerNorm(channels)
        self.transformer = transformer

    def forward(self, feat: Float[Tensor, "n c"], level: Level) -> Float[Tensor, "n c"]:
        """Mix neighbours, points of a window, or both."""
        feat = self.norm(feat)
        if self.convolution is not None:
            feat = feat + self.convolution(feat, level.kernel_maps[BLOCK_KERNEL])
        if self.transformer is None:
            return feat
        windows = level.windows[self.curve % len(level.windows)]
        return self.transformer(feat, level.offsets, level.grid_coord, windows)


def _require_kinds(**kinds: Sequence[str]) -> None:
    for name, found in kinds.items():
        if not set(found) <= set(KINDS):
            raise ValueError(f"{name} must be of {', '.join(KINDS)}; found {list(found)}")
