"""Scaled dot-product attention: its function, its plain twin, its weights.

w windows (or batch entries), q queries, k keys, h heads, d channels a head.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from pctx.nn.backend import AttentionBackend, attention_engine
from pctx.nn.fused_attention import full_precision, fused_attention
from pctx.nn.mlp import widen


class Attended(NamedTuple):
    """What the queries heard, and how much they listened to each key."""

    feat: Float[Tensor, "w h q d"]
    weights: Float[Tensor, "w h q k"]


def dot_product_attention(
    query: Float[Tensor, "w h q d"],
    key: Float[Tensor, "w h k d"],
    value: Float[Tensor, "w h k d"],
    *,
    valid: Bool[Tensor, "w k"] | None = None,
    bias: Float[Tensor, "w h q k"] | None = None,
    causal: bool = False,
    backend: AttentionBackend = "auto",
) -> Float[Tensor, "w h q d"]:
    """Return softmax(query @ key.T / sqrt(d) + bias) @ value.

    Memory is linear in q and k without bias, unless it is causal and masked at once. Half
    precision is summed in float32. (Vaswani et al., Attention Is All You Need, 2017, equation 1.)

    Args:
        query: what asks.
        key: what is asked.
        value: what is told.
        valid: keys that take part; None if all do. A query that hears no key gets zeros.
        bias: finite numbers added to the scores, row = query, column = key.
        causal: query i hears keys 0 to i only.
        backend: see `backend.attention_engine`. All give the same numbers; "plain" alone has
            second derivatives.

    Raises:
        ValueError: if there is no such backend.
    """
    if attention_engine(key, backend) == "plain":
        plain = plain_dot_product_attention
        return plain(query, key, value, valid=valid, bias=bias, causal=causal).feat
    alone = causal and valid is None and bias is None  # the kernels know this mask themselves
    mask, deaf = (None, None) if alone else _mask(query, key, valid, bias, causal)
    feat = fused_attention(query, key, value, mask, causal=alone)
    return feat if deaf is None else feat.masked_fill(deaf, 0)


def plain_dot_product_attention(
    query: Float[Tensor, "w h q d"],
    key: Float[Tensor, "w h k d"],
    value: Float[Tensor, "w h k d"],
    *,
    valid: Bool[Tensor, "w k"] | None = None,
    bias: Float[Tensor, "w h q k"] | None = None,
    causal: bool = False,
) -> Attended:
    """Be the twin of `dot_product_attention`, in the steps of the equation, with its weights."""
    weights = attention_weights(query, key, valid=valid, bias=bias, causal=causal)
    with full_precision(value.device):
        feat = widen(weights) @ widen(value)
    return Attended(feat.to(value.dtype), weights)


def attention_weights(
    query: Float[Tensor, "w h q d"],
    key: Float[Tensor, "w h k d"],
    *,
    valid: Bool[Tensor, "w k"] | None = None,
    bias: Float[Tensor, "w h q k"] | None = None,
    causal: bool = False,
) -> Float[Tensor, "w h q k"]:
    """Return how much each query (row) listens to each key (column), in float32 at least.

    Rows sum to 1; one that hears no key is 0. The arguments are those of `dot_product_attention`.
    """
    mask, deaf = _mask(query, key, valid, bias, causal)
    with full_precision(query.device):
        scores = widen(query) @ widen(key).transpose(-2, -1) / query.shape[-1] ** 0.5
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        scores = scores + mask
    weights = scores.softmax(-1)
    return weights if deaf is None else weights.masked_fill(deaf, 0)


def _mask(
    query: Tensor, key: Tensor, valid: Tensor | None, bias: Tensor | None, causal: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Join what limits attention.

    Returns:
        What scaled_dot_product_attention takes: True where heard, or what is added to the scores.
        And the queries that hear nothing, (w, 1, 1 or q, 1): the mask is open to them, as a softmax
        over nothing is not a number.
    """
    heard = None if valid is None else valid[:, None, None, :]
    if causal:
        shape = query.shape[-2], key.shape[-2]
        lower = torch.ones(shape, dtype=torch.bool, device=key.device).tril()
        heard = lower if heard is None else heard & lower
    deaf = None
    if valid is not None:
        assert heard is not None
        deaf = ~heard.any(-1, keepdim=True)
        heard = heard | deaf
    if bias is None:
        return heard, deaf
    return bias if heard is None else bias.masked_fill(~heard, -torch.inf), deaf
