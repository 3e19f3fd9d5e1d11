"""Vector attention: each neighbour has a weight for each channel, or group of channels.

q points, k neighbours a point, c channels, g weights a neighbour.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from pctx.nn.linear import Linear
from pctx.nn.mlp import NORM_EPS, NORM_MOMENTUM, BatchNorm, GroupedLinear, widen
from pctx.nn.pairs import Heard, PairAttention, Pairs, Steps
from pctx.nn.position import CoordinateMLP


class VectorAttention(PairAttention):
    """The attention of Point Transformer (Zhao et al., 2021, equations 3 and 4).

        y_i = sum_j softmax_j(gamma(psi(x_j) - phi(x_i) + delta_ij)) * (alpha(x_j) + delta_ij)
        delta_ij = theta(p_j - p_i)

    phi, psi and alpha are linear (`query`, `key`, `value`), theta is `position`, and gamma is
    batch norm, ReLU, linear, batch norm, ReLU, linear. Both differences are neighbour less point,
    as released.

    Args:
        channels: c.
        share_channels: channels that share a weight (8 as released; 1: each has its own, as
            printed). Of g = c / share_channels weights, number j serves channels j, j + g, …
        checkpoint: see `PairAttention`.
        published: missing neighbours are zero rows at offset zero and take part like others.

    Raises:
        ValueError: if share_channels does not divide channels.
    """

    def __init__(
        self,
        channels: int,
        *,
        share_channels: int = 8,
        checkpoint: bool = False,
        published: bool = False,
    ):
        super().__init__(checkpoint=checkpoint, published=published)
        if share_channels < 1 or channels % share_channels:
            raise ValueError(
                f"channels {channels} must be a multiple of share_channels {share_channels}"
            )
        weights = channels // share_channels
        self.query = Linear(channels, channels)
        self.key = Linear(channels, channels)
        self.value = Linear(channels, channels)
        self.position = CoordinateMLP(channels)
        self.norm1 = BatchNorm(channels, NORM_EPS, NORM_MOMENTUM)
        self.fc1 = Linear(channels, weights)
        self.norm2 = BatchNorm(weights, NORM_EPS, NORM_MOMENTUM)
        self.fc2 = Linear(weights, weights)

    def _project(self, feat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.query(feat), self.key(feat), self.value(feat)

    def _attend(self, pairs: Pairs) -> Steps[Heard]:
        delta = yield from _encode_offset(self.position, pairs)
        relation = yield self.norm1, pairs.key - pairs.query[:, None] + delta
        hidden = yield self.norm2, self.fc1(relation.relu())
        weights = _neighbor_softmax(self.fc2(hidden.relu()), pairs.valid)  # (q, k, g)
        told = (pairs.value + delta).unflatten(-1, (-1, weights.shape[-1]))  # (q, k, c / g, g)
        return Heard(weights[:, :, None], told)


class GroupedVectorAttention(PairAttention):
    """The attention of Point Transformer V2 (Wu et al., 2022, sections 3.2, 3.3).

        y_i = sum_j softmax_j(omega(r_ij)) * (v_j + b_ij)
        r_ij = (k_j - q_i) * m_ij + b_ij

    b_ij = position_bias(p_j - p_i) and m_ij = position_multiplier(p_j - p_i) are coordinate MLPs.
    Query and key are linear, batch norm, ReLU; the value is linear. omega, the weight encoding, is
    a linear layer from channels to groups, batch norm, ReLU, linear. Weight j serves the channels
    of group j, which are neighbours.

    Args:
        channels: c.
        groups: g, a divisor of channels.
        qkv_bias: whether query, key and value have biases.
        encoding: the first layer of omega: "linear" (as released later, m2), or "grouped" (as
            printed, m1), in which a group's channels make its number.
        position_multiplier: whether there is an m_ij (as printed and in m1).
        checkpoint: see `PairAttention`.
        published: missing neighbours are zero rows at offset zero that take part in norms and
            softmax; their weights are dropped after it.

    Raises:
        ValueError: if groups does not divide channels, or the encoding is unknown.
    """

    def __init__(
        self,
        channels: int,
        groups: int,
        *,
        qkv_bias: bool = True,
        encoding: Literal["linear", "grouped"] = "linear",
        position_multiplier: bool = False,
        checkpoint: bool = False,
        published: bool = False,
    ):
        super().__init__(checkpoint=checkpoint, published=published)
        if groups < 1 or channels % groups:
            raise ValueError(f"channels {channels} must be a multiple of groups {groups}")
        if encoding not in ("linear", "grouped"):
            raise ValueError(f"encoding must be linear or grouped, found {encoding}")
        self.query = Linear(channels, channels, bias=qkv_bias)
        self.query_norm = BatchNorm(channels, NORM_EPS, NORM_MOMENTUM)
        self.key = Linear(channels, channels, bias=qkv_bias)
        self.key_norm = BatchNorm(channels, NORM_EPS, NORM_MOMENTUM)
        self.value = Linear(channels, channels, bias=qkv_bias)
        self.position_bias = CoordinateMLP(channels, channels)
        self.position_multiplier = (
            CoordinateMLP(channels, channels) if position_multiplier else None
        )
        self.fc1 = (
            Linear(channels, groups) if encoding == "linear" else GroupedLinear(channels, groups)
        )
        self.norm = BatchNorm(groups, NORM_EPS, NORM_MOMENTUM)
        self.fc2 = Linear(groups, groups)

    def _project(self, feat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query = self.query_norm(self.query(feat)).relu()
        return query, self.key_norm(self.key(feat)).relu(), self.value(feat)

    def _attend(self, pairs: Pairs) -> Steps[Heard]:
        relation = pairs.key - pairs.query[:, None]
        if self.position_multiplier is not None:
            relation = relation * (yield from _encode_offset(self.position_multiplier, pairs))
        bias = yield from _encode_offset(self.position_bias, pairs)
        hidden = yield self.norm, self.fc1(relation + bias)
        weights = _neighbor_softmax(self.fc2(hidden.relu()), pairs.valid)  # (q, k, g)
        if self.published and pairs.real is not None:
            weights = weights.masked_fill(~pairs.real[..., None], 0)
        told = (pairs.value + bias).unflatten(-1, (weights.shape[-1], -1))  # (q, k, g, c / g)
        return Heard(weights[..., None], told)


def _encode_offset(position: CoordinateMLP, pairs: Pairs) -> Steps[Tensor]:
    """Apply a coordinate MLP to the offsets of pairs."""
    hidden = yield position.norm, position.fc1(pairs.offset)
    return position.fc2(hidden.relu())


def _neighbor_softmax(
    scores: Float[Tensor, "q k g"], valid: Bool[Tensor, "q k"] | None
) -> Float[Tensor, "q k g"]:
    """Make weights that sum to 1 over the neighbours, or to 0 where there is none."""
    # Over the last axis: over others the bytes of torch's softmax depend on the threads.
    wide = widen(scores).transpose(1, 2)  # (q, g, k)
    if valid is None:
        return wide.softmax(-1).transpose(1, 2).to(scores.dtype)
    missing = ~valid[:, None]
    # The smallest number, not -inf: a softmax over nothing would not be a number.
    wide = wide.masked_fill(missing, torch.finfo(wide.dtype).min).softmax(-1)
    return wide.masked_fill(missing, 0).transpose(1, 2).to(scores.dtype)
