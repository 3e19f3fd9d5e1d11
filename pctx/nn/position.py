"""Where a point is, told to a network: coordinate MLP, relative bias, conditional encoding.

n points, c channels, w windows, k slots a window, h heads.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pctx.geometry.kernel_map import KernelMap
from pctx.geometry.windows import Windows
from pctx.nn.mlp import BatchNorm, Linear
from pctx.nn.sparse_conv import SubmanifoldConv3d

TABLE_STD = 0.02
"""Spread of a fresh bias table, as published with Swin (Liu et al., 2021) and PTv3."""


class ConditionalEncoding(nn.Module):
    """Position out of which neighbours exist: submanifold convolution, linear, layer norm.

    The residual stays outside: `feat + encode(feat, …)`. (xCPE: Wu et al., Point Transformer V3,
    2024, section 4.3; after Chu et al., Conditional Positional Encodings, 2023.)
    """

    def __init__(self, channels: int, kernel_size: int = 3):
        super().__init__()
        self.conv = SubmanifoldConv3d(channels, channels, kernel_size)
        self.linear = Linear(channels, channels)
        self.norm = nn.LayerNorm(channels)

    def forward(self, feat: Float[Tensor, "n c"], kernel_map: KernelMap) -> Float[Tensor, "n c"]:
        """Encode each voxel by the features around it."""
        return self.norm(self.linear(self.conv(feat, kernel_map)))


class RelativePositionBias(nn.Module):
    """A learned number for each voxel offset between query and key, one table an axis and head.

    Offsets are clamped to the bound; the three axes' numbers are added. (Wu et al., Point
    Transformer V3, 2024, section 4.1; tables after Lai et al., Stratified Transformer, 2022.)

    Attributes:
        table: (3 * (2 * bound + 1), heads): x offsets from -bound to bound, then y, then z.
    """

    def __init__(self, num_heads: int, bound: int):
        super().__init__()
        self.bound = bound
        self.table = nn.Parameter(torch.empty(3 * (2 * bound + 1), num_heads))
        nn.init.trunc_normal_(self.table, std=TABLE_STD)

    @staticmethod
    def bound_for(window_size: int) -> int:
        """Return PTv3's bound for a window: twice the edge of a cube of four times its points."""
        return int((4 * window_size) ** (1 / 3) * 2)

    def forward(self, grid_coord: Int[Tensor, "n 3"], windows: Windows) -> Float[Tensor, "w h k k"]:
        """Look up the bias of every query (row) and key (column) of every window.

        Args:
            grid_coord: voxel numbers of the points.
            windows: a partition of the points.
        """
        w, k = windows.index.shape
        cells = grid_coord.index_select(0, windows.index.reshape(-1)).view(w, k, 3)
        by_head = self.table.t()  # (h, rows)
        bias = by_head.new_zeros(len(by_head), w * k * k)
        for axis in range(3):
            along = cells[..., axis]
            offset = (along[:, :, None] - along[:, None, :]).clamp(-self.bound, self.bound)
            row = offset + self.bound + axis * (2 * self.bound + 1)  # (w, k, k)
            bias = bias + by_head.index_select(1, row.reshape(-1))
        return bias.view(-1, w, k, k).transpose(0, 1)

    def extra_repr(self) -> str:
        """Show the bound."""
        return f"bound={self.bound}"


class CoordinateMLP(nn.Module):
    """Offsets in metres to channels: linear, batch norm, ReLU, linear.

    (Zhao et al., Point Transformer, 2021, equation 4, with 3 hidden channels; Wu et al., Point
    Transformer V2, 2022, equation 6, with as many as channels.)
    """

    def __init__(self, channels: int, hidden_channels: int = 3, *, eps: float = 1e-5):
        super().__init__()
        self.fc1 = Linear(3, hidden_channels)
        self.norm = BatchNorm(hidden_channels, eps=eps, momentum=0.1)
        self.fc2 = Linear(hidden_channels, channels)

    def forward(self, offset: Float[Tensor, "*n 3"]) -> Float[Tensor, "*n c"]:
        """Encode each offset; the norm runs over all of them."""
        hidden = self.norm(self.fc1(offset.reshape(-1, 3))).relu()
        return self.fc2(hidden).view(*offset.shape[:-1], self.fc2.out_features)
