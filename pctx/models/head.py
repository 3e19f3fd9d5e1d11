"""HiddenHead: class scores by two layers.

n points, c channels.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from pctx.nn.linear import Linear
from pctx.nn.mlp import LinearNormReLU


class HiddenHead(nn.Module):
    """Linear, batch norm, ReLU, linear, as published with Point Transformer V1 and V2."""

    def __init__(self, channels: int, num_classes: int):
        super().__init__()
        self.hidden = LinearNormReLU(channels, channels)
        self.out = Linear(channels, num_classes)

    def forward(self, feat: Float[Tensor, "n c"]) -> Float[Tensor, "n num_classes"]:
        """Score every class at every point."""
        return self.out(self.hidden(feat))
