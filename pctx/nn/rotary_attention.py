"""RotaryWindowAttention: attention in windows whose queries and keys are turned by position.

n points, c channels, w windows, k slots, h heads.
"""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn

from pctx.geometry.windows import Windows
from pctx.nn.attention import WindowAttention
from pctx.nn.backend import AttentionBackend
from pctx.nn.dot_product import attention_weights, dot_product_attention
from pctx.nn.relative import ROTARY_BASE, RotaryEncoding


class RotaryWindowAttention(nn.Module):
    """Multi-head self-attention in each window, aware of voxel offsets by rotation alone.

    (PointROPE: Yue et al., LitePT, 2026.)

    Args:
        channels: a multiple of 6 for each head.
        num_heads: h.
        qkv_bias: whether query, key and value have biases.
        base: of the frequencies, see `RotaryEncoding`.
        backend: see `dot_product_attention`.

    Raises:
        ValueError: if num_heads does not divide channels, or heads are no multiple of 6 wide.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        qkv_bias: bool = True,
        base: float = ROTARY_BASE,
        backend: AttentionBackend = "auto",
    ):
        super().__init__()
        self.attention = WindowAttention(channels, num_heads, qkv_bias=qkv_bias, backend=backend)
        self.rotary = RotaryEncoding(channels // num_heads, base)

    def forward(
        self, feat: Float[Tensor, "n c"], grid_coord: Int[Tensor, "n 3"], windows: Windows
    ) -> Float[Tensor, "n c"]:
        """Let the points of each window attend to one another.

        Args:
            feat: one row a point.
            grid_coord: voxel numbers of the points.
            windows: a partition of them.
        """
        query, key, value = self.attention.split(feat, windows)
        query, key = self.rotary(grid_coord, windows, query, key)
        attended = dot_product_attention(
            query, key, value, valid=windows.valid, backend=self.attention.backend
        )
        return self.attention.merge(attended, windows)

    def weights(
        self, feat: Float[Tensor, "n c"], grid_coord: Int[Tensor, "n 3"], windows: Windows
    ) -> Float[Tensor, "w h k k"]:
        """Return the attention that `forward` pays, for pictures; memory grows with k squared."""
        query, key, _ = self.attention.split(feat, windows)
        query, key = self.rotary(grid_coord, windows, query, key)
        return attention_weights(query, key, valid=windows.valid)

    def attend(
        self,
        weights: Float[Tensor, "w h k k"],
        feat: Float[Tensor, "n c"],
        grid_coord: Int[Tensor, "n 3"],
        windows: Windows,
    ) -> Float[Tensor, "n c"]:
        """Return what `forward` would if this were the attention paid."""
        del grid_coord  # tells queries from keys, not values
        return self.attention.attend(weights, feat, windows)
