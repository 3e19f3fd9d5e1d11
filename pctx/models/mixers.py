"""Mixers: attentions of several kinds, all called as mixer(feat, level).

n points of a level, k neighbours a point, c channels, h heads.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pctx.geometry.hierarchy import Level
from pctx.geometry.neighbors import Neighborhood
from pctx.geometry.windows import Windows
from pctx.nn.attention import (
    WindowAttention,
    dot_product_attention,
    plain_dot_product_attention,
)
from pctx.nn.contextual import ContextualEncoding
from pctx.nn.neighbor_attention import NeighborAttention
from pctx.nn.pairs import PairAttention
from pctx.nn.position import CoordinateMLP
from pctx.nn.relative import CoordinateBias, RelativePositionBias, RotaryEncoding


class WindowMixer(nn.Module):
    """Dot-product attention in the windows of a turn, with a relative encoding or none."""

    def __init__(self, channels: int, num_heads: int, encoding: nn.Module | None, turn: int):
        super().__init__()
        self.attention = WindowAttention(channels, num_heads)
        self.encoding, self.turn = encoding, turn

    def forward(self, feat: Float[Tensor, "n c"], level: Level) -> Float[Tensor, "n c"]:
        """Let the points of each window attend to one another."""
        windows = level.windows[self.turn % len(level.windows)]
        query, key, value = self.attention.split(feat, windows)
        bias = None
        match self.encoding:
            case ContextualEncoding():
                terms = self.encoding(level.grid_coord.to(query.dtype), windows, query, key)
                attended, weights = plain_dot_product_attention(
                    query, key, value, valid=windows.valid, bias=terms.bias
                )
                return self.attention.merge(attended + terms.value(weights), windows)
            case RotaryEncoding():
                query, key = self.encoding(level.grid_coord, windows, query, key)
            case RelativePositionBias():
                bias = self.encoding(level.grid_coord, windows)
            case CoordinateBias():
                bias = self.encoding(_metres(level, feat), windows)
        heard = dot_product_attention(query, key, value, valid=windows.valid, bias=bias)
        return self.attention.merge(heard, windows)


class NeighborMixer(nn.Module):
    """Dot-product attention to a level's neighbours, with a bias by offset or none."""

    def __init__(self, channels: int, num_heads: int, *, offset_bias: bool):
        super().__init__()
        self.attention = NeighborAttention(channels, num_heads)
        self.bias = CoordinateMLP(num_heads, 8) if offset_bias else None

    def forward(self, feat: Float[Tensor, "n c"], level: Level) -> Float[Tensor, "n c"]:
        """Let each point attend to its neighbours."""
        around = level.neighbors
        assert around is not None
        bias = None
        if self.bias is not None:
            coord = _metres(level, feat)
            n, k = around.index.shape
            there = coord.index_select(0, around.index.reshape(-1)).view(n, k, 3)
            bias = self.bias(there - coord[:, None], around.valid)  # (n, k, h)
            bias = bias.transpose(1, 2)[:, :, None]
        return self.attention(feat, around, bias)


class VectorMixer(nn.Module):
    """Vector attention to a level's neighbours, or to all of the own window of a turn."""

    def __init__(self, attention: PairAttention, turn: int):
        super().__init__()
        self.attention, self.turn = attention, turn

    def forward(self, feat: Float[Tensor, "n c"], level: Level) -> Float[Tensor, "n c"]:
        """Let each point attend to those around it."""
        around: Neighborhood | Windows | None = level.neighbors
        if around is None:
            around = level.windows[self.turn % len(level.windows)]
        return self.attention(feat, _metres(level, feat), around)


def _metres(level: Level, feat: Tensor) -> Tensor:
    """Return the positions with the digits of the features, but never fewer than they have."""
    return level.coord.to(torch.promote_types(level.coord.dtype, feat.dtype))
