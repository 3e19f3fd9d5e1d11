"""Attention in windows by a small compiled kernel: gather, softmax and scatter without copies.

`window_attention.c` is built as `pctx.geometry.compiled` says; where it cannot be, or its numbers
differ from torch's, torch's own kernel is used.

n points, c channels, w windows, k slots, h heads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pctx.geometry.compiled import kernel
from pctx.geometry.windows import Windows
from pctx.nn import backend
from pctx.nn.compiled_products import Norm, is_recorded, multiply
from pctx.nn.derivative import first_only
from pctx.nn.fused_attention import fused_attention
from pctx.nn.lean_norm import NormPart

HEAD_WIDTHS = (16, 32, 64)
"""Channels a head that the kernel knows."""

COMPILED_FROM = 2**21
"""Scores of a call below which nothing is gained that can be measured."""

PART = 2**21
"""Numbers of query, key and value that are made at a time where no gradient is recorded: 8 MB,
which stay in a shared cache. Smaller parts cost threads their time, a tenth at 2**20."""

_SOURCE = Path(__file__).with_name("window_attention.c")


def compiled_suits(feat: Float[Tensor, "n c"], windows: Windows, num_heads: int) -> bool:
    """Tell whether the kernel can compute attention in these windows, and gains time."""
    w, k = windows.index.shape
    return (
        not (torch.compiler.is_compiling() or is_recorded())
        and w * k * k * num_heads >= COMPILED_FROM
        and type(feat) in (Tensor, nn.Parameter)  # others have no numbers to point to
        and feat.device.type == "cpu"
        and feat.dtype in (torch.float32, torch.bfloat16)
        and windows.index.dtype == windows.slot.dtype == torch.int64
        and feat.shape[1] // num_heads in HEAD_WIDTHS
        and compiled_agrees()
    )


def compiled_attention(
    qkv: Float[Tensor, "n 3c"], windows: Windows, num_heads: int
) -> Float[Tensor, "n c"]:
    """Let the points of each window attend to one another, differentiable once.

    Each point gets what the slot that owns it hears. The bytes do not depend on the threads.

    Args:
        qkv: query, key and value of each point.
        windows: a partition of the points.
        num_heads: h.
    """
    heard: Tensor = _CompiledAttention.apply(qkv.contiguous(), windows, num_heads)
    return heard


def projected_attention(
    feat: Float[Tensor, "n c"],
    weight: Float[Tensor, "3c c"],
    bias: Float[Tensor, "3c"] | None,
    windows: Windows,
    num_heads: int,
    norm: Norm | None = None,
) -> Float[Tensor, "n c"]:
    """Be `compiled_attention` of norm(feat) @ weight.T + bias, which is not kept for the backward.

    Args:
        feat: one row a point.
        weight: of query, key and value.
        bias: of query, key and value.
        windows: a partition of the points.
        num_heads: h.
        norm: a layer norm of the rows.
    """
    norm_weight, norm_bias, eps = norm or (None, None, 0.0)
    heard: Tensor = _ProjectedAttention.apply(
        feat.contiguous(), norm_weight, norm_bias, weight, bias, windows, num_heads, eps
    )
    return heard


class WindowPart(NamedTuple):
    """Some windows over rows of their own: row i is what slot i reads.

    Attributes:
        rows: the point in each slot.
        windows: the slots; those that own no point own no row.
        owned: the rows that are read; None if all are.
    """

    rows: Int[Tensor, "m"]
    windows: Windows
    owned: Int[Tensor, "r"] | None


def window_parts(windows: Windows, width: int) -> Iterator[WindowPart]:
    """Take some windows at a time, as many as are `PART` numbers of `width` a slot."""
    w, k = windows.index.shape
    step = max(1, PART // (k * width))
    owns = windows.slot[windows.index] == torch.arange(w * k).view(w, k)
    for start in range(0, w, step):
        some = slice(start, start + step)
        rows, own = windows.index[some].reshape(-1), owns[some].reshape(-1)
        places = torch.arange(len(rows))
        yield WindowPart(
            rows,
            Windows(
                index=places.view(-1, k),
                valid=None if windows.valid is None else windows.valid[some],
                slot=torch.where(own, places, -1),
            ),
            None if bool(own.all()) else own.nonzero().squeeze(1),
        )


@cache
def compiled_agrees() -> bool:
    """Build or find the kernel and try it once, values and gradients, against torch's."""
    if _library() is None:
        return False
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
        torch.device("cpu"),
    ):
        return all(_agrees(width) for width in HEAD_WIDTHS)


class _CompiledAttention(torch.autograd.Function):
    """The softmax is computed anew in the backward, from the largest score and the sum of each."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, windows: Windows, num_heads: int) -> Tensor:
        out, normal = _room(qkv, qkv.shape[1] // 3, num_heads, ctx.needs_input_grad[0])
        _Call(qkv, windows, num_heads).run("pctx_attend", _at(out), _at(normal))
        ctx.save_for_backward(qkv, out, normal)
        ctx.windows, ctx.num_heads = windows, num_heads
        return out

    @staticmethod
    @first_only
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        qkv, out, normal = ctx.saved_tensors
        grad = _attend_backward(qkv, out, normal, grads[0], ctx.windows, ctx.num_heads)
        return grad, None, None


class _ProjectedAttention(torch.autograd.Function):
    """Query, key and value, and the norm before them, are computed anew in the backward."""

    @staticmethod
    def forward(
        ctx: Any,
        feat: Tensor,
        norm_weight: Tensor | None,
        norm_bias: Tensor | None,
        weight: Tensor,
        bias: Tensor | None,
        windows: Windows,
        num_heads: int,
        eps: float,
    ) -> Tensor:
        norm = NormPart(norm_weight, norm_bias, eps).folded()
        # First, what is kept: what goes leaves no hole among it then.
        out, normal = _room(feat, feat.shape[1], num_heads, any(ctx.needs_input_grad))
        qkv = multiply(feat, weight, bias, norm=norm)
        _Call(qkv, windows, num_heads).run("pctx_attend", _at(out), _at(normal))
        ctx.save_for_backward(feat, norm_weight, norm_bias, weight, bias, out, normal)
        ctx.windows, ctx.num_heads, ctx.eps = windows, num_heads, eps
        return out

    @staticmethod
    @first_only
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        feat, norm_weight, norm_bias, weight, bias, out, normal = ctx.saved_tensors
        norm = NormPart(norm_weight, norm_bias, ctx.eps)
        rows = norm.of(feat)
        qkv = backend.linear(rows, weight, bias)
        grad = _attend_backward(qkv, out, normal, grads[0], ctx.windows, ctx.num_heads)
        del qkv
        of_weight, sums = backend.weight_gradients(grad, rows)
        of_feat = norm.back(backend.product(grad, weight.t()), feat)
        of_bias = sums if ctx.needs_input_grad[4] else None
        return of_feat, *norm.grads, of_weight, of_bias, None, None, None


def _room(like: Tensor, channels: int, num_heads: int, keeps: bool) -> tuple[Tensor, Tensor | None]:
    """Make room for what is heard and, where it `keeps` that, for what the backward needs."""
    out = like.new_empty(len(like), channels)
    return out, like.new_empty(len(like), num_heads, 2) if keeps else None


def _attend_backward(
    qkv: Tensor, out: Tensor, normal: Tensor, upstream: Tensor, windows: Windows, num_heads: int
) -> Tensor:
    call = _Call(qkv, windows, num_heads)
    upstream = upstream.contiguous()
    starts = torch.empty(len(call.index) + 1, dtype=torch.int64)
    call.library.pctx_count_borrowed(*call.table, *call.sizes[:2], _at(starts))
    grad = torch.empty_like(qkv)
    borrowed = qkv.new_empty(int(starts[-1]), 2 * out.shape[1])
    call.run(
        "pctx_attend_backward",
        *(_at(each) for each in (out, normal, upstream, starts, grad, borrowed)),
    )
    channels = ctypes.c_int64(out.shape[1])
    call.library.pctx_add_borrowed(*call.table, *call.sizes[:2], channels, _at(borrowed), _at(grad))
    return grad


class _Call:
    """The arguments that all functions of the kernel share, and the tensors they point to."""

    def __init__(self, qkv: Tensor, windows: Windows, num_heads: int):
        library = _library()
        assert library is not None
        if len(qkv) != len(windows.slot) or int(windows.index.max()) >= len(qkv):
            raise IndexError(f"windows of {len(windows.slot)} points, found {len(qkv)}")
        self.library, self.qkv = library, qkv
        self.index, self.slot = windows.index.contiguous(), windows.slot.contiguous()
        self.valid = None if windows.valid is None else windows.valid.contiguous()
        self.table = (_at(self.index), _at(self.valid), _at(self.slot))
        width = qkv.shape[1] // (3 * num_heads)
        self.tasks = len(self.index) * num_heads
        self.sizes = tuple(map(ctypes.c_int64, (*self.index.shape, num_heads, width)))

    def run(self, name: str, *more: ctypes.c_void_p) -> None:
        """Let each of torch's threads take tasks until there are none."""
        counter = ctypes.c_int64(0)
        function: Callable[..., int] = getattr(self.library, name)
        arguments = (ctypes.byref(counter), _at(self.qkv), *self.table, *self.sizes, *more)
        threads = min(torch.get_num_threads(), max(1, self.tasks))
        if threads == 1:
            done = [function(*arguments)]
        else:
            with ThreadPoolExecutor(threads) as pool:
                tasks = [pool.submit(function, *arguments) for _ in range(threads)]
                done = [task.result() for task in tasks]
        if not all(done):
            raise MemoryError("attention: not enough memory for a window's keys and scores")


def _at(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def _library() -> ctypes.CDLL | None:
    return kernel(_SOURCE)


def _agrees(width: int) -> bool:
    generator = torch.Generator().manual_seed(0)
    index = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [4, 5, 6, 7, 8, 9, 10], [11, 12, 13, 0, 0, 0, 0]])
    valid = torch.tensor([[True] * 7, [True] * 7, [True] * 3 + [False] * 4])
    slot = torch.tensor([0, 1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 14, 15, 16])
    windows = Windows(index=index, valid=valid, slot=slot)
    qkv = torch.randn(14, 3 * 2 * width, generator=generator, dtype=torch.float32)
    qkv.requires_grad_()
    query, key, value = qkv[index].unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)  # (w, h, k, d)
    heard = fused_attention(query, key, value, valid[:, None, None])
    expected = heard.transpose(1, 2).flatten(2).flatten(0, 1)[slot]

    def results(out: Tensor) -> tuple[Tensor, ...]:
        return out, *torch.autograd.grad(out.sin().sum(), (qkv,))

    found = results(compiled_attention(qkv, windows, 2))
    return all(
        torch.allclose(ours, plain, rtol=1e-4, atol=1e-5)
        for ours, plain in zip(found, results(expected), strict=True)
    )
