"""Swin3D: attention in cubic windows that reads how positions, colours and normals differ.

Yang et al., "Swin3D: A Pretrained Transformer Backbone for 3D Indoor Scene Understanding", 2023
(arXiv 2304.06906). What the paper leaves open is as in the released code, but where said.

n points of a level, m points of the next, c channels, i and s input channels, a signals a point.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from operator import mul

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pctx.geometry.canonical import canonical_level, restore_rows
from pctx.geometry.hierarchy import Hierarchy, Level, nearest_coarse
from pctx.geometry.kernel_map import kernel_maps
from pctx.geometry.neighbors import knn
from pctx.geometry.points import PointBatch
from pctx.geometry.pooling import nearest_to_mean, stride_pooling
from pctx.geometry.window_parts import part_windows
from pctx.geometry.windows import grid_windows
from pctx.models.arguments import count_levels, per_level, require_entries, require_numbers
from pctx.models.backbone import Backbone
from pctx.models.head import HiddenHead
from pctx.models.unet import Stage, UNet, rising
from pctx.nn.block import TransformerBlock
from pctx.nn.contextual import ContextualEncoding
from pctx.nn.contextual_attention import ContextualWindowAttention
from pctx.nn.linear import Linear
from pctx.nn.mlp import NORM_EPS, NORM_MOMENTUM, BatchNorm
from pctx.nn.parted_attention import PartedAttention
from pctx.nn.resample import interpolate
from pctx.nn.sparse_conv import SubmanifoldConv3d

STEM_KERNEL = 3

PARTS = 64
"""Of a voxel, to which positions are rounded: so equal offsets are read alike wherever they lie."""


class Swin3D(Backbone):
    """The network for segmentation; the defaults are its small size, Swin3D-S, on ScanNet.

    A convolution, an encoder of `len(depths)` levels, and a decoder back to the points. Blocks
    attend in cubes, every other one in cubes that begin half an edge earlier.

    A level's points are voxels, each with the position, colour and normal of one point of the
    cloud. Of the voxels that become a coarser one, that next to their mean position stands for it.
    Cubes and coarse voxels are counted from the lowest corner of each cloud (as released, from the
    origin), so that whole-voxel translations change nothing.

    Args:
        in_channels: channels of the points.
        color: the first of three channels that hold the colour, which blocks then compare; None if
            they do not. Differences up to 2 are told apart, in steps of an eighth: the published
            range is -1 to 1.
        normal: the first of three channels that hold the normal, likewise.
        grid_size: edge of a voxel in metres, to compare where in its voxel a point lies; None takes
            the voxel for the position.
        channels: a number a level, for encoder and decoder.
        depths: blocks of each encoder stage.
        num_heads: of each level.
        window_edges: of the cubes, in voxels of their level; one number, or one a level.
        window_size: the most points a window, as memory grows with its square; a cube of more is
            split. None holds every cube whole, as published.
        strides: voxels merged an axis between a level and the next, from 2; on S3DIS all are 2.
        num_neighbors: fine points near a coarse one, whose largest features it takes.
        quant: steps of a voxel's edge that offsets are told apart by.
        decoder_depths: blocks of each decoder stage; 0 is the released "linear" up-sampling, 1 its
            "linear_attn".
        mlp_ratio: hidden channels of a block's MLP over its channels.
        drop_path: share of clouds that the encoder's last block leaves out; rises from 0.
        decoder_drop_path: that of every block of the decoder.
        checkpoint: keep the input of each block only, and compute it again in the backward.

    Raises:
        ValueError: if a number makes no sense, or the numbers a level disagree in how many levels
            there are.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        color: int | None = None,
        normal: int | None = None,
        grid_size: float | None = None,
        channels: Sequence[int] = (48, 96, 192, 384, 384),
        depths: Sequence[int] = (2, 4, 9, 4, 4),
        num_heads: Sequence[int] = (6, 6, 12, 24, 24),
        window_edges: int | Sequence[int] = (5, 7, 7, 7, 7),
        window_size: int | None = None,
        strides: Sequence[int] = (3, 2, 2, 2),
        num_neighbors: int = 16,
        quant: int = 4,
        decoder_depths: Sequence[int] = (1, 1, 1, 1),
        mlp_ratio: float = 4.0,
        drop_path: float = 0.3,
        decoder_drop_path: float = 0.1,
        checkpoint: bool = False,
    ):
        super().__init__()
        count = count_levels(channels)
        edges = per_level(window_edges, count)
        optional = {"grid_size": grid_size, "window_size": window_size}
        require_numbers(
            in_channels=in_channels,
            num_neighbors=num_neighbors,
            quant=quant,
            mlp_ratio=mlp_ratio,
            drop_path=drop_path,
            decoder_drop_path=decoder_drop_path,
            **{name: value for name, value in optional.items() if value is not None},
        )
        require_entries(
            count, channels=channels, depths=depths, num_heads=num_heads, window_edges=edges
        )
        require_entries(count - 1, strides=strides, decoder_depths=decoder_depths)
        self.in_channels, self.out_channels = in_channels, channels[0]
        self.compared = list(_columns(in_channels, color=color, normal=normal))
        self.grid_size, self.strides = grid_size, tuple(strides)
        self.window_edges, self.window_size = edges, window_size
        self.num_neighbors = num_neighbors

        def block(level: int, turn: int, drop: float) -> Block:
            width, heads, edge = channels[level], num_heads[level], edges[level]
            if width % heads:
                raise ValueError(f"channels {width} must be a multiple of num_heads {heads}")
            groups = 1 + len(self.compared) // 3
            encoding = ContextualEncoding.crse(heads, width // heads, edge, groups, quant)
            inner = TransformerBlock(
                width,
                PartedAttention(ContextualWindowAttention(width, encoding)),
                mlp_ratio=mlp_ratio,
                drop_path=drop,
                checkpoint=checkpoint,
            )
            return Block(inner, turn)

        def stage(level: int, drops: Sequence[float]) -> Stage:
            return Stage(block(level, turn, drop) for turn, drop in enumerate(drops))

        self.stem = Stem(in_channels, channels[0])
        self.unet = UNet(
            encoder=[stage(*each) for each in enumerate(rising(drop_path, depths))],
            down=[KNNDown(fine, coarse) for fine, coarse in pairwise(channels)],
            decoder=[
                DecoderStage(coarse, fine, stage(level, [decoder_drop_path] * depth))
                for level, ((fine, coarse), depth) in enumerate(
                    zip(pairwise(channels), decoder_depths, strict=True)
                )
            ],
        )

    def plan(self, points: PointBatch, generator: torch.Generator | None = None) -> Hierarchy:
        """Merge voxels, cut cubes, and find the points near one another on two levels.

        Args:
            points: the packed clouds.
            generator: not used: nothing is drawn.
        """
        del generator
        level, order = canonical_level(points)
        levels = []
        for stride in self.strides:
            level, coarse = self._merge(level, stride)
            levels.append(level)
            level = coarse
        levels.append(level)
        first = restore_rows(levels[0], order)
        maps = kernel_maps(first.grid_coord, first.offsets, [STEM_KERNEL])
        levels[0] = replace(first, kernel_maps=maps)
        orders = [order, *[None] * len(self.strides)]
        cut = map(self._cut, levels, self.window_edges, orders)
        return Hierarchy(levels=tuple(cut))

    def _merge(self, level: Level, stride: int) -> tuple[Level, Level]:
        """Return a level that knows how to reach the next and to come back, and the next."""
        pooling, offsets, cells = stride_pooling(level.grid_coord, level.offsets, stride)
        sampled = nearest_to_mean(level.coord, pooling)
        coord = level.coord.index_select(0, sampled)
        k = self.num_neighbors
        around = knn(level.coord, level.offsets, k, query=coord, query_offsets=offsets)
        coarse = Level(coord=coord, grid_coord=cells, offsets=offsets)
        nearest = nearest_coarse(level, coarse)
        fine = replace(
            level, pooling=pooling, sampled=sampled, nearest_fine=around, nearest_coarse=nearest
        )
        return fine, coarse

    def _cut(self, level: Level, edge: int, order: Tensor | None) -> Level:
        """Add the cubes of either turn; the points of one that is split follow the order."""
        cut = partial(
            grid_windows, level.grid_coord, level.offsets, edge, order=order, slots=self.window_size
        )
        windows = (cut(), cut(shift=edge // 2))
        return replace(level, windows=windows, window_parts=tuple(map(part_windows, windows)))

    def forward(self, feat: Float[Tensor, "n i"], hierarchy: Hierarchy) -> Float[Tensor, "n c"]:
        """Compute features along a plan."""
        signals = list(self._signals(feat, hierarchy))
        return self.unet(self.stem(feat, hierarchy.levels[0]), hierarchy, signals)

    def make_head(self, num_classes: int) -> nn.Module:
        """Make the published head, of two layers."""
        return HiddenHead(self.out_channels, num_classes)

    def _signals(self, feat: Tensor, hierarchy: Hierarchy) -> Iterator[Tensor]:
        """Yield what blocks compare, a level at a time: position in its voxels, colour, normal."""
        finest = hierarchy.levels[0]
        place = finest.grid_coord if self.grid_size is None else finest.coord / self.grid_size
        place = place.float()
        beside = feat[:, self.compared].detach().float()
        edges = accumulate(self.strides, mul, initial=1)
        for level, edge in zip(hierarchy.levels, edges, strict=True):
            yield torch.cat([(place * (PARTS / edge)).round() / PARTS, beside], 1)
            if level.sampled is not None:
                place = place.index_select(0, level.sampled)
                beside = beside.index_select(0, level.sampled)


class Stem(nn.Module):
    """The initial feature embedding: submanifold convolution, batch norm, ReLU."""

    def __init__(self, in_channels: int, channels: int):
        super().__init__()
        self.conv = SubmanifoldConv3d(in_channels, channels, STEM_KERNEL, bias=False)
        self.norm = BatchNorm(channels, NORM_EPS, NORM_MOMENTUM)

    def forward(self, feat: Float[Tensor, "n i"], level: Level) -> Float[Tensor, "n c"]:
        """Embed the points' channels."""
        return self.norm(self.conv(feat, level.kernel_maps[STEM_KERNEL])).relu()


class Block(nn.Module):
    """Attention in the cubes of a turn, with contextual relative signal encoding (cRSE), then MLP.

        feat = feat + attention(LN(feat))
        feat = feat + MLP(LN(feat))

    `ContextualEncoding` has cRSE.
    """

    def __init__(self, block: TransformerBlock, turn: int):
        super().__init__()
        self.block, self.turn = block, turn

    def forward(
        self, feat: Float[Tensor, "n c"], level: Level, signal: Float[Tensor, "n a"]
    ) -> Float[Tensor, "n c"]:
        """Mix the points of each cube."""
        turn = self.turn % len(level.windows)
        windows, parts = level.windows[turn], level.window_parts[turn]
        return self.block(feat, level.offsets, signal, windows, parts)


class KNNDown(nn.Module):
    """Layer norm and linear; a coarse point takes the largest of the fine points nearest to it."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.norm = nn.LayerNorm(in_channels)
        self.linear = Linear(in_channels, out_channels, bias=False)

    def forward(self, feat: Float[Tensor, "n i"], level: Level) -> Float[Tensor, "m c"]:
        """Bring the rows of a level to the next."""
        around = level.nearest_fine
        assert around is not None
        m, k = around.index.shape
        hidden = self.linear(self.norm(feat))
        # Masked places name a point of the cloud: where there are any, all points are near.
        rows = hidden.index_select(0, around.index.flatten())
        return rows.view(m, k, hidden.shape[1]).amax(1)


class DecoderStage(nn.Module):
    """Coarse features, interpolated between the three nearest, and the encoder's; then blocks.

    Each first passes a layer norm and a linear layer; they are added.
    """

    def __init__(self, in_channels: int, channels: int, stage: Stage):
        super().__init__()
        self.up = nn.Sequential(nn.LayerNorm(in_channels), Linear(in_channels, channels))
        self.skip = nn.Sequential(nn.LayerNorm(channels), Linear(channels, channels))
        self.stage = stage

    def forward(
        self,
        feat: Float[Tensor, "m i"],
        skip: Float[Tensor, "n c"],
        level: Level,
        signal: Float[Tensor, "n a"],
    ) -> Float[Tensor, "n c"]:
        """Bring coarse rows to the points of a level, and run the blocks."""
        assert level.nearest_coarse is not None
        joined = self.skip(skip) + interpolate(self.up(feat), level.nearest_coarse)
        return self.stage(joined, level, signal)


def _columns(in_channels: int, **groups: int | None) -> Iterator[int]:
    """Yield the three channels of each group, given by its first."""
    for name, first in groups.items():
        if first is not None and not 0 <= first <= in_channels - 3:
            raise ValueError(
                f"{name} must be the first of three of the {in_channels} channels, found {first}"
            )
        yield from () if first is None else range(first, first + 3)
