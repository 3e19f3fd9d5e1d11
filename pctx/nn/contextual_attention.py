"""ContextualWindowAttention: attention in windows that reads how signals differ, and their context.

n points, m signals a point, c channels, w windows, k slots, h heads.
"""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn

from pctx.geometry.windows import Windows
from pctx.nn.attention import WindowAttention
from pctx.nn.contextual import ContextualEncoding
from pctx.nn.dot_product import attention_weights, plain_dot_product_attention
from pctx.nn.mlp import widen


class ContextualWindowAttention(nn.Module):
    """Multi-head self-attention in each window, with what queries, keys and weights look up.

    The weights themselves are needed, so that memory grows with k squared.

    Args:
        channels: c.
        encoding: of num_heads heads of channels / num_heads channels.
        qkv_bias: whether query, key and value have biases.

    Raises:
        ValueError: if the encoding's heads are not as wide as those of attention.
    """

    def __init__(self, channels: int, encoding: ContextualEncoding, *, qkv_bias: bool = True):
        super().__init__()
        _, num_heads, width = encoding.query_table.shape
        if num_heads * width != channels:
            raise ValueError(
                f"encoding must have num_heads * head_channels = channels {channels}, found "
                f"{num_heads} * {width}"
            )
        self.attention = WindowAttention(channels, num_heads, qkv_bias=qkv_bias)
        self.encoding = encoding

    def forward(
        self,
        feat: Float[Tensor, "n c"],
        signal: Float[Tensor, "n m"] | Int[Tensor, "n m"],
        windows: Windows,
    ) -> Float[Tensor, "n c"]:
        """Let the points of each window attend to one another.

        Args:
            feat: one row a point.
            signal: one row a point, as the encoding reads it.
            windows: a partition of the points.
        """
        query, key, value = self.attention.split(feat, windows)
        terms = self.encoding(signal, windows, query, key)
        attended, weights = plain_dot_product_attention(
            query, key, value, valid=windows.valid, bias=terms.bias
        )
        return self.attention.merge(attended + terms.value(weights).to(attended.dtype), windows)

    def weights(
        self,
        feat: Float[Tensor, "n c"],
        signal: Float[Tensor, "n m"] | Int[Tensor, "n m"],
        windows: Windows,
    ) -> Float[Tensor, "w h k k"]:
        """Return the attention that `forward` pays, for pictures."""
        query, key, _ = self.attention.split(feat, windows)
        bias = self.encoding(signal, windows, query, key).bias
        return attention_weights(query, key, valid=windows.valid, bias=bias)

    def attend(
        self,
        weights: Float[Tensor, "w h k k"],
        feat: Float[Tensor, "n c"],
        signal: Float[Tensor, "n m"] | Int[Tensor, "n m"],
        windows: Windows,
    ) -> Float[Tensor, "n c"]:
        """Return what `forward` would if this were the attention paid."""
        query, key, value = self.attention.split(feat, windows)
        told = self.encoding(signal, windows, query, key).value(weights)
        told = told + weights @ widen(value)
        return self.attention.merge(told.to(value.dtype), windows)
