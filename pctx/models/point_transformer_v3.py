"""PointTransformerV3: attention in windows along space-filling curves.

Wu et al., "Point Transformer V3: Simpler, Faster, Stronger", CVPR 2024 (arXiv 2312.10035); sections
below are its.

n points of a level, c channels, i input channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pctx.geometry.curves import CURVES
from pctx.geometry.hierarchy import Hierarchy, Level, serial_hierarchy
from pctx.geometry.points import PointBatch
from pctx.geometry.serialization import shared_depth
from pctx.models.arguments import (
    count_levels,
    per_level,
    require_curves,
    require_entries,
    require_numbers,
)
from pctx.models.backbone import Backbone
from pctx.models.unet import Stage, UNet, rising
from pctx.nn.attention import WindowAttention
from pctx.nn.mlp import BATCH_NORM_MOMENTUM, MLP, DropPath
from pctx.nn.position import ConditionalEncoding
from pctx.nn.relative import RelativePositionBias
from pctx.nn.resample import PoolDown, UnpoolJoin
from pctx.nn.stem import STEM_KERNEL, ConvStem

ENCODING_KERNEL = 3


class PointTransformerV3(Backbone):
    """The published network (section 4.3); the defaults are its base size.

    A stem, an encoder of `len(depths)` levels, and a decoder back to the points. Block i of a stage
    attends along curve i modulo the number of curves.

    Args:
        in_channels: channels of the points.
        curves: the curves, out of `geometry.curves.CURVES`; pooling follows the first.
        shuffle_curves: permute them at every level where `plan` is given a generator.
        channels: of the encoder, a number a level.
        depths: blocks of each encoder stage.
        num_heads: of each encoder stage.
        strides: voxels merged an axis between a level and the next, powers of two.
        decoder_channels: of the decoder, a number a level but the coarsest.
        decoder_depths: blocks of each decoder stage.
        decoder_num_heads: of each decoder stage.
        window_size: the largest number of points in a window; one number, or one a level.
        mlp_ratio: hidden channels of a block's MLP over its channels.
        qkv_bias: whether query, key and value have biases.
        pre_norm: layer norm before attention and MLP; else after their residual sums.
        relative_position_bias: adds a learned bias by voxel offset to the attention scores.
        drop_path: share of clouds that the last block leaves out in training; rises from 0.
        norm_momentum: share of a batch in the running statistics of the batch norms; a training of
            a few hundred steps wants 0.1.
        encoder_only: leaves the decoder out; `forward` then gives rows of the coarsest level.
        published: does as the released code does and its weights expect: one depth of the curves
            for all clouds, so that a cloud's order along Hilbert curves depends on its batch, and
            the first encoding convolution of a decoder stage reads the encoder's branch alone. By
            default each cloud has its own depth, and that convolution reads the joined sum.
        flash: where `published`, as the released code with flash attention, which lets each cloud
            have its own windows. Without it, as a relative position bias asks of it, no window is
            larger than the smallest cloud of the batch at its level.

    Raises:
        ValueError: if a number makes no sense, or the numbers a level disagree in how many levels
            there are.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        curves: Sequence[str] = CURVES,
        shuffle_curves: bool = True,
        channels: Sequence[int] = (32, 64, 128, 256, 512),
        depths: Sequence[int] = (2, 2, 2, 6, 2),
        num_heads: Sequence[int] = (2, 4, 8, 16, 32),
        strides: Sequence[int] = (2, 2, 2, 2),
        decoder_channels: Sequence[int] = (64, 64, 128, 256),
        decoder_depths: Sequence[int] = (2, 2, 2, 2),
        decoder_num_heads: Sequence[int] = (4, 4, 8, 16),
        window_size: int | Sequence[int] = 1024,
        mlp_ratio: float = 4.0,
        qkv_bias: bool = True,
        pre_norm: bool = True,
        relative_position_bias: bool = False,
        drop_path: float = 0.3,
        norm_momentum: float = BATCH_NORM_MOMENTUM,
        encoder_only: bool = False,
        published: bool = False,
        flash: bool = True,
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
        require_entries(count - 1, strides=strides)
        if encoder_only:
            decoder_channels, decoder_depths, decoder_num_heads = (), (), ()
        else:
            require_entries(
                count - 1,
                decoder_channels=decoder_channels,
                decoder_depths=decoder_depths,
                decoder_num_heads=decoder_num_heads,
            )
        require_curves(curves)
        widths = [*decoder_channels, channels[-1]]
        self.in_channels, self.out_channels = in_channels, widths[0]
        self.out_level = count - 1 if encoder_only else 0
        self.curves, self.shuffle_curves = tuple(curves), shuffle_curves
        self.strides, self.window_sizes = tuple(strides), sizes
        self.published, self.flash = published, flash

        def stage(level: int, width: int, heads: int, drops: Sequence[float]) -> list[Block]:
            return [
                Block(
                    width,
                    heads,
                    curve=i,
                    window_size=sizes[level],
                    mlp_ratio=mlp_ratio,
                    qkv_bias=qkv_bias,
                    pre_norm=pre_norm,
                    relative_position_bias=relative_position_bias,
                    drop_path=drop,
                )
                for i, drop in enumerate(drops)
            ]

        self.stem = ConvStem(in_channels, channels[0], norm_momentum)
        encoder = [
            Stage(stage(*each))
            for each in zip(
                range(count), channels, num_heads, rising(drop_path, depths), strict=True
            )
        ]
        decoder = []
        for level, drops in enumerate(rising(drop_path, decoder_depths)):
            width, heads = widths[level], decoder_num_heads[level]
            join = UnpoolJoin(widths[level + 1], channels[level], width, norm_momentum)
            # The deepest block of a stage comes first, on the way up.
            blocks = stage(level, width, heads, drops[::-1])
            decoder.append(DecoderStage(join, blocks, published=published))
        self.unet = UNet(
            encoder, [PoolDown(a, b, norm_momentum) for a, b in pairwise(channels)], decoder
        )

    def plan(
        self,
        points: PointBatch,
        generator: torch.Generator | None = None,
        depth: int | None = None,
    ) -> Hierarchy:
        """Serialize, pool, cut windows and map kernels (sections 4.1 and 4.2).

        Args:
            points: the packed clouds.
            generator: shuffles the curves at every level, if the model shuffles at all.
            depth: levels of the curves for all clouds; by default each cloud's own, so that a
                cloud's result does not depend on the others, or what `published` says.
        """
        shared = None
        if self.published:
            shared = shared_depth(points.grid_coord, points.offsets)
        kernels = [(STEM_KERNEL, ENCODING_KERNEL)] + [(ENCODING_KERNEL,)] * len(self.strides)
        return serial_hierarchy(
            points,
            curves=self.curves,
            strides=self.strides,
            window_sizes=self.window_sizes,
            kernel_sizes=kernels,
            depth=shared if depth is None else depth,
            smallest=self.published and not self.flash,
            generator=generator if self.shuffle_curves else None,
        )

    def forward(self, feat: Float[Tensor, "n i"], hierarchy: Hierarchy) -> Float[Tensor, "r c"]:
        """Compute features along a plan."""
        return self.unet(self.stem(feat, hierarchy.levels[0]), hierarchy)


class Block(nn.Module):
    """Conditional encoding, attention in windows of serialized points, MLP, with layer norms (LN).

        feat = feat + xCPE(feat)
        feat = feat + attention(LN(feat))
        feat = feat + MLP(LN(feat))

    With post-norm the layer norms follow the last two sums. (Sections 4.2 and 4.3.)
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        curve: int,
        window_size: int,
        mlp_ratio: float,
        qkv_bias: bool,
        pre_norm: bool,
        relative_position_bias: bool,
        drop_path: float,
    ):
        super().__init__()
        self.curve, self.pre_norm = curve, pre_norm
        self.encoding = ConditionalEncoding(channels, ENCODING_KERNEL)
        self.norm1 = nn.LayerNorm(channels)
        self.attention = WindowAttention(channels, num_heads, qkv_bias=qkv_bias)
        self.relative_bias = (
            RelativePositionBias(num_heads, RelativePositionBias.bound_for(window_size))
            if relative_position_bias
            else None
        )
        self.norm2 = nn.LayerNorm(channels)
        self.mlp = MLP(channels, int(channels * mlp_ratio))
        self.drop_path = DropPath(drop_path)

    def forward(
        self,
        feat: Float[Tensor, "n c"],
        level: Level,
        encoded: Float[Tensor, "n c"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Mix the points of each window.

        Args:
            feat: one row a point.
            level: where the points lie.
            encoded: what the conditional encoding reads in place of `feat`.
        """
        source = feat if encoded is None else encoded
        feat = feat + self.encoding(source, level.kernel_maps[ENCODING_KERNEL])
        if self.pre_norm:
            heard = self._attend(feat, level, self.norm1)
            feat = feat + self.drop_path(heard, level.offsets)
            return feat + self.drop_path(self.mlp(feat, self.norm2), level.offsets)
        feat = self.norm1(feat + self.drop_path(self._attend(feat, level), level.offsets))
        return self.norm2(feat + self.drop_path(self.mlp(feat), level.offsets))

    def _attend(self, feat: Tensor, level: Level, norm: nn.Module | None = None) -> Tensor:
        windows = level.windows[self.curve % len(level.windows)]
        bias = None
        if self.relative_bias is not None:
            bias = self.relative_bias(level.grid_coord, windows)
        return self.attention(feat, windows, bias, norm)


class DecoderStage(nn.Module):
    """The coarser level's features joined to the encoder's, then blocks."""

    def __init__(self, join: UnpoolJoin, blocks: Sequence[Block], *, published: bool):
        super().__init__()
        self.join = join
        self.blocks = nn.ModuleList(blocks)
        self.published = published

    def forward(
        self, feat: Float[Tensor, "m i"], skip: Float[Tensor, "n s"], level: Level
    ) -> Float[Tensor, "n c"]:
        """Join and run the blocks."""
        feat, branch = self.join.both(feat, skip, level)
        encoded = branch if self.published else None
        del branch
        for block in self.blocks:
            feat, encoded = block(feat, level, encoded), None
        return feat
