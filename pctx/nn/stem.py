"""ConvStem: how voxels enter a network.

n points, i input channels, c channels.
"""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from pctx.geometry.hierarchy import Level
from pctx.nn.mlp import BATCH_NORM_MOMENTUM, BatchNorm
from pctx.nn.sparse_conv import SubmanifoldConv3d

STEM_KERNEL = 5
"""As released with Point Transformer V3; LitePT has the same."""


class ConvStem(nn.Module):
    """Submanifold convolution, batch norm, exact GELU."""

    def __init__(self, in_channels: int, channels: int, norm_momentum: float = BATCH_NORM_MOMENTUM):
        super().__init__()
        self.conv = SubmanifoldConv3d(in_channels, channels, STEM_KERNEL, bias=False)
        self.norm = BatchNorm(channels, momentum=norm_momentum)

    def forward(self, feat: Float[Tensor, "n i"], level: Level) -> Float[Tensor, "n c"]:
        """Embed the points' channels, along the level's kernel map of `STEM_KERNEL`."""
        return F.gelu(self.norm(self.conv(feat, level.kernel_maps[STEM_KERNEL])))
