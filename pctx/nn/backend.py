"""Which engine computes what: the one place that knows what is installed and what it can do.

n rows, i input channels, o output channels.

Matrix products on the CPU, float32, one core of an AMD EPYC (Zen 4) that does 117 GFLOP/s, torch
2.13, GFLOP/s of x @ weight.T / of the gradient of the weight, of rows in the cache:

    n, i, o            torch (MKL)   oneDNN   compiled_products
    608, 256, 256        103 / 97       103          111 / 108
    4096, 64, 256         98 / 85        94          109 / 97
    13312, 64, 192        82 / 79        90          101 / 87

oneDNN's x @ weight.T gives the same bytes with 1, 2, 4 and 8 threads whatever the sizes; MKL's does
where o is a multiple of 16 and n at least 12, and hardly ever elsewhere. oneDNN's bytes of the
gradient of a weight depend on the threads. The kernel's never do.

Attention on the CPU, float32, heads of 16 channels, one thread: time of plain products over that
of torch's fused kernel.

    keys, scores           forward  with backward
    48, 8 million            1.2       1.1
    1024, 8 million          2.0       1.4
    1024, 34 million         7.1       4.2

(Past 32 MB of scores the allocator asks the system for each tensor anew.) The bytes of the plain
backward depend on the threads, no others.

Segments on the CPU, float32, one thread: time of torch-scatter over that of torch, from 10,000 rows
of 32 channels to 300,000, in segments of 1 to 8 rows and of 16 (docs/benchmarks.md).

                    forward  with backward
    sum             1.7-2.6        1.4-2.4
    mean            1.3-2.0        1.6-2.0
    max, min        2.1-3.4        1.8-2.4
    softmax         1.5-2.0        1.9-2.4
"""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from pctx.geometry.kernel_map import KernelMap
from pctx.nn.compiled_products import compiled_agrees as products_agree
from pctx.nn.compiled_products import multiply, outer, products_gain, products_suit
from pctx.nn.spconv_engine import (
    spconv_agrees,
    spconv_is_installed,
    spconv_library,
    spconv_suits,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

ProductEngine = Literal["torch", "onednn", "compiled"]
ConvolutionEngine = Literal["torch", "spconv"]
ConvolutionBackend = Literal["auto", "torch", "spconv"]
AttentionEngine = Literal["plain", "sdpa"]
AttentionBackend = Literal["auto", "plain", "sdpa"]
SegmentEngine = Literal["torch", "torch_scatter"]
SegmentBackend = Literal["auto", "torch", "torch_scatter"]

COMPILED_FROM = 16_000_000
"""Multiply-adds from which the kernel gains more than a call of it costs."""

PANEL = 32
"""Columns that it computes at once: 48 take as long as 64, which MKL beats."""

ONEDNN_FROM = 64_000_000
"""Multiply-adds from which oneDNN gains whole networks time, where the kernel is not used."""

MKL_TILE = 16
MKL_ROWS = 12
"""Output channels of which a multiple, and rows from which, MKL's bytes are the same for any number
of threads."""

PLAIN_BELOW = 48
"""Keys below which torch's fused attention loses time on the CPU (table above)."""


def linear(
    x: Float[Tensor, "*n i"], weight: Float[Tensor, "o i"], bias: Float[Tensor, "o"] | None = None
) -> Float[Tensor, "*n o"]:
    """Compute x @ weight.T + bias by the engine that suits, differentiable."""
    if product_engine(x, weight) != "torch":
        rows: Tensor = _Linear.apply(x.reshape(-1, x.shape[-1]), weight, bias)
        return rows.view(*x.shape[:-1], len(weight))
    return F.linear(x, weight, bias)


def product(
    x: Float[Tensor, "n i"],
    weight: Float[Tensor, "o i"],
    out: Float[Tensor, "n o"] | None = None,
) -> Float[Tensor, "n o"]:
    """Compute x @ weight.T by the engine that suits, where no gradient is recorded.

    Args:
        x: rows.
        weight: rows too.
        out: room for the result, which torch's own engine uses.
    """
    if product_engine(x, weight) != "torch":
        return _product(x, weight, None)
    return torch.mm(x, weight.t(), out=out)


def weight_gradients(
    grad: Float[Tensor, "n o"],
    x: Float[Tensor, "n i"],
    of_weight: Float[Tensor, "o i"] | None = None,
    of_bias: Float[Tensor, "o"] | None = None,
) -> tuple[Float[Tensor, "o i"], Float[Tensor, "o"]]:
    """Compute grad.T @ x and grad.sum(0), or add both in place, where no gradient is recorded.

    Args:
        grad: of the rows that come out of a linear layer.
        x: the rows that went in.
        of_weight: contiguous, as is `of_bias`; what is added to.
        of_bias: the same.
    """
    if compiled_gains(grad.numel() * x.shape[1], (x.shape[1],), grad, x):
        of_bias = grad.new_empty(grad.shape[1]) if of_bias is None else of_bias
        return outer(grad, x, of_weight, of_bias), of_bias
    if of_weight is None or of_bias is None:
        return grad.t() @ x, grad.sum(0)
    return of_weight.addmm_(grad.t(), x), of_bias.add_(grad.sum(0))


def product_engine(x: Float[Tensor, "*n i"], weight: Float[Tensor, "o i"]) -> ProductEngine:
    """Choose the engine of one matrix product: one that gains time or bytes."""
    o, i = weight.shape
    if x.shape[-1] == i and compiled_gains(x.numel() * o, (o,), x, weight):
        return "compiled"
    suits = (
        not torch.compiler.is_compiling()  # first: a compiled graph is one for all sizes
        and x.numel() > 0
        and (
            (x.numel() * o > ONEDNN_FROM and _is_dense(weight))
            or o % MKL_TILE != 0
            or x.numel() < MKL_ROWS * i
        )
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
    )
    return "onednn" if suits and _onednn_agrees() else "torch"


def compiled_gains(multiply_adds: int, widths: Sequence[int], *tensors: Tensor) -> bool:
    """Tell whether the kernel gains time with columns that many, and can read the tensors."""
    return (
        products_suit(*tensors)  # first: a compiled graph is one for all sizes
        and multiply_adds > COMPILED_FROM
        and all(width % PANEL == 0 or width > 8 * PANEL for width in widths)
        and products_gain()
        and not torch.is_autocast_enabled("cpu")
    )


def attention_engine(
    key: Float[Tensor, "w h k d"], backend: AttentionBackend = "auto"
) -> AttentionEngine:
    """Choose the engine of dot-product attention: the one asked for, or the one that suits.

    Args:
        key: what is asked.
        backend: "plain" (product, softmax, product), "sdpa" (torch's fused attention, memory
            linear in k), or "auto".

    Raises:
        ValueError: if there is no such backend.
    """
    if backend not in ("auto", "plain", "sdpa"):
        raise ValueError(f"backend must be auto, plain or sdpa, found {backend}")
    if backend != "auto":
        return backend
    if key.device.type != "cpu" or torch.compiler.is_compiling():
        return "sdpa"
    return "plain" if key.shape[-2] < PLAIN_BELOW else "sdpa"


def convolution_engine(
    feat: Float[Tensor, "n i"],
    weight: Float[Tensor, "o k k k c"],
    kernel_map: KernelMap,
    backend: ConvolutionBackend = "auto",
) -> ConvolutionEngine:
    """Choose the engine of a sparse convolution.

    Args:
        feat: the rows read.
        weight: of every tap.
        kernel_map: the pairs.
        backend: "torch"; "spconv", where it can compute this and agrees with plain products, else
            torch; "auto": on a GPU likewise in float32, elsewhere torch (docs/benchmarks.md).

    Raises:
        ValueError: if there is no such backend.
        ImportError: if spconv is asked for and cannot be loaded.
    """
    check_backend(backend)
    wanted = backend == "spconv" or (
        backend == "auto" and feat.device.type == "cuda" and feat.dtype == torch.float32
    )
    here = wanted and spconv_is_installed() and spconv_suits(feat, weight, kernel_map)
    return "spconv" if here and spconv_agrees(feat.device) else "torch"


def check_backend(backend: ConvolutionBackend) -> None:
    """Find out whether sparse convolutions can be asked for so.

    Raises:
        ValueError: if there is no such backend.
        ImportError: if spconv is asked for and cannot be loaded.
    """
    if backend not in ("auto", "torch", "spconv"):
        raise ValueError(f"backend must be auto, torch or spconv, found {backend}")
    if backend == "spconv":
        spconv_library()


def segment_engine(backend: SegmentBackend = "auto") -> SegmentEngine:
    """Choose the engine of segment reductions: the one asked for; "auto" is torch (table above).

    Raises:
        ValueError: if there is no such backend.
    """
    if backend not in ("auto", "torch", "torch_scatter"):
        raise ValueError(f"backend must be auto, torch or torch_scatter, found {backend}")
    return "torch" if backend == "auto" else backend


def scatter_library() -> ModuleType:
    """Import torch-scatter.

    Raises:
        ImportError: if it is not here, or was built beside another torch.
    """
    try:
        import torch_scatter
    except (ImportError, OSError) as error:
        raise ImportError(
            f"torch-scatter cannot be loaded ({error}); "
            "pip install --no-build-isolation 'pctx[scatter]' builds it for the torch that is here"
        ) from error
    library: ModuleType = torch_scatter
    return library


def engines() -> Mapping[str, str]:
    """Name the engine of each kind of work on this machine's CPU, for reports."""
    from pctx.nn.compiled_attention import compiled_agrees  # which stands on this module

    inside = "a compiled kernel in windows, else " if compiled_agrees() else ""
    mostly = "a compiled kernel, else " if products_gain() and products_agree() else ""
    return MappingProxyType(
        {
            "matrix products": f"{mostly}{'oneDNN' if _onednn_agrees() else 'torch'}",
            "attention": f"{inside}torch scaled_dot_product_attention",
            "sparse convolution": _convolution_report(),
            "segment reductions": "torch, on CPUs faster than torch-scatter",
        }
    )


def _convolution_report() -> str:
    if spconv_is_installed() and torch.cuda.is_available():
        agrees = spconv_agrees(torch.device("cuda"))
        return "spconv on the GPU" if agrees else "torch, as the spconv here disagrees with it"
    ours = "a compiled kernel, else torch" if products_agree() else "torch"
    if spconv_is_installed():
        return f"{ours}; spconv is here: backend='spconv'"
    return f"{ours}; spconv would be faster on GPUs: pip install spconv-cu120 or spconv-cu126"


class _Linear(torch.autograd.Function):
    """x @ weight.T + bias by another engine than torch's; its backward is differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        of_weight = of_bias = None
        if torch.is_grad_enabled():
            of_weight, of_bias = grad.t() @ x, grad.sum(0)
        elif wants_weight:
            of_weight, of_bias = weight_gradients(grad, x)
        elif wants_bias:
            of_bias = grad.sum(0)
        return (
            linear(grad, weight.t()) if wants_x else None,
            of_weight,
            of_bias if wants_bias and ctx.has_bias else None,
        )


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if product_engine(x, weight) == "compiled":
        return multiply(x, weight, bias)
    return _onednn_linear(x, weight, bias)


def _onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # Other strides send oneDNN to a reference loop, a thousand times slower.
    dense = weight if _is_dense(weight) else weight.contiguous()
    product: Tensor = torch.ops.mkldnn._linear_pointwise(
        x.contiguous(), dense, bias, "none", [], ""
    )
    return product


def _is_dense(weight: Tensor) -> bool:
    return weight.is_contiguous() or weight.t().is_contiguous()


@cache
def _onednn_agrees() -> bool:
    """Try torch's private oneDNN operator once, against the public one."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 48, generator=generator)
    weight = torch.randn(32, 48, generator=generator)
    bias = torch.randn(32, generator=generator)
    try:
        with torch.no_grad():
            return torch.allclose(
                _onednn_linear(x, weight, bias), F.linear(x, weight, bias), rtol=1e-4, atol=1e-4
            ) and torch.allclose(
                _onednn_linear(x, weight.t().contiguous().t(), None),
                F.linear(x, weight),
                rtol=1e-4,
                atol=1e-4,
            )
    except (AttributeError, RuntimeError):  # a build without oneDNN, or a changed operator
        return False
