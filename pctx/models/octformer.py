"""OctFormer: attention in windows of equally many octree nodes.

Wang, "OctFormer: Octree-based Transformers for 3D Point Clouds", SIGGRAPH 2023 (arXiv 2305.03045).

n points or nodes of a level, m nodes of another, c channels, i input channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pctx.geometry.hierarchy import Hierarchy, Level
from pctx.geometry.kernel_map import KernelMap, kernel_maps
from pctx.geometry.octree import cube_leaves, octree_levels, parent_maps, voxel_leaves
from pctx.geometry.packed import segment_mean
from pctx.geometry.points import PointBatch
from pctx.geometry.windows import Windows, octree_windows
from pctx.models.arguments import count_levels, require_entries, require_numbers
from pctx.models.backbone import Backbone
from pctx.models.head import HiddenHead
from pctx.models.unet import Stage, rising
from pctx.nn.attention import WindowAttention
from pctx.nn.block import TransformerBlock
from pctx.nn.linear import Linear
from pctx.nn.mlp import NORM_EPS, NORM_MOMENTUM, BatchNorm
from pctx.nn.position import DepthwiseConditionalEncoding
from pctx.nn.relative import RelativePositionBias
from pctx.nn.resample import unpool
from pctx.nn.sparse_conv import SparseConv3d, SparseInverseConv3d, SubmanifoldConv3d

KERNEL = 3
DOWN_KERNEL = 2


class OctFormer(Backbone):
    """The published segmentation network; the defaults are its size.

    The points of a leaf are averaged. A stem goes `stem_levels` up the octree; there begin the
    stages, each a level coarser than the one before. A feature pyramid brings them back to the
    first, transposed convolutions to the leaves, and each point copies its leaf.

    Args:
        in_channels: channels of the points.
        channels: a number a stage.
        depths: blocks of each stage.
        num_heads: of each stage.
        window_size: nodes in a window.
        dilation: of the windows of every second block.
        stem_levels: levels from the leaves to the first stage; 0 makes the leaves its nodes.
        pyramid_channels: of the pyramid, and of the result.
        mlp_ratio: hidden channels of a block's MLP over its channels.
        drop_path: share of clouds that the last block leaves out in training; rises from 0.
        norm_eps: of the batch norms after convolutions of stem, pyramid and back to the leaves;
            weights that were trained with ocnn 2.2.0 expect 1e-3.
        octree_depth: levels of the published octree.
        octree_scale: half the edge of its cube, metres.
        published: as released, the octree is one over `coord`, in a cube around the origin that
            must hold all points (leaves of 0.01 m by default), and windows are cut from the nodes
            of all clouds in a row, so that a cloud depends on those before it. False makes voxels
            the leaves, counted from each cloud's lowest corner, so that any extent fits and
            translations by whole voxels change nothing, and cuts each cloud by itself.

    Raises:
        ValueError: if a number makes no sense, or the numbers a stage disagree in how many stages
            there are.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        channels: Sequence[int] = (96, 192, 384, 384),
        depths: Sequence[int] = (2, 2, 18, 2),
        num_heads: Sequence[int] = (6, 12, 24, 24),
        window_size: int = 26,
        dilation: int = 4,
        stem_levels: int = 2,
        pyramid_channels: int = 168,
        mlp_ratio: float = 4.0,
        drop_path: float = 0.5,
        norm_eps: float = NORM_EPS,
        octree_depth: int = 11,
        octree_scale: float = 10.24,
        published: bool = False,
    ):
        super().__init__()
        count = count_levels(channels)
        require_numbers(
            in_channels=in_channels,
            window_size=window_size,
            dilation=dilation,
            stem_levels=stem_levels,
            pyramid_channels=pyramid_channels,
            mlp_ratio=mlp_ratio,
            drop_path=drop_path,
            norm_eps=norm_eps,
            octree_depth=octree_depth,
            octree_scale=octree_scale,
        )
        require_entries(count, channels=channels, depths=depths, num_heads=num_heads)
        if channels[0] < 2**stem_levels:
            raise ValueError(
                f"channels must begin with at least 2**stem_levels = {2**stem_levels}, as the stem "
                f"doubles them a level; found {list(channels)}"
            )
        self.in_channels, self.out_channels = in_channels, pyramid_channels
        self.window_size, self.dilations = window_size, (1, dilation)
        self.stem_levels, self.published = stem_levels, published
        self.octree_depth, self.octree_scale = octree_depth, octree_scale
        self.joins = tuple(range(1 + stem_levels, stem_levels + count))  # the pyramid

        def stage(width: int, heads: int, drops: Sequence[float]) -> Stage:
            return Stage(
                Block(
                    width,
                    heads,
                    turn=i % 2,
                    bound=RelativePositionBias.octformer_bound(window_size, self.dilations[i % 2]),
                    mlp_ratio=mlp_ratio,
                    drop_path=drop,
                )
                for i, drop in enumerate(drops)
            )

        self.stem = Stem(in_channels, channels[0], stem_levels, norm_eps)
        self.stages = nn.ModuleList(
            stage(*each)
            for each in zip(channels, num_heads, rising(drop_path, depths), strict=True)
        )
        self.down = nn.ModuleList(Downsample(a, b) for a, b in pairwise(channels))
        self.pyramid = FeaturePyramid(channels, pyramid_channels, norm_eps)
        self.up = nn.ModuleList(
            ConvNormReLU(SparseInverseConv3d(c, c, KERNEL, bias=False), norm_eps)
            for c in [pyramid_channels] * stem_levels
        )

    def plan(self, points: PointBatch, generator: torch.Generator | None = None) -> Hierarchy:
        """Build the octree and cut its levels into windows, dilated ones for every second block.

        Level 0 has the points, level 1 the leaves.

        Args:
            points: the packed clouds.
            generator: not used: nothing is drawn.
        """
        del generator
        if self.published:
            leaf = cube_leaves(points.coord, self.octree_scale, self.octree_depth)
        else:
            leaf = voxel_leaves(points)
        bare, *nodes = octree_levels(points, leaf, self.stem_levels + len(self.stages))
        levels = [bare]
        for height, level in enumerate(nodes):
            strided = {}
            if height + 1 < len(nodes):
                sizes = [DOWN_KERNEL, KERNEL] if height < self.stem_levels else [DOWN_KERNEL]
                strided = parent_maps(level, nodes[height + 1], sizes)
            level = replace(
                level,
                windows=self._cut(level) if height >= self.stem_levels else (),
                kernel_maps=kernel_maps(level.grid_coord, level.offsets, [KERNEL]),
                strided_maps=strided,
            )
            levels.append(level)
        return Hierarchy(levels=tuple(levels))

    def _cut(self, level: Level) -> tuple[Windows, ...]:
        order = torch.arange(level.num_points, device=level.offsets.device)
        return tuple(
            octree_windows(
                order, level.offsets, self.window_size, dilation, published=self.published
            )
            for dilation in self.dilations
        )

    def forward(self, feat: Float[Tensor, "n i"], hierarchy: Hierarchy) -> Float[Tensor, "n c"]:
        """Compute features along a plan."""
        points, *nodes = hierarchy.levels
        assert points.pooling is not None
        feat = segment_mean(feat.index_select(0, points.pooling.order), points.pooling.starts)
        feat = self.stem(feat, nodes)
        coarser = nodes[self.stem_levels :]
        outcomes = []
        for stage, level, down in zip(self.stages, coarser, [*self.down, None], strict=True):
            feat = stage(feat, level)
            outcomes.append(feat)
            if down is not None:
                feat = down(feat, level)
        feat = self.pyramid(outcomes, coarser)
        for up, level in zip(self.up, reversed(nodes[: self.stem_levels]), strict=True):
            feat = up(feat, level.strided_maps[KERNEL])
        return unpool(feat, points.pooling)

    def layers_in_order(self) -> list[nn.Module]:
        """List the parts from the points on: stem, stages with the steps to them, and the way back.

        See `Backbone.layers_in_order`.
        """
        first, *coarser = self.stages
        down = map(nn.ModuleList, zip(self.down, coarser, strict=True))
        return [self.stem, first, *down, self.pyramid, *self.up]

    def make_head(self, num_classes: int) -> nn.Module:
        """Make the published head, of two layers."""
        return HiddenHead(self.out_channels, num_classes)


class ConvNormReLU(nn.Module):
    """A convolution over nodes, batch norm, ReLU."""

    def __init__(
        self, conv: SubmanifoldConv3d | SparseConv3d | SparseInverseConv3d, norm_eps: float
    ):
        super().__init__()
        self.conv = conv
        self.norm = BatchNorm(len(conv.weight), norm_eps, NORM_MOMENTUM)

    def forward(self, feat: Float[Tensor, "n i"], pairs: KernelMap) -> Float[Tensor, "m c"]:
        """Convolve along a kernel map."""
        return self.norm(self.conv(feat, pairs)).relu()


class Stem(nn.Module):
    """Convolutions at the leaves and above, each followed by one to the parents: the embedding.

    Channels double from level to level, up to those of the first stage.
    """

    def __init__(self, in_channels: int, channels: int, levels: int, norm_eps: float):
        super().__init__()
        widths = [channels >> (levels - i) for i in range(levels + 1)]
        inputs = [in_channels, *widths[1:]]
        self.convs = nn.ModuleList(
            ConvNormReLU(SubmanifoldConv3d(i, o, KERNEL, bias=False), norm_eps)
            for i, o in zip(inputs[:levels], widths[:levels], strict=True)
        )
        self.down = nn.ModuleList(
            ConvNormReLU(SparseConv3d(i, o, DOWN_KERNEL, bias=False), norm_eps)
            for i, o in pairwise(widths)
        )
        proj = SubmanifoldConv3d(inputs[-1], channels, KERNEL, bias=False)
        self.proj = ConvNormReLU(proj, norm_eps)

    def forward(self, feat: Float[Tensor, "n i"], nodes: Sequence[Level]) -> Float[Tensor, "m c"]:
        """Embed the leaves' channels, `nodes` being the levels from the leaves on."""
        level = nodes[0]
        for conv, down, parent in zip(self.convs, self.down, nodes[1:], strict=False):
            feat = conv(feat, level.kernel_maps[KERNEL])
            feat = down(feat, level.strided_maps[DOWN_KERNEL])
            level = parent
        return self.proj(feat, level.kernel_maps[KERNEL])


class Block(nn.Module):
    """Conditional encoding (CPE), octree attention, MLP, with layer norms (LN).

        feat = feat + CPE(feat)
        feat = feat + attention(LN(feat))
        feat = feat + MLP(LN(feat))

    Attention has a learned bias by the offset between nodes (`RelativePositionBias`).
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        turn: int,
        bound: int,
        mlp_ratio: float,
        drop_path: float,
    ):
        super().__init__()
        self.turn = turn
        self.encoding = DepthwiseConditionalEncoding(channels, KERNEL)
        self.relative_bias = RelativePositionBias(num_heads, bound)
        self.transformer = TransformerBlock(
            channels, WindowAttention(channels, num_heads), mlp_ratio=mlp_ratio, drop_path=drop_path
        )

    def forward(self, feat: Float[Tensor, "n c"], level: Level) -> Float[Tensor, "n c"]:
        """Mix neighbours, then the nodes of each window."""
        feat = feat + self.encoding(feat, level.kernel_maps[KERNEL])
        windows = level.windows[self.turn]
        bias = self.relative_bias(level.grid_coord, windows)
        return self.transformer(feat, level.offsets, windows, bias)


class Downsample(nn.Module):
    """A convolution to the parents, batch norm."""

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.conv = SparseConv3d(in_channels, out_channels, DOWN_KERNEL)
        self.norm = BatchNorm(out_channels, NORM_EPS, NORM_MOMENTUM)

    def forward(self, feat: Float[Tensor, "n i"], level: Level) -> Float[Tensor, "m c"]:
        """Bring the nodes of a level to their parents."""
        return self.norm(self.conv(feat, level.strided_maps[DOWN_KERNEL]))


class FeaturePyramid(nn.Module):
    """The outcomes of all stages, convolved at their levels and summed at the finest.

    (Lin et al., Feature Pyramid Networks for Object Detection, 2017.)
    """

    def __init__(self, in_channels: Sequence[int], channels: int, norm_eps: float):
        super().__init__()
        # From the coarsest stage on.
        self.lateral = nn.ModuleList(Linear(i, channels) for i in reversed(in_channels))
        self.convs = nn.ModuleList(
            ConvNormReLU(SubmanifoldConv3d(channels, channels, KERNEL, bias=False), norm_eps)
            for _ in in_channels
        )

    def forward(self, outcomes: Sequence[Tensor], levels: Sequence[Level]) -> Float[Tensor, "m c"]:
        """Sum the stages, which come from fine to coarse."""
        feat = self.lateral[0](outcomes[-1])
        total: Tensor = self.convs[0](feat, levels[-1].kernel_maps[KERNEL])
        for lateral, conv, outcome, level in zip(
            self.lateral[1:], self.convs[1:], outcomes[-2::-1], levels[-2::-1], strict=True
        ):
            assert level.pooling is not None
            feat = lateral(outcome) + unpool(feat, level.pooling)
            total = unpool(total, level.pooling) + conv(feat, level.kernel_maps[KERNEL])
        return total
