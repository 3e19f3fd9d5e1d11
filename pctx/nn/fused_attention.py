"""Attention in torch's fused kernels, in whatever way keeps them fast.

w windows, h heads, q queries, k keys, d channels a head.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from pctx.nn.derivative import first_only
from pctx.nn.mlp import widen

SCORES_AT_ONCE = 2**20
"""Scores that the gradient of a learned bias keeps at a time: 4 MB, about a core's cache."""


def fused_attention(
    query: Float[Tensor, "w h q d"],
    key: Float[Tensor, "w h k d"],
    value: Float[Tensor, "w h k d"],
    mask: Bool[Tensor, "#w #h #q k"] | Float[Tensor, "#w #h q k"] | None = None,
    *,
    causal: bool = False,
) -> Float[Tensor, "w h q d"]:
    """Return softmax(query @ key.T / sqrt(d) + mask) @ value without keeping the scores.

    On the CPU half precision is computed in float32, which is faster there.

    Args:
        query: what asks.
        key: what is asked.
        value: what is told.
        mask: True where heard, or numbers added to the scores; no row that hears nothing.
        causal: query i hears keys 0 to i only; not with a mask.
    """
    if query.device.type != "cpu":
        if mask is not None and mask.dtype != torch.bool:
            mask = mask.to(query.dtype)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
    with full_precision(query.device):
        q, k, v = widen(query), widen(key), widen(value)
        if mask is not None and mask.dtype != torch.bool:
            mask = mask.to(q.dtype)
        if mask is not None and mask.requires_grad and torch.is_grad_enabled():
            # torch's CPU kernel gives no gradient of a bias: it would fall back to plain products.
            every = mask.expand(*q.shape[:3], k.shape[2])
            feat: Tensor = _LearnedBias.apply(q, k, v, every)
        else:
            feat = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
    return feat.to(value.dtype)


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Keep autocast out, where it is on, of what is to be computed as it is written."""
    kind = device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()


class _LearnedBias(torch.autograd.Function):
    """Fused attention whose bias has a gradient; weights are computed anew, some windows a time."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(query, key, value, bias)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias.detach())

    @staticmethod
    @first_only
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, ...]:
        query, key, value, bias = ctx.saved_tensors
        grads = tuple(each.new_empty(each.shape) for each in (query, key, value, bias))
        scale = query.shape[-1] ** -0.5
        step = max(1, SCORES_AT_ONCE // max(1, bias[:1].numel()))
        for start in range(0, len(query), step):
            some = slice(start, start + step)
            q, k, v, g = query[some], key[some], value[some], upstream[some]
            weights = (q @ k.transpose(-2, -1)).mul_(scale).add_(bias[some]).softmax(-1)
            # The gradient of a softmax: weights * (gradient - its mean by the weights).
            scores = g @ v.transpose(-2, -1)
            scores = scores.sub_((scores * weights).sum(-1, keepdim=True)).mul_(weights)
            torch.matmul(scores, k, out=grads[0][some]).mul_(scale)
            torch.matmul(scores.transpose(-2, -1), q, out=grads[1][some]).mul_(scale)
            torch.matmul(weights.transpose(-2, -1), g, out=grads[2][some])
            grads[3][some] = scores
        return grads
