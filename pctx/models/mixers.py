"""Mixers: attentions of several kinds, all called as mixer(feat, level).

n points of a level, k neighbours a point, c channels.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pctx.geometry.hierarchy import Level
from pctx.geometry.neighbors import Neighborhood
from pctx.geometry.windows import Windows
from pctx.nn.attention import WindowAttention
from pctx.nn.neighbor_attention import NeighborAttention
from pctx.nn.position import CoordinateMLP

Unit = Literal["metres", "voxels"]
"""What a position is counted in: the points' coordinates, or their voxels' numbers."""


class WindowMixer(nn.Module):
    """Dot-product attention in the windows of a turn, with a bias or none.

    Args:
        attention: called as attention(feat, windows, bias).
        bias: called as bias(position, windows).
        unit: of the position.
        turn: the place of the block in its stage.
    """

    def __init__(self, attention: WindowAttention, bias: nn.Module | None, unit: Unit, turn: int):
        super().__init__()
        self.attention, self.bias = attention, bias
        self.unit, self.turn = unit, turn

    def forward(self, feat: Float[Tensor, "n c"], level: Level) -> Float[Tensor, "n c"]:
        """Let the points of each window attend to one another."""
        windows = _windows(level, self.turn)
        if self.bias is None:
            return self.attention(feat, windows)
        return self.attention(feat, windows, self.bias(_position(level, feat, self.unit), windows))


class PlacedMixer(nn.Module):
    """Attention that takes in where the points are, in the windows of a turn or to neighbours.

    Args:
        attention: called as attention(feat, position, windows or neighbours).
        unit: of the position.
        turn: the place of the block in its stage.
    """

    def __init__(self, attention: nn.Module, unit: Unit, turn: int):
        super().__init__()
        self.attention = attention
        self.unit, self.turn = unit, turn

    def forward(self, feat: Float[Tensor, "n c"], level: Level) -> Float[Tensor, "n c"]:
        """Let each point attend to those around it."""
        around: Neighborhood | Windows | None = level.neighbors
        if around is None:
            around = _windows(level, self.turn)
        return self.attention(feat, _position(level, feat, self.unit), around)


class NeighborMixer(nn.Module):
    """Dot-product attention to neighbours, with a bias or none.

    Args:
        attention: called as attention(feat, neighbours, bias).
        bias: from metres to a number a head.
    """

    def __init__(self, attention: NeighborAttention, bias: CoordinateMLP | None):
        super().__init__()
        self.attention, self.bias = attention, bias

    def forward(self, feat: Float[Tensor, "n c"], level: Level) -> Float[Tensor, "n c"]:
        """Let each point attend to its neighbours."""
        around = level.neighbors
        assert around is not None
        if self.bias is None:
            return self.attention(feat, around)
        coord = _position(level, feat, "metres")
        there = coord.index_select(0, around.index.reshape(-1)).view(*around.index.shape, 3)
        offset = (there - coord[:, None]).to(feat.dtype)
        bias = self.bias(offset, around.valid)  # (n, k, h)
        return self.attention(feat, around, bias.transpose(1, 2)[:, :, None])


def _windows(level: Level, turn: int) -> Windows:
    return level.windows[turn % len(level.windows)]


def _position(level: Level, feat: Tensor, unit: Unit) -> Tensor:
    if unit == "voxels":
        return level.grid_coord
    # With the digits of the features, but never fewer than positions have.
    return level.coord.to(torch.promote_types(level.coord.dtype, feat.dtype))
