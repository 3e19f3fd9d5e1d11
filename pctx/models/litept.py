"""LitePT: convolution where points are many, attention where they are few.

Yue et al., "LitePT: Lighter Yet Stronger Point Transformer", CVPR 2026 (arXiv 2512.13689).

n points of a level, m points of the next, c channels, i and s input channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from pctx.geometry.curves import CURVES
from pctx.geometry.hierarchy import Hierarchy, Level
from pctx.geometry.kernel_map import kernel_maps
from pctx.geometry.packed import batch_from_offsets, cloud_minimum, segment_mean
from pctx.geometry.points import PointBatch
from pctx.geometry.pooling import stride_pooling
from pctx.geometry.serialization import bit_length, serialize, shuffle_curves
from pctx.geometry.windows import Windows, curve_windows
from pctx.models.backbone import Backbone
from pctx.models.unet import UNet, require_entries, rising
from pctx.nn.mlp import BATCH_NORM_MOMENTUM, MLP, BatchNorm, DropPath
from pctx.nn.position import ConditionalEncoding
from pctx.nn.relative import ROTARY_BASE
from pctx.nn.resample import PoolDown, UnpoolJoin
from pctx.nn.rotary_attention import RotaryWindowAttention
from pctx.nn.sparse_conv import SubmanifoldConv3d

STEM_KERNEL = 5
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
        ValueError: if the numbers a level disagree in how many levels there are, or if there is no
            such curve or kind.
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
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        pre_norm: bool = True,
        drop_path: float = 0.3,
        norm_momentum: float = BATCH_NORM_MOMENTUM,
        encoder_only: bool = False,
        published: bool = False,
    ):
        super().__init__()
        count = len(channels)
        sizes = [window_size] * count if isinstance(window_size, int) else list(window_size)
        bases = list(rotary_base) if isinstance(rotary_base, Sequence) else [rotary_base] * count
        require_entries(count, depths=depths, kinds=kinds, num_heads=num_heads)
        require_entries(count, window_size=sizes, rotary_base=bases)
        require_entries(count - 1, strides=strides)
        if encoder_only:
            decoder_depths = ()
        else:
            require_entries(
                count - 1,
                decoder_channels=decoder_channels,
                decoder_depths=decoder_depths,
                decoder_kinds=decoder_kinds,
                decoder_num_heads=decoder_num_heads,
            )
        _require_names("curves", curves, CURVES)
        _require_names("kinds", [*kinds, *decoder_kinds], KINDS)
        self.in_channels = in_channels
        self.out_channels = channels[-1] if encoder_only else decoder_channels[0]
        self.out_level = count - 1 if encoder_only else 0
        self.curves, self.shuffle_curves = tuple(curves), shuffle_curves
        self.strides, self.window_sizes, self.published = tuple(strides), tuple(sizes), published

        def stage(
            level: int, kind: str, width: int, heads: int, drops: Sequence[float]
        ) -> list[Block]:
            def transformer(curve: int, drop: float) -> Transformer:
                return Transformer(
                    width,
                    heads,
                    curve=curve,
                    rotary_base=bases[level],
                    mlp_ratio=mlp_ratio,
                    qkv_bias=qkv_bias,
                    pre_norm=pre_norm,
                    drop_path=drop,
                )

            return [
                Block(
                    width,
                    convolution=kind != "attention",
                    transformer=transformer(i, drop) if kind != "convolution" else None,
                )
                for i, drop in enumerate(drops)
            ]

        self.stem = Stem(in_channels, channels[0], norm_momentum)
        encoder = [
            EncoderStage(stage(*each))
            for each in zip(
                range(count), kinds, channels, num_heads, rising(drop_path, depths), strict=True
            )
        ]
        decoder = []
        widths = [*decoder_channels, channels[-1]]
        for level, drops in enumerate(rising(drop_path, decoder_depths)):
            width, heads = decoder_channels[level], decoder_num_heads[level]
            join = UnpoolJoin(widths[level + 1], channels[level], width, norm_momentum)
            # The deepest block of a stage comes first, on the way up.
            blocks = stage(level, decoder_kinds[level], width, heads, drops[::-1])
            decoder.append(DecoderStage(join, blocks))
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
            blocks = self._blocks(number)
            sizes = [STEM_KERNEL] if number == 0 else []
            if any(block.convolution is not None for block in blocks):
                sizes.append(BLOCK_KERNEL)
            windows: tuple[Windows, ...] = ()
            if any(block.transformer is not None for block in blocks):
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

    def _blocks(self, level: int) -> list[Block]:
        """Return the blocks that run at a level, on the way down and up."""
        stages = [*self.unet.encoder[level : level + 1], *self.unet.decoder[level : level + 1]]
        return [block for stage in stages for block in stage.blocks]

    def _cut(
        self, cells: Tensor, offsets: Tensor, window_size: int, generator: torch.Generator | None
    ) -> tuple[Windows, ...]:
        depth = None
        if self.published:
            largest = F.pad(cells.flatten(), (0, 1)).amax()  # 0 where there are no points
            depth = bit_length(largest[None] + 1)
        serialization = serialize(cells, offsets, self.curves, depth)
        if generator is not None and self.shuffle_curves:
            serialization = shuffle_curves(serialization, generator)
        return curve_windows(serialization, window_size)

    def forward(self, feat: Float[Tensor, "n i"], hierarchy: Hierarchy) -> Float[Tensor, "r c"]:
        """Compute features along a plan."""
        return self.unet(self.stem(feat, hierarchy.levels[0]), hierarchy)


class Stem(nn.Module):
    """Submanifold convolution, batch norm, GELU."""

    def __init__(self, in_channels: int, channels: int, norm_momentum: float):
        super().__init__()
        self.conv = SubmanifoldConv3d(in_channels, channels, STEM_KERNEL, bias=False)
        self.norm = BatchNorm(channels, momentum=norm_momentum)

    def forward(self, feat: Float[Tensor, "n i"], level: Level) -> Float[Tensor, "n c"]:
        """Embed the points' channels."""
        return F.gelu(self.norm(self.conv(feat, level.kernel_maps[STEM_KERNEL])))


class Block(nn.Module):
    """A convolution, a transformer, or one after the other.

    A block without convolution has a layer norm in its place, on the features themselves.
    """

    def __init__(self, channels: int, *, convolution: bool, transformer: Transformer | None):
        super().__init__()
        self.convolution = ConditionalEncoding(channels, BLOCK_KERNEL) if convolution else None
        self.norm = nn.Identity() if convolution else nn.LayerNorm(channels)
        self.transformer = transformer

    def forward(self, feat: Float[Tensor, "n c"], level: Level) -> Float[Tensor, "n c"]:
        """Mix neighbours, points of a window, or both."""
        feat = self.norm(feat)
        if self.convolution is not None:
            feat = feat + self.convolution(feat, level.kernel_maps[BLOCK_KERNEL])
        return feat if self.transformer is None else self.transformer(feat, level)


class Transformer(nn.Module):
    """Windowed attention with rotary encoding (PointROPE), then an MLP; each with a residual."""

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        curve: int,
        rotary_base: float,
        mlp_ratio: float,
        qkv_bias: bool,
        pre_norm: bool,
        drop_path: float,
    ):
        super().__init__()
        self.curve, self.pre_norm = curve, pre_norm
        self.norm1 = nn.LayerNorm(channels)
        self.attention = RotaryWindowAttention(
            channels, num_heads, qkv_bias=qkv_bias, base=rotary_base
        )
        self.norm2 = nn.LayerNorm(channels)
        self.mlp = MLP(channels, int(channels * mlp_ratio))
        self.drop_path = DropPath(drop_path)

    def forward(self, feat: Float[Tensor, "n c"], level: Level) -> Float[Tensor, "n c"]:
        """Mix the points of each window."""
        if self.pre_norm:
            feat = feat + self.drop_path(self._attend(self.norm1(feat), level), level.offsets)
            return feat + self.drop_path(self.mlp(self.norm2(feat)), level.offsets)
        feat = self.norm1(feat + self.drop_path(self._attend(feat, level), level.offsets))
        return self.norm2(feat + self.drop_path(self.mlp(feat), level.offsets))

    def _attend(self, feat: Tensor, level: Level) -> Tensor:
        windows = level.windows[self.curve % len(level.windows)]
        return self.attention(feat, level.grid_coord, windows)


class EncoderStage(nn.Module):
    """Blocks at one level."""

    def __init__(self, blocks: Sequence[Block]):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, feat: Float[Tensor, "n c"], level: Level) -> Float[Tensor, "n c"]:
        """Run the blocks."""
        for block in self.blocks:
            feat = block(feat, level)
        return feat


class DecoderStage(nn.Module):
    """The coarser level's features joined to the encoder's, then blocks."""

    def __init__(self, join: UnpoolJoin, blocks: Sequence[Block]):
        super().__init__()
        self.join = join
        self.blocks = nn.ModuleList(blocks)

    def forward(
        self, feat: Float[Tensor, "m i"], skip: Float[Tensor, "n s"], level: Level
    ) -> Float[Tensor, "n c"]:
        """Join and run the blocks."""
        assert level.pooling is not None
        feat = self.join(feat, skip, level.pooling).feat
        for block in self.blocks:
            feat = block(feat, level)
        return feat


def _require_names(argument: str, names: Sequence[str], known: Sequence[str]) -> None:
    if not names or not set(names) <= set(known):
        raise ValueError(f"{argument} must be some of {', '.join(known)}; found {list(names)}")
