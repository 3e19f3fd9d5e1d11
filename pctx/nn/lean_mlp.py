"""Two linear layers and what is between them, some rows at a time: no hidden row is kept.

n rows, i input, e hidden and o output channels.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from pctx.nn import backend
from pctx.nn.compiled_products import (
    Norm,
    gelu_backward_,
    mlp,
    products_gain,
    products_suit,
)
from pctx.nn.derivative import first_only
from pctx.nn.lean_norm import NormPart

HIDDEN_AT_ONCE = 2**20
"""Hidden numbers at a time: 4 MB, about what is near a core."""

LEAN_FROM = 2**18
"""Hidden numbers from which the compiled kernel, to which parts cost nothing, takes them so."""


def lean_suits(feat: Float[Tensor, "n i"], hidden_channels: int) -> bool:
    """Tell whether rows are so many that to take them in parts saves memory, and no time is lost.

    On a CPU fresh memory costs as much as the first layer, which the backward computes anew.
    """
    compiled = products_suit(feat) and products_gain() and hidden_channels % backend.PANEL == 0
    most = HIDDEN_AT_ONCE * (2 if torch.is_grad_enabled() else 1)
    return (
        not torch.compiler.is_compiling()
        and feat.device.type == "cpu"
        and feat.dim() == 2
        and feat.shape[0] * hidden_channels > (LEAN_FROM if compiled else most)
        and feat.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
    )


def lean_mlp(
    feat: Float[Tensor, "n i"],
    weight1: Float[Tensor, "e i"],
    bias1: Float[Tensor, "e"],
    weight2: Float[Tensor, "o e"],
    bias2: Float[Tensor, "o"],
    gelu: bool,
    norm: Norm | None = None,
) -> Float[Tensor, "n o"]:
    """Compute act(norm(feat) @ weight1.T + bias1) @ weight2.T + bias2, differentiable once.

    Args:
        feat: rows.
        weight1: of the first layer.
        bias1: of the first layer.
        weight2: of the second.
        bias2: of the second.
        gelu: the exact GELU, else a ReLU.
        norm: a layer norm of the rows.
    """
    norm_weight, norm_bias, eps = norm or (None, None, 0.0)
    rows: Tensor = _LeanMLP.apply(
        feat, norm_weight, norm_bias, weight1, bias1, weight2, bias2, eps, gelu
    )
    return rows


class _LeanMLP(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        feat: Tensor,
        norm_weight: Tensor | None,
        norm_bias: Tensor | None,
        weight1: Tensor,
        bias1: Tensor,
        weight2: Tensor,
        bias2: Tensor,
        eps: float,
        gelu: bool,
    ) -> Tensor:
        norm = NormPart(norm_weight, norm_bias, eps)
        ctx.save_for_backward(feat, norm_weight, norm_bias, weight1, bias1, weight2)
        ctx.eps, ctx.gelu = eps, gelu
        sizes = len(feat) * (weight1.numel() + weight2.numel())
        if backend.compiled_gains(
            sizes, (len(weight1), len(weight2)), feat, weight1, bias1, weight2, bias2
        ):
            return mlp(feat, weight1, bias1, weight2, bias2, gelu, norm.folded())
        out = feat.new_empty(len(feat), len(weight2))
        for rows in _parts(feat, weight1):
            hidden = _activate_(backend.linear(norm.of(feat[rows]), weight1, bias1), gelu)
            out[rows] = backend.linear(hidden, weight2, bias2)
        return out

    @staticmethod
    @first_only
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        feat, norm_weight, norm_bias, weight1, bias1, weight2 = ctx.saved_tensors
        norm = NormPart(norm_weight, norm_bias, ctx.eps)
        wants_feat = ctx.needs_input_grad[0] or norm_weight is not None
        upstream = grads[0].contiguous()
        grad = torch.empty_like(feat) if wants_feat else None
        first, second = (
            (weight.new_zeros(weight.shape), weight.new_zeros(len(weight)))
            for weight in (weight1, weight2)
        )
        for rows in _parts(feat, weight1):
            x, above = norm.of(feat[rows]), upstream[rows]
            hidden = backend.linear(x, weight1, bias1)
            back = backend.product(above, weight2.t())
            if ctx.gelu and backend.compiled_gains(back.numel() * len(weight2), (), hidden, back):
                gelu_backward_(hidden, back)
            elif ctx.gelu:
                back = torch.ops.aten.gelu_backward(back, hidden)
                hidden = F.gelu(hidden)
            else:
                hidden.relu_()
                back = back.masked_fill_(hidden == 0, 0)
            backend.weight_gradients(above, hidden, *second)
            backend.weight_gradients(back, x, *first)
            if grad is not None:
                grad[rows] = norm.back(backend.product(back, weight1.t()), feat[rows])
        return grad, *norm.grads, *first, *second, None, None


def _parts(feat: Tensor, weight1: Tensor) -> list[slice]:
    step = max(1, HIDDEN_AT_ONCE // len(weight1))
    return [slice(start, start + step) for start in range(0, len(feat), step)]


def _activate_(hidden: Tensor, gelu: bool) -> Tensor:
    return torch.ops.aten.gelu_(hidden) if gelu else hidden.relu_()
