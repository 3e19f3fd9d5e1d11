"""Products with a matrix by a small compiled kernel, `products.c`: linear layers, convolutions.

A sparse convolution takes and adds its rows in the same pass. Each number is one sum in one order,
so that no byte depends on the threads or on the other rows. Who calls asks `products_suit` first.

n, m rows, p pairs, t taps, i input channels, o output channels.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from pctx.geometry.compiled import kernel
from pctx.geometry.kernel_map import KernelMap

_SOURCE = Path(__file__).with_name("products.c")


class Norm(NamedTuple):
    """What a layer norm over i channels is made of."""

    weight: Float[Tensor, "i"]
    bias: Float[Tensor, "i"]
    eps: float


def products_suit(*tensors: Tensor) -> bool:
    """Tell whether the kernel can read these."""
    return (
        not (torch.compiler.is_compiling() or is_recorded())
        and all(
            type(tensor) in (Tensor, nn.Parameter)  # others have no numbers to point to
            and tensor.device.type == "cpu"
            and tensor.dtype == torch.float32
            for tensor in tensors
        )
        and compiled_agrees()
    )


def is_recorded() -> bool:
    """Tell whether something listens to torch's operators, which a kernel does not call."""
    return torch._C._get_tracing_state() is not None or _get_current_dispatch_mode() is not None


@cache
def products_gain() -> bool:
    """Tell whether this processor is of those on which the libraries' plain products are slower."""
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.is_file() and "AuthenticAMD" in cpuinfo.read_text()


def multiply(
    x: Float[Tensor, "n i"],
    weight: Float[Tensor, "o i"],
    bias: Float[Tensor, "o"] | None = None,
    *,
    source: Int[Tensor, "p"] | None = None,
    out: Float[Tensor, "m o"] | None = None,
    target: Int[Tensor, "p"] | None = None,
    norm: Norm | None = None,
) -> Float[Tensor, "m o"]:
    """Compute out[target] = norm(x[source]) @ weight.T + bias.

    Args:
        x: rows.
        weight: rows too, with any strides.
        bias: of each output channel.
        source: the rows taken; None for all.
        out: where the result goes; None for a tensor of p rows.
        target: the rows of `out` that are written, distinct; None for the first ones.
        norm: a layer norm of the rows.

    Raises:
        IndexError: an index lies outside.
        ValueError: sizes do not fit.
    """
    norm = _fitting(x.shape[1], (weight, bias), norm)
    if target is not None and len(target) != (len(x) if source is None else len(source)):
        raise ValueError("as many rows must be written as are taken")
    x, bias = x.contiguous(), None if bias is None else bias.contiguous()
    rows = len(x) if source is None else len(source)
    out = x.new_empty(rows, len(weight)) if out is None else out
    matrix = (weight, len(weight), *weight.stride(), bias)
    _call(
        "pctx_multiply",
        x,
        len(x),
        source,
        rows,
        x.shape[1],
        *matrix,
        out,
        len(out),
        target,
        *(norm or (None, None, 0.0)),
    )
    return out


def mlp(
    x: Float[Tensor, "n i"],
    weight1: Float[Tensor, "e i"],
    bias1: Float[Tensor, "e"],
    weight2: Float[Tensor, "o e"],
    bias2: Float[Tensor, "o"],
    gelu: bool,
    norm: Norm | None = None,
) -> Float[Tensor, "n o"]:
    """Compute act(norm(x) @ weight1.T + bias1) @ weight2.T + bias2.

    Args:
        x: rows.
        weight1: of the first layer.
        bias1: of the first layer.
        weight2: of the second.
        bias2: of the second.
        gelu: the exact GELU, else a ReLU.
        norm: a layer norm of the rows.

    Raises:
        ValueError: sizes do not fit.
    """
    norm = _fitting(x.shape[1], (weight1, bias1), norm)
    _fitting(len(weight1), (weight2, bias2))
    x, weight1, bias1, weight2, bias2 = (
        each.contiguous() for each in (x, weight1, bias1, weight2, bias2)
    )
    out = x.new_empty(len(x), len(weight2))
    first, second = (weight1, len(weight1), bias1), (weight2, len(weight2), bias2)
    _call("pctx_mlp", x, *x.shape, *first, *second, int(gelu), out, *(norm or (None, None, 0.0)))
    return out


def gelu_backward_(hidden: Float[Tensor, "n e"], grad: Float[Tensor, "n e"]) -> None:
    """Turn rows into their exact GELU, and its gradient into that of the rows, in place.

    Args:
        hidden: contiguous.
        grad: contiguous.
    """
    _call("pctx_gelu_backward", hidden, grad, hidden.numel())


def outer(
    a: Float[Tensor, "n o"],
    b: Float[Tensor, "n i"],
    total: Float[Tensor, "o i"] | None = None,
    sums: Float[Tensor, "o"] | None = None,
) -> Float[Tensor, "o i"]:
    """Compute a.T @ b.

    Args:
        a: rows.
        b: rows.
        total: contiguous; what the result is added to, in place.
        sums: contiguous; what is to be a.sum(0), or with `total` to be added to.
    """
    a, b = a.contiguous(), b.contiguous()
    out = a.new_empty(a.shape[1], b.shape[1]) if total is None else total
    _call("pctx_outer", a, a.shape[1], b, b.shape[1], len(a), int(total is not None), out, sums)
    return out


def convolve(
    feat: Float[Tensor, "n i"],
    taps: Float[Tensor, "t o i"] | Float[Tensor, "t i"],
    kernel_map: KernelMap,
    centre: int | None,
) -> Float[Tensor, "m o"]:
    """Sum taps[tap] @ feat[source], or taps[tap] * feat[source], over the pairs of each target.

    Args:
        feat: a row for each source.
        taps: matrices with any strides, or rows of factors.
        kernel_map: the pairs; the targets of a tap are distinct.
        centre: the tap that pairs each row with itself, if there is one.

    Raises:
        IndexError: an index lies outside.
        ValueError: the map is of another kernel.
    """
    feat = feat.contiguous()
    starts, source, target = _pairs(kernel_map)
    if len(starts) != len(taps) + 1:
        raise ValueError(f"taps must be as many as the map's, {len(starts) - 1}, found {len(taps)}")
    pairs = (starts, len(taps), -1 if centre is None else centre, source, target)
    out = feat.new_empty(kernel_map.num_targets, taps.shape[1])
    if taps.dim() == 2:
        _call("pctx_convolve_each", feat, *feat.shape, *pairs, taps.contiguous(), out, len(out))
        return out
    step, across, along = taps.stride()
    layout = (taps, step, out.shape[1], across, along)
    _call("pctx_convolve", feat, *feat.shape, *pairs, *layout, out, len(out))
    return out


def tap_gradients(
    grad: Float[Tensor, "m o"],
    feat: Float[Tensor, "n i"],
    kernel_map: KernelMap,
    centre: int | None,
    *,
    depthwise: bool,
) -> Float[Tensor, "t o i"] | Float[Tensor, "t i"]:
    """Sum the outer products of grad[target] and feat[source] over the pairs of each tap.

    Args:
        grad: a row for each target.
        feat: a row for each source.
        kernel_map: the pairs.
        centre: the tap that pairs each row with itself, if there is one.
        depthwise: whether the products are channel by channel.

    Raises:
        IndexError: an index lies outside.
    """
    grad, feat = grad.contiguous(), feat.contiguous()
    starts, source, target = _pairs(kernel_map)
    pairs = (starts, len(starts) - 1, -1 if centre is None else centre, target, source)
    sizes = (len(starts) - 1, grad.shape[1], feat.shape[1])
    out = grad.new_empty(sizes[:2] if depthwise else sizes)
    if depthwise:
        _call("pctx_inner_taps", grad, *grad.shape, feat, len(feat), *pairs, out)
    else:
        _call("pctx_outer_taps", grad, *grad.shape, feat, *feat.shape, *pairs, out)
    return out


@cache
def compiled_agrees() -> bool:
    """Build or find the kernel and try it once, against torch."""
    if _library() is None:
        return False
    generator = torch.Generator("cpu").manual_seed(0)
    shapes = ((99, 20), (70, 20), (70,), (3, 70, 20))
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        torch.autocast("cpu", enabled=False),
        torch.device("cpu"),
    ):
        x, weight, bias, taps = (
            torch.randn(*each, generator=generator, dtype=torch.float32) for each in shapes
        )
        some = KernelMap(
            source=torch.randperm(99, generator=generator),
            target=torch.arange(99),
            starts=(0, 40, 40, 99),
            kernel_size=1,
            num_sources=99,
            num_targets=99,
        )
        first, last = (
            (some.source[part], some.target[part]) for part in (slice(40), slice(40, 99))
        )
        plain = x @ taps[1].t()
        plain[first[1]] += x[first[0]] @ taps[0].t()
        plain[last[1]] += x[last[0]] @ taps[2].t()
        gradients = tap_gradients(plain, x, some, 1, depthwise=False)
        found = (
            (multiply(x, weight, bias), x @ weight.t() + bias),
            (outer(plain, x), plain.t() @ x),
            (convolve(x, taps, some, 1), plain),
            (gradients[2], plain[last[1]].t() @ x[last[0]]),
        )
    return all(torch.allclose(ours, expected, rtol=1e-4, atol=1e-3) for ours, expected in found)


def _fitting(
    channels: int, layer: tuple[Tensor, Tensor | None], norm: Norm | None = None
) -> Norm | None:
    """Return the norm as the kernel reads it; a ValueError if it or a layer is of other sizes."""
    (weight, bias), (o, i) = layer, layer[0].shape
    beside = ((bias, o), *((each, i) for each in (norm[:2] if norm else ())))
    fit = all(
        each is None or (each.shape == (size,) and each.dtype == torch.float32)
        for each, size in beside
    )
    if channels != i or weight.dtype != torch.float32 or not fit:
        raise ValueError(
            f"rows of {channels} channels, a matrix of {o} x {i}, its bias and norm do not fit"
        )
    return norm and Norm(norm.weight.contiguous(), norm.bias.contiguous(), norm.eps)


def _pairs(kernel_map: KernelMap) -> tuple[Tensor, Tensor, Tensor]:
    starts = torch.tensor(kernel_map.starts)
    if kernel_map.starts[-1] > min(len(kernel_map.source), len(kernel_map.target)):
        raise IndexError("the taps of a map have more pairs than it has")
    return starts, kernel_map.source.contiguous(), kernel_map.target.contiguous()


def _call(name: str, *arguments: Tensor | float | None) -> None:
    """Call a function of the kernel; whole numbers are int64 there, others float."""

    def of_c(value: Tensor | float | None) -> Any:
        if isinstance(value, int):
            return ctypes.c_int64(value)
        if isinstance(value, float):
            return ctypes.c_float(value)
        return ctypes.c_void_p(None if value is None else value.data_ptr())

    threads = ctypes.c_int64(torch.get_num_threads())
    done = getattr(_library(), name)(threads, *map(of_c, arguments))
    if done == 0:
        raise MemoryError("not enough memory for the product of rows and a matrix")
    if done < 0:
        raise IndexError("an index of a pair is outside of the rows")


def _library() -> ctypes.CDLL | None:
    return kernel(_SOURCE)
