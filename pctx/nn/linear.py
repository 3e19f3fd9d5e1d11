"""The linear layer of all models, and what is done in one pass with the rows around it.

n, m, p rows, i input, o output channels.
"""

from __future__ import annotations

from typing import TypeGuard, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pctx.nn import backend
from pctx.nn.compiled_products import Norm, multiply
from pctx.nn.lean_mlp import lean_suits
from pctx.nn.lean_norm import linear_norm

_Kind = TypeVar("_Kind", bound=nn.Module)


class Linear(nn.Linear):
    """nn.Linear whose product runs on the engine that `backend` chooses."""

    def forward(self, input: Float[Tensor, "*n i"]) -> Float[Tensor, "*n o"]:
        """Map each row."""
        return backend.linear(input, self.weight, self.bias)


def is_plain(layer: nn.Module | None, kind: type[_Kind]) -> TypeGuard[_Kind]:
    """Tell whether a layer is one of a kind and no more: no adapter, and nothing listens to it."""
    if layer is None or type(layer) is not kind:
        return False
    return not (
        layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
    )


def kernel_gains(layer: nn.Module, feat: Float[Tensor, "n i"], rows: int) -> TypeGuard[Linear]:
    """Tell whether a layer is a linear one that the compiled kernel computes faster, and can read.

    Args:
        layer: a linear one, or what an adapter put in its place.
        feat: what it is given rows of.
        rows: how many.
    """
    if not is_plain(layer, Linear) or layer.weight.shape[1] != feat.shape[-1]:
        return False
    weight = layer.weight
    return backend.compiled_gains(rows * weight.numel(), weight.shape, feat, weight)


def place_linear(
    layer: nn.Module,
    feat: Float[Tensor, "n i"],
    source: Int[Tensor, "p"] | None,
    out: Float[Tensor, "m o"] | None = None,
    target: Int[Tensor, "p"] | None = None,
    norm: nn.Module | None = None,
) -> Float[Tensor, "m o"]:
    """Compute out[target] = layer(norm(feat[source])), where no gradient is recorded.

    Args:
        layer: a linear one, or what an adapter put in its place.
        feat: rows.
        source: the rows taken; None for all.
        out: where the result goes; None for a tensor of p rows.
        target: the rows of `out` that are written, distinct.
        norm: what the rows go through first.
    """
    if kernel_gains(layer, feat, len(feat) if source is None else len(source)):
        places = {"source": source, "out": out, "target": target}
        folded = norm_parts(norm, feat.shape[1])
        if norm is None or folded is not None:
            return multiply(feat, layer.weight, layer.bias, **places, norm=folded)
    taken = feat if source is None else feat.index_select(0, source)
    rows: Tensor = layer(taken if norm is None else norm(taken))
    return rows if out is None or target is None else out.index_copy_(0, target, rows)


def normed_linear(
    layer: nn.Module, norm: nn.Module, feat: Float[Tensor, "n i"]
) -> Float[Tensor, "n o"]:
    """Compute norm(layer(feat)); of many rows, what is between them is computed anew.

    Args:
        layer: a linear one, or what an adapter put in its place.
        norm: after it.
        feat: rows.
    """
    folded = norm_parts(norm, getattr(layer, "out_features", 0))
    if (
        folded is not None
        and torch.is_grad_enabled()
        and lean_suits(feat, folded.weight.shape[0])  # before `len`, which a graph would keep
        and kernel_gains(layer, feat, len(feat))
    ):
        return linear_norm(feat, layer.weight, layer.bias, folded)
    rows: Tensor = norm(layer(feat))
    return rows


def norm_parts(norm: nn.Module | None, channels: int) -> Norm | None:
    """Return what a layer norm over channels is made of, if it is one and nothing listens to it."""
    if not is_plain(norm, nn.LayerNorm):
        return None
    if norm.bias is None or norm.normalized_shape != (channels,):
        return None
    if norm.weight.dtype != torch.float32 or norm.bias.dtype != torch.float32:
        return None
    return Norm(norm.weight, norm.bias, norm.eps)
