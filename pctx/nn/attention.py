"""Scaled dot-product attention inside windows, and its plain twin that shows the weights.

n points, c channels, w windows, k slots a window, h heads, d channels a head.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from pctx.geometry.windows import Windows
from pctx.nn.mlp import Linear


def dot_product_attention(
    query: Float[Tensor, "w h k d"],
    key: Float[Tensor, "w h k d"],
    value: Float[Tensor, "w h k d"],
    *,
    valid: Bool[Tensor, "w k"] | None = None,
    bias: Float[Tensor, "w h k k"] | None = None,
) -> Float[Tensor, "w h k d"]:
    """Return softmax(query @ key.T / sqrt(d) + bias) @ value; memory is linear in k without bias.

    Args:
        query: what asks.
        key: what is asked.
        value: what is told.
        valid: keys that take part; None if all do. Each window has at least one.
        bias: added to the scores, row = query, column = key.
    """
    return F.scaled_dot_product_attention(query, key, value, attn_mask=_mask(valid, bias))


def plain_dot_product_attention(
    query: Float[Tensor, "w h k d"],
    key: Float[Tensor, "w h k d"],
    value: Float[Tensor, "w h k d"],
    *,
    valid: Bool[Tensor, "w k"] | None = None,
    bias: Float[Tensor, "w h k k"] | None = None,
) -> Float[Tensor, "w h k d"]:
    """Be the twin of `dot_product_attention` in three lines, for tests."""
    return attention_weights(query, key, valid=valid, bias=bias) @ value


def attention_weights(
    query: Float[Tensor, "w h k d"],
    key: Float[Tensor, "w h k d"],
    *,
    valid: Bool[Tensor, "w k"] | None = None,
    bias: Float[Tensor, "w h k k"] | None = None,
) -> Float[Tensor, "w h k k"]:
    """Return how much each query (row) listens to each key (column); rows sum to 1."""
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    mask = _mask(valid, bias)
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        scores = scores + mask
    return scores.softmax(-1)


class WindowAttention(nn.Module):
    """Multi-head self-attention among the points of each window.

    Each point reads its result from the one slot that owns it. (Vaswani et al., Attention Is All
    You Need, 2017, section 3.2; over serialized points: Wu et al., Point Transformer V3, 2024.)
    """

    def __init__(self, channels: int, num_heads: int, *, qkv_bias: bool = True):
        super().__init__()
        if num_heads < 1 or channels % num_heads:
            raise ValueError(f"channels {channels} must be a multiple of num_heads {num_heads}")
        self.num_heads = num_heads
        self.qkv = Linear(channels, 3 * channels, bias=qkv_bias)
        self.proj = Linear(channels, channels)

    def forward(
        self,
        feat: Float[Tensor, "n c"],
        windows: Windows,
        bias: Float[Tensor, "w h k k"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Let the points of each window attend to one another.

        Args:
            feat: one row a point.
            windows: a partition of the points.
            bias: added to the scores, row = query, column = key.
        """
        query, key, value = self._split(feat, windows)
        attended = dot_product_attention(query, key, value, valid=windows.valid, bias=bias)
        slots = attended.transpose(1, 2).reshape(-1, feat.shape[1])  # (w * k, c)
        return self.proj(slots.index_select(0, windows.slot))

    def weights(
        self,
        feat: Float[Tensor, "n c"],
        windows: Windows,
        bias: Float[Tensor, "w h k k"] | None = None,
    ) -> Float[Tensor, "w h k k"]:
        """Return the attention that `forward` pays, for pictures; memory grows with k squared."""
        query, key, _ = self._split(feat, windows)
        return attention_weights(query, key, valid=windows.valid, bias=bias)

    def _split(self, feat: Tensor, windows: Windows) -> tuple[Tensor, Tensor, Tensor]:
        w, k = windows.index.shape
        # Gathered before the product: three times fewer bytes than after it.
        rows = self.qkv(feat.index_select(0, windows.index.reshape(-1)))
        heads = rows.view(w, k, 3, self.num_heads, feat.shape[1] // self.num_heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # each (w, h, k, d)
        return query, key, value


def _mask(valid: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """Join both into what scaled_dot_product_attention takes."""
    keys = None if valid is None else valid[:, None, None, :]
    if bias is None or keys is None:
        return keys if bias is None else bias
    return bias.masked_fill(~keys, -torch.inf)
