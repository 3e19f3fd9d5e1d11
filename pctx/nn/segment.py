"""Segment reductions by a choice of engine: plain torch, or torch-scatter where it is asked for.

n rows, m segments, * any further dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pctx.geometry import packed
from pctx.nn.backend import SegmentBackend, scatter_library, segment_engine
from pctx.nn.derivative import first_only
from pctx.nn.mlp import widen

Reduction = Literal["sum", "mean", "max", "min"]


def segment_reduce(
    values: Float[Tensor, "n *c"],
    starts: Int[Tensor, "m+1"],
    reduction: Reduction,
    backend: SegmentBackend = "auto",
) -> Float[Tensor, "m *c"]:
    """Reduce the rows starts[i] : starts[i + 1] of each segment, channel by channel.

    The rules are those of `geometry.packed`, whichever the engine; only of rows that are not
    numbers torch makes such a result, where torch-scatter may pass over them.

    Raises:
        ValueError: if there is no such backend.
        ImportError: if torch-scatter is asked for and cannot be loaded.
    """
    if segment_engine(backend) == "torch":
        return _BY_TORCH[reduction](values, starts)
    reduced: Tensor = _ScatterReduce.apply(widen(values), starts, reduction)
    return reduced.to(values.dtype)


def segment_softmax(
    values: Float[Tensor, "n *c"], starts: Int[Tensor, "m+1"], backend: SegmentBackend = "auto"
) -> Float[Tensor, "n *c"]:
    """Divide the exponential of each row by the sum of its segment's, channel by channel.

    Rules and errors are those of `segment_reduce`.
    """
    if segment_engine(backend) == "torch":
        return packed.segment_softmax(values, starts)
    batch = packed.batch_from_offsets(starts, len(values))
    wide = widen(values)
    largest = segment_reduce(wide.detach(), starts, "max", backend)
    weights = (wide - largest.index_select(0, batch)).exp()
    sums = segment_reduce(weights, starts, "sum", backend)
    return (weights / sums.index_select(0, batch)).to(values.dtype)


_BY_TORCH: Mapping[Reduction, Callable[[Tensor, Tensor], Tensor]] = MappingProxyType(
    {
        "sum": packed.segment_sum,
        "mean": packed.segment_mean,
        "max": packed.segment_max,
        "min": packed.segment_min,
    }
)


class _ScatterReduce(torch.autograd.Function):
    """torch-scatter's reduction; its own backward would give the first of equal extremes all."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, starts: Tensor, reduction: Reduction) -> Tensor:
        reduced: Tensor = scatter_library().segment_csr(values, starts, reduce=reduction)
        ctx.save_for_backward(starts, *((values, reduced) if reduction in ("max", "min") else ()))
        ctx.reduction = reduction
        return reduced

    @staticmethod
    @first_only
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), library = grads, scatter_library()
        starts, *extreme = ctx.saved_tensors
        if not extreme:
            if ctx.reduction == "mean":
                counts = starts.diff().clamp(min=1)
                grad = grad / counts.view(-1, *[1] * (grad.ndim - 1))
            return library.gather_csr(grad, starts), None, None
        values, reduced = extreme
        equal = library.gather_csr(reduced, starts).eq_(values)
        share = grad / library.segment_csr(equal, starts, reduce="sum").clamp_(min=1)
        return equal.mul_(library.gather_csr(share, starts)), None, None
