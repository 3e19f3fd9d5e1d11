"""PointTransformerV1: vector attention among nearest neighbours; farthest points on the way down.

Zhao, Jiang, Jia, Torr, Koltun, "Point Transformer", ICCV 2021 (arXiv 2012.09164); sections, figures
and equations below are its.

n points of a level, m points of the next, k neighbours a point, c channels, i input channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pctx.geometry.canonical import canonical_level, level_as_given, restore_rows
from pctx.geometry.hierarchy import Hierarchy, Level, nearest_coarse
from pctx.geometry.neighbors import knn
from pctx.geometry.packed import batch_from_offsets, segment_mean
from pctx.geometry.points import PointBatch
from pctx.geometry.sampling import farthest_points, strided_counts
from pctx.models.arguments import count_levels, per_level, require_entries, require_numbers
from pctx.models.backbone import Backbone
from pctx.models.head import HiddenHead
from pctx.models.unet import DecoderStage, Stage, UNet
from pctx.nn import backend
from pctx.nn.linear import Linear
from pctx.nn.mlp import NORM_EPS, NORM_MOMENTUM, BatchNorm, LinearNormReLU
from pctx.nn.resample import interpolate
from pctx.nn.vector_attention import VectorAttention


class PointTransformerV1(Backbone):
    """The network for segmentation (figure 3); the defaults are the released Seg50.

    A stem, an encoder of `len(depths)` levels, and a decoder back to the points. Clouds of fewer
    than k points, or fewer than a stride, are ordinary.

    Args:
        in_channels: channels of the points.
        channels: a number a level, for encoder and decoder.
        depths: blocks of each encoder stage; (1, 2, 2, 2, 2) in Seg38, all 1 in Seg26.
        decoder_depths: blocks of each decoder stage, the coarsest level's included.
        num_neighbors: k of each level, the point itself included; one number, or one a level.
        strides: points of a level over those of the next.
        share_channels: channels that share a weight of attention; 1 as printed, 8 as released.
        checkpoint: in training, saves memory for time.
        published: does in small clouds as the released code does. Missing neighbours are then zero
            rows that take part in norms, maxima and softmax, and a cloud of fewer points than a
            stride is left out of the next level; sampling starts at the first row. By default
            missing neighbours take no part, every cloud keeps a point, and the order of rows
            decides nothing.

    Raises:
        ValueError: if a number makes no sense, or the numbers a level disagree in how many levels
            there are.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        channels: Sequence[int] = (32, 64, 128, 256, 512),
        depths: Sequence[int] = (1, 2, 3, 5, 2),
        decoder_depths: Sequence[int] = (1, 1, 1, 1, 1),
        num_neighbors: int | Sequence[int] = (8, 16, 16, 16, 16),
        strides: Sequence[int] = (4, 4, 4, 4),
        share_channels: int = 8,
        checkpoint: bool = False,
        published: bool = False,
    ):
        super().__init__()
        count = count_levels(channels)
        near = per_level(num_neighbors, count)
        require_numbers(in_channels=in_channels, share_channels=share_channels)
        require_entries(count, channels=channels, depths=depths)
        require_entries(count, decoder_depths=decoder_depths, num_neighbors=near)
        require_entries(count - 1, strides=strides)
        self.in_channels, self.out_channels = in_channels, channels[0]
        self.num_neighbors, self.strides = near, tuple(strides)
        self.published = published

        def stage(level: int, depth: int) -> Stage:
            return Stage(
                Block(
                    channels[level],
                    near[level],
                    share_channels=share_channels,
                    checkpoint=checkpoint,
                    published=published,
                )
                for _ in range(depth)
            )

        self.stem = LinearNormReLU(in_channels, channels[0], bias=False)
        *up, bottom = (stage(level, depth) for level, depth in enumerate(decoder_depths))
        self.unet = UNet(
            encoder=[stage(level, depth) for level, depth in enumerate(depths)],
            down=[
                TransitionDown(fine, coarse, k, published=published)
                for (fine, coarse), k in zip(pairwise(channels), near[1:], strict=True)
            ],
            decoder=[
                DecoderStage(TransitionUp(coarse, fine), blocks)
                for (fine, coarse), blocks in zip(pairwise(channels), up, strict=True)
            ],
            bottom=Bottom(channels[-1], bottom),
        )

    def plan(self, points: PointBatch, generator: torch.Generator | None = None) -> Hierarchy:
        """Find neighbours, sample farthest points, and find what to interpolate between.

        Args:
            points: the packed clouds.
            generator: not used: nothing is drawn.
        """
        del generator
        level, order = level_as_given(points), None
        if not self.published:
            level, order = canonical_level(points)
        levels = []
        for k, next_k, stride in zip(
            self.num_neighbors, (*self.num_neighbors[1:], 1), (*self.strides, None), strict=True
        ):
            # Sampled points are points: their neighbours are found with all others'.
            around = knn(level.coord, level.offsets, max(k, next_k))
            level = replace(level, neighbors=replace(around, distance=None))
            coarse = level
            if stride is not None:
                level, coarse = self._sample(level, stride)
            levels.append(level)
            level = coarse
        if order is not None:
            levels[0] = restore_rows(levels[0], order)
        return Hierarchy(levels=tuple(levels))

    def _sample(self, level: Level, stride: int) -> tuple[Level, Level]:
        """Return a level that knows how to reach the next, and the next."""
        counts = strided_counts(level.offsets, stride)
        if not self.published:
            counts = counts.maximum(level.offsets.diff().clamp(max=1))
        sampled, offsets = farthest_points(level.coord, level.offsets, counts)
        coarse = Level(
            coord=level.coord.index_select(0, sampled),
            grid_coord=level.grid_coord.index_select(0, sampled),
            offsets=offsets,
        )
        nearest = nearest_coarse(level, coarse)
        return replace(level, sampled=sampled, nearest_coarse=nearest), coarse

    def forward(self, feat: Float[Tensor, "n i"], hierarchy: Hierarchy) -> Float[Tensor, "n c"]:
        """Compute features along a plan."""
        return self.unet(self.stem(feat), hierarchy)

    def make_head(self, num_classes: int) -> nn.Module:
        """Make the published head, of two layers."""
        return HiddenHead(self.out_channels, num_classes)


class Block(nn.Module):
    """The point transformer block (figure 4a): linear, vector attention, linear; and the residual.

    Attention is equations 3 and 4. A batch norm and a ReLU follow each; the last ReLU is after the
    sum.
    """

    def __init__(
        self, channels: int, k: int, *, share_channels: int, checkpoint: bool, published: bool
    ):
        super().__init__()
        self.k = k
        self.fc1 = Linear(channels, channels, bias=False)
        self.norm1 = BatchNorm(channels, NORM_EPS, NORM_MOMENTUM)
        self.attention = VectorAttention(
            channels, share_channels=share_channels, checkpoint=checkpoint, published=published
        )
        self.norm2 = BatchNorm(channels, NORM_EPS, NORM_MOMENTUM)
        self.fc2 = Linear(channels, channels, bias=False)
        self.norm3 = BatchNorm(channels, NORM_EPS, NORM_MOMENTUM)

    def forward(self, feat: Float[Tensor, "n c"], level: Level) -> Float[Tensor, "n c"]:
        """Let each point attend to the k nearest."""
        assert level.neighbors is not None
        hidden = self.norm1(self.fc1(feat)).relu()
        hidden = self.attention(hidden, level.coord, level.neighbors.first(self.k))
        hidden = self.norm2(hidden).relu()
        return (feat + self.norm3(self.fc2(hidden))).relu()


class TransitionDown(nn.Module):
    """Figure 4b: each sampled point takes the largest of its k neighbours in the finer level.

    A neighbour's offset and features pass a linear layer, batch norm over all pairs, and ReLU.
    """

    def __init__(self, in_channels: int, out_channels: int, k: int, *, published: bool):
        super().__init__()
        self.k, self.published = k, published
        self.linear = Linear(3 + in_channels, out_channels, bias=False)
        self.norm = BatchNorm(out_channels, NORM_EPS, NORM_MOMENTUM)

    def forward(self, feat: Float[Tensor, "n i"], level: Level) -> Float[Tensor, "m c"]:
        """Bring the rows of a level to the next."""
        assert level.neighbors is not None and level.sampled is not None
        around = level.neighbors.rows(level.sampled).first(self.k)
        m, k = around.index.shape
        rows = around.index.flatten()
        middle = level.coord.index_select(0, level.sampled)
        offset = level.coord.index_select(0, rows).view(m, k, 3) - middle[:, None]
        # A layer of (offset, features), in two parts: features pass theirs once a point, not once
        # a pair.
        by_offset, by_feat = self.linear.weight.tensor_split([3], 1)
        told = backend.linear(feat, by_feat).index_select(0, rows)
        hidden = told + backend.linear(offset.view(m * k, 3).to(feat.dtype), by_offset)
        valid = None if around.valid is None else around.valid.flatten()
        if valid is not None and self.published:
            hidden, valid = hidden.masked_fill(~valid[:, None], 0), None
        hidden = self.norm(hidden, valid).relu()
        if valid is not None:
            # No ReLU is below 0, and each sampled point has a neighbour: itself.
            hidden = hidden.masked_fill(~valid[:, None], 0)
        return hidden.view(m, k, hidden.shape[1]).amax(1)


class TransitionUp(nn.Module):
    """Figure 4c: coarse features, interpolated between the three nearest, and the encoder's, added.

    Each first passes a linear layer, batch norm and ReLU.
    """

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.up = LinearNormReLU(in_channels, out_channels)
        self.skip = LinearNormReLU(out_channels, out_channels)

    def forward(
        self, feat: Float[Tensor, "m i"], skip: Float[Tensor, "n c"], level: Level
    ) -> Float[Tensor, "n c"]:
        """Bring coarse rows to the points of a level."""
        assert level.nearest_coarse is not None
        return self.skip(skip) + interpolate(self.up(feat), level.nearest_coarse)


class Bottom(nn.Module):
    """The first decoder stage: where there is nothing coarser, the mean of the cloud comes up.

    As released; the paper has an MLP here. The mean passes a linear layer and ReLU, and with a
    point's features a linear layer, batch norm and ReLU; then a stage.
    """

    def __init__(self, channels: int, stage: Stage):
        super().__init__()
        self.mean = Linear(channels, channels)
        self.join = LinearNormReLU(2 * channels, channels)
        self.stage = stage

    def forward(self, feat: Float[Tensor, "n c"], level: Level) -> Float[Tensor, "n c"]:
        """Tell every point of its whole cloud, and run the blocks."""
        batch = batch_from_offsets(level.offsets, level.num_points)
        whole = self.mean(segment_mean(feat, level.offsets)).relu().index_select(0, batch)
        return self.stage(self.join(torch.cat([feat, whole], 1)), level)
