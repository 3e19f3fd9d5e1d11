"""Sparse convolution by spconv over our kernel maps: the twin of `tap_convolution`.

spconv gets our pairs of rows and our weights, never coordinates: what it does wrong with these
(volumes beyond 32 bits, equal voxels, orders of its own) cannot happen, and a map is made once.
Its algorithm is Native, the one that runs on a CPU too.

n rows read, m rows written, t taps, i input channels, o output channels.
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from pctx.geometry.kernel_map import KernelMap
from pctx.nn.derivative import first_only

if TYPE_CHECKING:
    from types import ModuleType

LARGEST = 2**31
"""spconv counts the numbers of a tensor in 32 bits."""


def spconv_is_installed() -> bool:
    """Look for spconv without importing it, which takes seconds."""
    return find_spec("spconv") is not None


@cache
def spconv_library() -> ModuleType:
    """Import spconv's functions.

    Raises:
        ImportError: if spconv is not here, or was built for another machine.
    """
    try:
        with warnings.catch_warnings():
            # It leans on what torch and Python have since renamed.
            warnings.simplefilter("ignore")
            from spconv.pytorch import ops
    except (ImportError, OSError) as error:
        raise ImportError(
            f"spconv cannot be loaded ({error}); pip install spconv-cu120 (Python up to 3.11) or "
            "spconv-cu126, or use backend='torch'"
        ) from error
    library: ModuleType = ops
    return library


def spconv_suits(
    feat: Float[Tensor, "n i"], weight: Float[Tensor, "o k k k c"], kernel_map: KernelMap
) -> bool:
    """Tell whether spconv can compute this convolution: it knows no groups and no float64."""
    rows = max(kernel_map.num_sources, kernel_map.num_targets)
    return (
        feat.device.type in ("cpu", "cuda")
        and feat.dtype in (torch.float32, torch.float16, torch.bfloat16)
        and weight.shape[-1] == feat.shape[1]
        and 0 < rows * max(len(weight), feat.shape[1]) < LARGEST
        and len(kernel_map.source) > 0
        and 2 * len(kernel_map.starts) * rows < LARGEST
        and not torch.compiler.is_compiling()
    )


@cache
def spconv_agrees(device: torch.device) -> bool:
    """Try spconv once on a device, value and gradients, against plain products."""
    # The first convolution may be one without gradients.
    with torch.inference_mode(False), torch.enable_grad():
        return _agrees(device)


def _agrees(device: torch.device) -> bool:
    generator = torch.Generator().manual_seed(0)
    source = torch.randperm(64, generator=generator)[:40]
    pairs = KernelMap(
        source=torch.cat([source, source[:24] ^ 1]),
        target=torch.cat([source.sort()[0], source[:24].sort()[0]]),
        starts=(0, *[40] * 13, *[64] * 14),
        kernel_size=3,
        num_sources=64,
        num_targets=64,
        stride=2,
    ).to(device)
    weight = torch.randn(32, 3, 3, 3, 16, generator=generator).to(device).requires_grad_()
    feat = torch.randn(64, 16, generator=generator).to(device).requires_grad_()
    expected = feat.new_zeros(64, 32)
    for tap, (start, stop) in enumerate(pairwise(pairs.starts)):
        rows = feat[pairs.source[start:stop]] @ weight.flatten(1, 3)[:, tap].t()
        expected = expected.index_add(0, pairs.target[start:stop], rows)

    def results(out: Tensor) -> tuple[Tensor, ...]:
        return out, *torch.autograd.grad(out.sin().sum(), (feat, weight))

    try:
        found = results(convolve_by_spconv(feat, weight, pairs))
    except (ImportError, AttributeError, TypeError, RuntimeError):  # of another machine, or changed
        return False
    return all(
        torch.allclose(ours, plain, rtol=1e-4, atol=1e-4)
        for ours, plain in zip(found, results(expected), strict=True)
    )


def convolve_by_spconv(
    feat: Float[Tensor, "n i"], weight: Float[Tensor, "o k k k i"], kernel_map: KernelMap
) -> Float[Tensor, "m o"]:
    """Do as `convolve_by_tap`. Half-precision rows are multiplied and summed in float32.

    Raises:
        ImportError: if spconv cannot be loaded.
    """
    rows: Tensor = _SpconvConvolution.apply(feat.float(), weight.float(), kernel_map)
    return rows.to(feat.dtype)


def lay_out(kernel_map: KernelMap) -> tuple[Tensor, Tensor]:
    """Lay a map out as spconv does: (sources and targets, t, most pairs of a tap), and the counts.

    A submanifold map's centre tap is left out, as spconv knows it.
    """
    spans = list(pairwise(kernel_map.starts))
    if kernel_map.stride == 1:
        spans[len(spans) // 2] = (0, 0)
    counts = [stop - start for start, stop in spans]
    pairs = torch.full(
        (2, len(spans), max(1, *counts)), -1, dtype=torch.int32, device=kernel_map.source.device
    )
    for tap, (start, stop) in enumerate(spans):
        pairs[0, tap, : stop - start] = kernel_map.source[start:stop]
        pairs[1, tap, : stop - start] = kernel_map.target[start:stop]
    return pairs, torch.tensor(counts, dtype=torch.int32, device=pairs.device)


class _SpconvConvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, feat: Tensor, weight: Tensor, kernel_map: KernelMap) -> Tensor:
        ops = spconv_library()
        pairs, counts = lay_out(kernel_map)
        feat, weight = feat.contiguous(), weight.contiguous()
        ctx.save_for_backward(feat, weight, pairs, counts)
        ctx.submanifold = kernel_map.stride == 1
        rows: Tensor = ops.indice_conv(
            feat,
            weight,
            pairs,
            counts,
            kernel_map.num_targets,
            inverse=False,
            subm=ctx.submanifold,
            algo=ops.ConvAlgo.Native,
        )
        return rows

    @staticmethod
    @first_only
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        ops = spconv_library()
        feat, weight, pairs, counts = ctx.saved_tensors
        grad_feat, grad_weight = ops.indice_conv_backward(
            feat,
            weight,
            grads[0].contiguous(),
            pairs,
            counts,
            inverse=False,
            subm=ctx.submanifold,
            algo=ops.ConvAlgo.Native,
        )
        return grad_feat, grad_weight, None
