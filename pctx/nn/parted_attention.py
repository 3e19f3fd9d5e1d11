"""PartedAttention: attention in windows, by parts about equally full; the numbers stay the same.

n points, c channels, w windows, k slots, h heads.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pctx.geometry.window_parts import WindowParts
from pctx.geometry.windows import Windows
from pctx.nn.contextual_attention import ContextualWindowAttention


class PartedAttention(nn.Module):
    """Contextual attention that pays for few masked slots; see `WindowParts`.

    To be looked into, it takes the windows as they are.
    """

    def __init__(self, attention: ContextualWindowAttention):
        super().__init__()
        self.attention = attention

    def forward(
        self,
        feat: Float[Tensor, "n c"],
        signal: Float[Tensor, "n m"],
        windows: Windows,
        parts: WindowParts,
    ) -> Float[Tensor, "n c"]:
        """Let the points of each window attend to one another.

        Args:
            feat: one row a point.
            signal: one row a point, as the attention reads it.
            windows: a partition of the points.
            parts: the same windows.
        """
        del windows
        heard = [
            self.attention(
                feat.index_select(0, part.rows), signal.index_select(0, part.rows), part.windows
            )
            for part in parts.parts
        ]
        return torch.cat(heard).index_select(0, parts.inverse)

    def weights(
        self,
        feat: Float[Tensor, "n c"],
        signal: Float[Tensor, "n m"],
        windows: Windows,
        parts: WindowParts,
    ) -> Float[Tensor, "w h k k"]:
        """Return the attention that `forward` pays, for pictures."""
        del parts
        return self.attention.weights(feat, signal, windows)

    def attend(
        self,
        weights: Float[Tensor, "w h k k"],
        feat: Float[Tensor, "n c"],
        signal: Float[Tensor, "n m"],
        windows: Windows,
        parts: WindowParts,
    ) -> Float[Tensor, "n c"]:
        """Return what `forward` would if this were the attention paid."""
        del parts
        return self.attention.attend(weights, feat, signal, windows)
