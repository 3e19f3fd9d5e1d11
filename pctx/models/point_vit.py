"""PointViT: a plain vision transformer whose patches are cubes of points.

Dosovitskiy et al., "An Image Is Worth 16x16 Words", ICLR 2021 (arXiv 2010.11929); equations below
are its, where no other is named. The way from points to patches and back is ours.

n points, m patches, c channels of a patch, e channels of a point, i input channels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from pctx.geometry.canonical import canonical_level, restore_rows
from pctx.geometry.hierarchy import Hierarchy, Level, nearest_coarse
from pctx.geometry.kernel_map import kernel_maps
from pctx.geometry.packed import segment_mean
from pctx.geometry.points import PointBatch
from pctx.geometry.pooling import Pooling, stride_pooling
from pctx.geometry.windows import global_windows
from pctx.models.arguments import require_numbers
from pctx.models.backbone import Backbone
from pctx.models.unet import rising
from pctx.nn.attention import WindowAttention
from pctx.nn.block import TransformerBlock
from pctx.nn.linear import Linear
from pctx.nn.mlp import MLP, NORM_MOMENTUM, BatchNorm, LinearNorm
from pctx.nn.position import CoordinateMLP, SinusoidalEncoding
from pctx.nn.resample import interpolate, pool_max
from pctx.nn.sparse_conv import SubmanifoldConv3d

HIDDEN = 64
"""Channels inside a coordinate MLP of patch numbers."""

STEM_KERNEL = 3
"""Taps an axis of the stem's convolutions."""

WAVE = 1.0
"""Patches in which the shortest wave of the sinusoidal encoding turns by one radian."""


class PointViT(Backbone):
    """Patches of points attend to all patches of their cloud; the defaults are ViT-S's.

    Points are embedded, each with its place in its patch; patches take the largest of their
    points' features and, with their own place, pass the transformer (equations 1 to 4, without a
    class token); points read between the nearest patches.

    Args:
        in_channels: channels of the points.
        channels: of a patch; 192, 384 and 768 in ViT-Ti, -S and -B.
        depth: blocks.
        num_heads: 3, 6 and 12 in ViT-Ti, -S and -B.
        patch_edge: voxels an axis of a patch, from 2. Attention takes time in the square of the
            number of patches of a cloud: thousands are many.
        point_channels: of a point, before and after.
        stem_depth: convolutions over the points before they are cut into patches, which train
            much faster than patches cut from bare points (Xiao et al., "Early Convolutions Help
            Transformers See Better", 2021); 0 in ViT.
        position: how patches know where they are, both of patch numbers from the cloud's lowest
            corner: "sinusoidal", or "coordinate_mlp", which is learned.
        mlp_ratio: hidden channels of a block's MLP over its channels.
        drop_path: share of clouds that the last block leaves out in training; rises from 0.
        checkpoint: keep the input of each block only, and compute it again in the backward.

    Raises:
        ValueError: if an argument does not fit.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        channels: int = 384,
        depth: int = 12,
        num_heads: int = 6,
        patch_edge: int = 8,
        point_channels: int = 96,
        stem_depth: int = 0,
        position: Literal["sinusoidal", "coordinate_mlp"] = "sinusoidal",
        mlp_ratio: float = 4.0,
        drop_path: float = 0.1,
        checkpoint: bool = False,
    ):
        super().__init__()
        require_numbers(
            in_channels=in_channels,
            channels=channels,
            depth=depth,
            num_heads=num_heads,
            patch_edge=patch_edge,
            point_channels=point_channels,
            stem_depth=stem_depth,
            mlp_ratio=mlp_ratio,
            drop_path=drop_path,
        )
        if position not in ("sinusoidal", "coordinate_mlp"):
            raise ValueError(f"position must be sinusoidal or coordinate_mlp, found {position!r}")
        self.in_channels, self.out_channels = in_channels, point_channels
        self.patch_edge = patch_edge
        self.points = PointEmbedding(in_channels, point_channels, patch_edge)
        self.stem = nn.ModuleList(StemBlock(point_channels) for _ in range(stem_depth))
        self.patches = PatchEmbedding(point_channels, channels)
        self.position: nn.Module = (
            SinusoidalEncoding(channels, WAVE)
            if position == "sinusoidal"
            else CoordinateMLP(channels, HIDDEN)
        )
        self.blocks = nn.ModuleList(
            TransformerBlock(
                channels,
                WindowAttention(channels, num_heads),
                mlp_ratio=mlp_ratio,
                drop_path=drop,
                checkpoint=checkpoint,
            )
            for drop in rising(drop_path, [depth])[0]
        )
        self.norm = nn.LayerNorm(channels)
        self.back = PatchesToPoints(channels, point_channels)

    def plan(self, points: PointBatch, generator: torch.Generator | None = None) -> Hierarchy:
        """Cut each cloud into patches, from its lowest corner, and find those nearest to points.

        Args:
            points: the packed clouds.
            generator: not used: nothing is drawn.
        """
        del generator
        level, order = canonical_level(points)
        pooling, offsets, cells = stride_pooling(level.grid_coord, level.offsets, self.patch_edge)
        middle = segment_mean(level.coord.index_select(0, pooling.order), pooling.starts)
        patches = Level(
            coord=middle,
            grid_coord=cells,
            offsets=offsets,
            windows=(global_windows(offsets, len(cells)),),
        )
        nearest = nearest_coarse(level, patches)
        level = restore_rows(replace(level, pooling=pooling, nearest_coarse=nearest), order)
        sizes = [STEM_KERNEL] if self.stem else []
        maps = kernel_maps(level.grid_coord, level.offsets, sizes)
        return Hierarchy(levels=(replace(level, kernel_maps=maps), patches))

    def forward(self, feat: Float[Tensor, "n i"], hierarchy: Hierarchy) -> Float[Tensor, "n e"]:
        """Compute features along a plan."""
        level, patches = hierarchy.levels
        assert level.pooling is not None
        points = self.points(feat, level)
        for block in self.stem:
            points = block(points, level)
        place = self.position(patches.grid_coord.to(feat.dtype))
        hidden = self.patches(points, level.pooling) + place  # equation 1
        for block in self.blocks:
            hidden = block(hidden, patches.offsets, patches.windows[0])  # equations 2 and 3
        return self.back(self.norm(hidden), points, level)  # equation 4, for every patch

    def layers_in_order(self) -> list[nn.Module]:
        """List what makes the patches, the blocks, and the way back.

        See `Backbone.layers_in_order`.
        """
        embedding = nn.ModuleList([self.points, self.stem, self.patches, self.position])
        return [embedding, *self.blocks, nn.ModuleList([self.norm, self.back])]


class PointEmbedding(nn.Module):
    """Channels of a point, and where it lies in its patch: linear, batch norm, GELU.

    The place is counted in patches from the middle of its own, by whole voxels.
    """

    def __init__(self, in_channels: int, channels: int, patch_edge: int):
        super().__init__()
        self.patch_edge = patch_edge
        self.embed = LinearNorm(in_channels + 3, channels, NORM_MOMENTUM)

    def forward(self, feat: Float[Tensor, "n i"], level: Level) -> Float[Tensor, "n e"]:
        """Embed each point."""
        within = level.grid_coord % self.patch_edge
        place = (within.to(feat.dtype) + 0.5) / self.patch_edge - 0.5
        return self.embed(torch.cat([feat, place], 1))


class StemBlock(nn.Module):
    """Submanifold convolution, batch norm, exact GELU, added to its input."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv = SubmanifoldConv3d(channels, channels, STEM_KERNEL, bias=False)
        self.norm = BatchNorm(channels, momentum=NORM_MOMENTUM)

    def forward(self, feat: Float[Tensor, "n e"], level: Level) -> Float[Tensor, "n e"]:
        """Let each point see the voxels around it."""
        return feat + F.gelu(self.norm(self.conv(feat, level.kernel_maps[STEM_KERNEL])))


class PatchEmbedding(nn.Module):
    """The largest of what an MLP makes of a patch's points.

    (Qi et al., PointNet, 2017, equation 1.)
    """

    def __init__(self, point_channels: int, channels: int):
        super().__init__()
        self.mlp = MLP(point_channels, channels, channels)

    def forward(self, points: Float[Tensor, "n e"], pooling: Pooling) -> Float[Tensor, "m c"]:
        """Embed each patch."""
        return pool_max(self.mlp(points), pooling)


class PatchesToPoints(nn.Module):
    """A point's embedding, and patches interpolated between the three nearest; then an MLP.

    (Qi et al., PointNet++, 2017, equation 2, with p = 1.)
    """

    def __init__(self, channels: int, point_channels: int):
        super().__init__()
        self.up = Linear(channels, point_channels)
        self.norm = nn.LayerNorm(point_channels)
        self.mlp = MLP(point_channels, 2 * point_channels)

    def forward(
        self, hidden: Float[Tensor, "m c"], points: Float[Tensor, "n e"], level: Level
    ) -> Float[Tensor, "n e"]:
        """Tell each point what the patches around it know."""
        assert level.nearest_coarse is not None
        joined = points + interpolate(self.up(hidden), level.nearest_coarse)
        return joined + self.mlp(self.norm(joined))
