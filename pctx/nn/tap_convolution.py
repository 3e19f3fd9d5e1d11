"""Sparse convolution in plain torch: gather, multiply and add, tap by tap, on any device.

In float32 on a CPU `compiled_products` does the same in one pass, where its kernel is built.

n rows read, m rows written, t taps, i input channels, o output channels.

Milliseconds forward, 64 channels, 42,276 voxels of a driving scan at 0.15 m with 7.0 of 27 taps
met, one core of an AMD EPYC (Zen 4), torch 2.13. A sum costs what torch's sort of its targets
costs, so that narrow channels are the slower ones.

    products                                29
    gathers                                  4
    sums                                     7
    all, in chunks of 2**16 numbers         67
    all, in chunks of 2**18 to 2**20        54
    all, a tap at a time                    58
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from pctx.geometry.kernel_map import KernelMap
from pctx.nn.backend import product
from pctx.nn.compiled_products import convolve, products_suit, tap_gradients
from pctx.nn.derivative import first_only

CHUNK = 1 << 20
"""Numbers gathered and multiplied at once on a CPU: what its nearest caches hold (table above)."""

HALF = (torch.float16, torch.bfloat16)


def convolve_by_tap(
    feat: Float[Tensor, "n i"], weight: Float[Tensor, "o k k k i"], kernel_map: KernelMap
) -> Float[Tensor, "m o"]:
    """Sum weight[tap] @ feat[source] over the pairs of each target, differentiable once.

    Half-precision products are summed in float32. A tap's targets are distinct, so each sum has
    one order whatever the threads.

    Args:
        feat: a row for each source.
        weight: i is 1 in a depthwise convolution, whose o are the channels of `feat`.
        kernel_map: of k taps an axis.
    """
    taps = weight.flatten(1, 3).transpose(0, 1)  # (t, o, i)
    # Depthwise, a tap is a row of factors. Else taps are read where they lie: a copy of all takes
    # a tenth of the time of a coarse level, and its memory until the backward.
    taps = taps.squeeze(2).contiguous() if weight.shape[-1] != feat.shape[1] else taps
    rows: Tensor = _TapConvolution.apply(feat.contiguous(), taps, kernel_map)
    return rows


class _TapConvolution(torch.autograd.Function):
    """The centre tap of a submanifold map pairs each row with itself: nothing to gather."""

    @staticmethod
    def forward(ctx: Any, feat: Tensor, taps: Tensor, kernel_map: KernelMap) -> Tensor:
        ctx.save_for_backward(feat, taps)
        ctx.kernel_map = kernel_map
        centre = _centre(kernel_map)
        if products_suit(feat, taps):
            return convolve(feat, taps, kernel_map, centre)
        if centre is None:
            out = _wide(feat.new_zeros(kernel_map.num_targets, taps.shape[1]))
        else:
            out = _wide(_multiply(feat, taps[centre]))
        gathered, multiplied = _buffers(kernel_map, feat, out.shape[1])
        for tap, source, target in _chunks(kernel_map, len(gathered)):
            _add(out, target, _multiply(_rows(feat, source, gathered), taps[tap], multiplied))
        return out.to(feat.dtype)

    @staticmethod
    @first_only
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        feat, taps = ctx.saved_tensors
        kernel_map: KernelMap = ctx.kernel_map
        wants_feat, wants_taps = ctx.needs_input_grad[:2]
        grad, centre = grads[0].contiguous(), _centre(kernel_map)
        # Turned, a tap takes gradients back from targets to sources.
        depthwise = taps.dim() == 2
        turned = taps if depthwise else taps.transpose(1, 2)
        if products_suit(grad, feat, taps):
            of_feat = convolve(grad, turned, kernel_map.turned(), centre) if wants_feat else None
            if not wants_taps:
                return of_feat, None, None
            return (
                of_feat,
                tap_gradients(grad, feat, kernel_map, centre, depthwise=depthwise),
                None,
            )
        grad_taps = _wide(torch.empty_like(taps)) if wants_taps else None
        new = set(range(len(taps)))  # taps that have no gradient yet
        grad_feat = _wide(torch.zeros_like(feat)) if wants_feat and centre is None else None
        if centre is not None:
            grad_feat = _wide(_multiply(grad, turned[centre])) if wants_feat else None
            if grad_taps is not None:
                _add_outer(grad_taps[centre], grad, feat, new=True)
                new.remove(centre)
        gathered, multiplied = _buffers(kernel_map, grad, feat.shape[1])
        for tap, source, target in _chunks(kernel_map, len(gathered)):
            rows = _rows(grad, target, gathered)
            if grad_taps is not None:
                _add_outer(grad_taps[tap], rows, _rows(feat, source, multiplied), new=tap in new)
                new.discard(tap)
            if grad_feat is not None:
                _add(grad_feat, source, _multiply(rows, turned[tap], multiplied))
        if grad_taps is not None:
            for tap in new:
                grad_taps[tap].zero_()
        return (
            None if grad_feat is None else grad_feat.to(feat.dtype),
            None if grad_taps is None else grad_taps.to(taps.dtype),
            None,
        )


def _centre(kernel_map: KernelMap) -> int | None:
    return len(kernel_map.starts) // 2 - 1 if kernel_map.stride == 1 else None


def _chunks(kernel_map: KernelMap, size: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield each tap but the centre with its sources and targets, at most `size` at a time."""
    centre = _centre(kernel_map)
    for tap, (start, stop) in enumerate(pairwise(kernel_map.starts)):
        for begin in range(start, stop if tap != centre else start, size):
            some = slice(begin, min(begin + size, stop))
            yield tap, kernel_map.source[some], kernel_map.target[some]


def _buffers(kernel_map: KernelMap, read: Tensor, channels: int) -> tuple[Tensor, Tensor]:
    """Make room for the rows of a chunk once, as fresh memory costs as much as a gather."""
    centre = _centre(kernel_map)
    counts = [b - a for tap, (a, b) in enumerate(pairwise(kernel_map.starts)) if tap != centre]
    size = max([0, *counts])  # torch.compile knows no default
    if read.device.type == "cpu":
        size = min(size, CHUNK // max(read.shape[1] + channels, 1))
    size = max(size, 1)
    return read.new_empty(size, read.shape[1]), read.new_empty(size, channels)


def _rows(feat: Tensor, index: Tensor, buffer: Tensor) -> Tensor:
    return torch.index_select(feat, 0, index, out=buffer[: len(index)])


def _multiply(rows: Tensor, tap: Tensor, buffer: Tensor | None = None) -> Tensor:
    """Return rows @ tap.T, or rows * tap where the tap is a row of factors."""
    out = None if buffer is None else buffer[: len(rows)]
    if tap.dim() == 1:
        return torch.mul(rows, tap, out=out)
    return product(rows, tap, out)


def _add_outer(total: Tensor, grad: Tensor, rows: Tensor, *, new: bool) -> None:
    """Add the gradient of a tap to `total`, or write it there."""
    if total.dim() == 1 or total.dtype != rows.dtype:
        part = _wide(grad * rows).sum(0) if total.dim() == 1 else grad.t() @ rows
        total.copy_(part) if new else total.add_(part)
    elif new:
        torch.mm(grad.t(), rows, out=total)
    else:
        total.addmm_(grad.t(), rows)


def _add(total: Tensor, index: Tensor, rows: Tensor) -> None:
    """Add rows[p] to total[index[p]], in place."""
    # With the index expanded, twice as fast as index_add_.
    total.scatter_add_(0, index[:, None].expand_as(rows), rows.to(total.dtype))


def _wide(rows: Tensor) -> Tensor:
    """Let sums of half-precision rows be taken in float32."""
    return rows.float() if rows.dtype in HALF else rows
