"""Layer norms whose rows are not kept for the backward, which computes them anew.

n rows, i input and o output channels.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from pctx.nn import backend
from pctx.nn.compiled_products import Norm
from pctx.nn.derivative import first_only


def linear_norm(
    feat: Float[Tensor, "n i"],
    weight: Float[Tensor, "o i"],
    bias: Float[Tensor, "o"] | None,
    norm: Norm,
) -> Float[Tensor, "n o"]:
    """Compute norm(feat @ weight.T + bias), whose inside is not kept, differentiable once.

    Args:
        feat: rows.
        weight: of the linear layer.
        bias: of the linear layer.
        norm: a layer norm of what comes out.
    """
    rows: Tensor = _LinearNorm.apply(feat, weight, bias, *norm)
    return rows


class _LinearNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        feat: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        norm_weight: Tensor,
        norm_bias: Tensor,
        eps: float,
    ) -> Tensor:
        ctx.save_for_backward(feat, weight, bias, norm_weight, norm_bias)
        ctx.eps = eps
        return NormPart(norm_weight, norm_bias, eps).of(backend.linear(feat, weight, bias))

    @staticmethod
    @first_only
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        feat, weight, bias, norm_weight, norm_bias = ctx.saved_tensors
        norm = NormPart(norm_weight, norm_bias, ctx.eps)
        inside = backend.linear(feat, weight, bias)
        norm.of(inside)
        grad = norm.back(grads[0].contiguous(), inside)
        of_weight, of_bias = backend.weight_gradients(grad, feat)
        of_feat = backend.product(grad, weight.t())
        return of_feat, of_weight, None if bias is None else of_bias, *norm.grads, None


class NormPart:
    """A layer norm, or none, of some rows at a time, and the gradients of its weights so far."""

    def __init__(self, weight: Tensor | None, bias: Tensor | None, eps: float):
        self._norm = None if weight is None or bias is None else Norm(weight, bias, eps)
        self._moments: list[Tensor] = []
        self.grads: tuple[Tensor, Tensor] | tuple[None, None] = (None, None)

    def folded(self) -> Norm | None:
        """Return what the kernel takes."""
        return self._norm

    def of(self, feat: Float[Tensor, "n i"]) -> Float[Tensor, "n i"]:
        """Normalise rows."""
        if self._norm is None:
            return feat
        weight, bias, eps = self._norm
        rows, *self._moments = torch.native_layer_norm(feat, weight.shape, weight, bias, eps)
        return rows

    def back(self, grad: Float[Tensor, "n i"], feat: Float[Tensor, "n i"]) -> Float[Tensor, "n i"]:
        """Take the gradient of the rows normalised last to that of what they were before."""
        if self._norm is None:
            return grad
        weight, bias, _ = self._norm
        rows, *grads = torch.ops.aten.native_layer_norm_backward(
            grad, feat, weight.shape, *self._moments, weight, bias, [True, True, True]
        )
        if self.grads[0] is not None:
            grads = [total.add_(part) for total, part in zip(self.grads, grads, strict=True)]
        self.grads = (grads[0], grads[1])
        of_feat: Tensor = rows
        return of_feat
