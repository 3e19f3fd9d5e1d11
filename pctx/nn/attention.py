"""Multi-head dot-product attention: to a set, in windows, between the windows of two clouds.

n, m points, c, e channels, w windows (or batch entries), q queries, k keys or slots, h heads, d
channels a head.
"""

from __future__ import annotations

from typing import get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from pctx.geometry.windows import Windows
from pctx.nn.backend import AttentionBackend
from pctx.nn.compiled_attention import (
    compiled_attention,
    compiled_suits,
    projected_attention,
    window_parts,
)
from pctx.nn.dot_product import attention_weights, dot_product_attention
from pctx.nn.linear import Linear, kernel_gains, norm_parts, place_linear
from pctx.nn.mlp import widen


class MultiHeadAttention(nn.Module):
    """Multi-head attention from a set to itself or to another, in a dense batch.

    (Vaswani et al., 2017, section 3.2.2; `proj` is its W^O.)

    Args:
        channels: of the queries and of the result.
        num_heads: h; a divisor of channels.
        kv_channels: of what is asked; as many as channels by default.
        qkv_bias: whether query, key and value have biases.
        backend: see `dot_product_attention`.

    Raises:
        ValueError: if num_heads does not divide channels.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        kv_channels: int | None = None,
        qkv_bias: bool = True,
        backend: AttentionBackend = "auto",
    ):
        super().__init__()
        require_heads(channels, num_heads, backend)
        self.num_heads, self.backend = num_heads, backend
        self.query = Linear(channels, channels, bias=qkv_bias)
        self.key_value = Linear(
            channels if kv_channels is None else kv_channels, 2 * channels, bias=qkv_bias
        )
        self.proj = Linear(channels, channels)

    def forward(
        self,
        feat: Float[Tensor, "w q c"],
        context: Float[Tensor, "w k e"] | None = None,
        *,
        valid: Bool[Tensor, "w k"] | None = None,
        bias: Float[Tensor, "w h q k"] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "w q c"]:
        """Let each row of `feat` attend to the rows of `context` in its batch entry.

        Args:
            feat: what asks.
            context: what is asked; None for `feat` itself.
            valid: rows of the context that take part; None if all do.
            bias: added to the scores, row = query, column = key.
            causal: row i hears rows 0 to i only.
        """
        query, key, value = self.split(feat, context)
        attended = dot_product_attention(
            query, key, value, valid=valid, bias=bias, causal=causal, backend=self.backend
        )
        return self.proj(attended.transpose(1, 2).flatten(2))

    def split(
        self, feat: Float[Tensor, "w q c"], context: Float[Tensor, "w k e"] | None = None
    ) -> tuple[Float[Tensor, "w h q d"], Float[Tensor, "w h k d"], Float[Tensor, "w h k d"]]:
        """Return queries, keys and values by head."""
        query = self.query(feat).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        both = self.key_value(feat if context is None else context)
        key, value = both.unflatten(-1, (2, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return query, key, value


class WindowAttention(nn.Module):
    """Multi-head self-attention among the points of each window.

    Each point reads its result from the one slot that owns it. (Vaswani et al., 2017, section 3.2;
    over serialized points: Wu et al., Point Transformer V3, 2024.)
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        qkv_bias: bool = True,
        backend: AttentionBackend = "auto",
    ):
        super().__init__()
        require_heads(channels, num_heads, backend)
        self.num_heads, self.backend = num_heads, backend
        self.qkv = Linear(channels, 3 * channels, bias=qkv_bias)
        self.proj = Linear(channels, channels)

    def forward(
        self,
        feat: Float[Tensor, "n c"],
        windows: Windows,
        bias: Float[Tensor, "w h k k"] | None = None,
        norm: nn.Module | None = None,
    ) -> Float[Tensor, "n c"]:
        """Let the points of each window attend to one another.

        Args:
            feat: one row a point.
            windows: a partition of the points.
            bias: added to the scores, row = query, column = key.
            norm: what rows go through first; the backward may compute a layer norm anew.
        """
        if (
            bias is None
            and self.backend == "auto"
            and compiled_suits(feat, windows, self.num_heads)
        ):
            return self._attend(feat, windows, norm)
        feat = feat if norm is None else norm(feat)
        query, key, value = self.split(feat, windows)
        attended = dot_product_attention(
            query, key, value, valid=windows.valid, bias=bias, backend=self.backend
        )
        return self.merge(attended, windows)

    def _attend(self, feat: Tensor, windows: Windows, norm: nn.Module | None) -> Tensor:
        """Be `forward` by the compiled kernel."""
        if torch.is_grad_enabled():
            return self.proj(self._project_and_hear(feat, windows, norm))
        out: Tensor | None = None
        for part in window_parts(windows, 3 * feat.shape[1]):
            heard = self._hear(place_linear(self.qkv, feat, part.rows, norm=norm), part.windows)
            rows = part.rows if part.owned is None else part.rows.index_select(0, part.owned)
            out = heard.new_empty(feat.shape) if out is None else out
            place_linear(self.proj, heard, part.owned, out, rows)
        assert out is not None  # windows that suit are some
        return out

    def _project_and_hear(self, feat: Tensor, windows: Windows, norm: nn.Module | None) -> Tensor:
        qkv, folded = self.qkv, norm_parts(norm, feat.shape[1])
        if kernel_gains(qkv, feat, len(feat)):
            feat = feat if norm is None or folded is not None else norm(feat)
            return projected_attention(feat, qkv.weight, qkv.bias, windows, self.num_heads, folded)
        return self._hear(qkv(feat if norm is None else norm(feat)), windows)

    def _hear(self, qkv: Tensor, windows: Windows) -> Tensor:
        # Of half precision under autocast.
        return compiled_attention(qkv.float(), windows, self.num_heads).to(qkv.dtype)

    def weights(
        self,
        feat: Float[Tensor, "n c"],
        windows: Windows,
        bias: Float[Tensor, "w h k k"] | None = None,
    ) -> Float[Tensor, "w h k k"]:
        """Return the attention that `forward` pays, for pictures; memory grows with k squared."""
        query, key, _ = self.split(feat, windows)
        return attention_weights(query, key, valid=windows.valid, bias=bias)

    def attend(
        self,
        weights: Float[Tensor, "w h k k"],
        feat: Float[Tensor, "n c"],
        windows: Windows,
        bias: Float[Tensor, "w h k k"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Return what `forward` would if this were the attention paid."""
        _, _, value = self.split(feat, windows)
        return self.merge((weights @ widen(value)).to(value.dtype), windows)

    def split(
        self, feat: Float[Tensor, "n c"], windows: Windows
    ) -> tuple[Float[Tensor, "w h k d"], Float[Tensor, "w h k d"], Float[Tensor, "w h k d"]]:
        """Return queries, keys and values by window and head."""
        # Gathered before the product: three times fewer bytes than after it.
        rows = self.qkv(_gather(feat, windows))
        query, key, value = rows.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return query, key, value

    def merge(self, attended: Float[Tensor, "w h k d"], windows: Windows) -> Float[Tensor, "n c"]:
        """Return each point's result, out of the slot that owns it."""
        return self.proj(_read(attended.transpose(1, 2).flatten(2), windows))


class CrossWindowAttention(nn.Module):
    """Multi-head attention from the points of each window to another cloud's points in its window.

    The arguments are those of `MultiHeadAttention`.
    """

    def __init__(
        self,
        channels: int,
        num_heads: int,
        *,
        kv_channels: int | None = None,
        qkv_bias: bool = True,
        backend: AttentionBackend = "auto",
    ):
        super().__init__()
        self.attention = MultiHeadAttention(
            channels, num_heads, kv_channels=kv_channels, qkv_bias=qkv_bias, backend=backend
        )

    def forward(
        self,
        feat: Float[Tensor, "n c"],
        windows: Windows,
        context: Float[Tensor, "m e"],
        context_windows: Windows,
        bias: Float[Tensor, "w h q k"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Let the points of window i attend to those of context window i.

        Args:
            feat: one row a point that asks.
            windows: a partition of them.
            context: one row a point that is asked.
            context_windows: a partition of those, into as many windows.
            bias: added to the scores, row = query, column = key.

        Raises:
            ValueError: if the partitions differ in their number of windows.
        """
        if windows.num_windows != context_windows.num_windows:
            raise ValueError(
                f"context_windows must be as many as windows, {windows.num_windows}, "
                f"found {context_windows.num_windows}"
            )
        attended = self.attention(
            _gather(feat, windows),
            _gather(context, context_windows),
            valid=context_windows.valid,
            bias=bias,
        )
        return _read(attended, windows)


def require_heads(channels: int, num_heads: int, backend: AttentionBackend) -> None:
    """Raise a ValueError if heads do not divide channels, or there is no such backend."""
    if backend not in get_args(AttentionBackend):
        raise ValueError(
            f"backend must be one of {', '.join(get_args(AttentionBackend))}, found {backend!r}"
        )
    if num_heads < 1 or channels % num_heads:
        raise ValueError(f"channels {channels} must be a multiple of num_heads {num_heads}")


def _gather(feat: Tensor, windows: Windows) -> Tensor:
    """Put each point into its slots: (w, k, c)."""
    return feat.index_select(0, windows.index.reshape(-1)).view(*windows.index.shape, feat.shape[1])


def _read(slots: Tensor, windows: Windows) -> Tensor:
    """Take each point's row out of (w, k, c)."""
    return slots.flatten(0, 1).index_select(0, windows.slot)
