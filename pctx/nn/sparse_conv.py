"""SubmanifoldConv3d: a convolution whose output lives on its input's voxels.

n voxels, p pairs, t taps, i input channels, o output channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pctx.geometry.kernel_map import KernelMap
from pctx.nn.backend import ConvolutionEngine, convolution_engine, linear

HALF = (torch.float16, torch.bfloat16)


class SubmanifoldConv3d(nn.Module):
    """Sum weight[tap] @ neighbour over the neighbours that exist; no new voxels appear.

    (Graham et al., 3D Semantic Segmentation with Submanifold Sparse Convolutional Networks, 2018.)

    Attributes:
        weight: (out, k, k, k, in); weight[:, i, j, l] meets the voxel at
            (x + i - k // 2, y + j - k // 2, z + l - k // 2).
        bias: (out,) or None.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, bias: bool = True):
        super().__init__()
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd and at least 1, found {kernel_size}")
        self.kernel_size = kernel_size
        k = kernel_size
        self.weight = nn.Parameter(torch.empty(out_channels, k, k, k, in_channels))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias as torch's own convolutions do: uniform, by the fan in."""
        bound = 1 / math.sqrt(self.weight[0].numel())
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, feat: Float[Tensor, "n i"], kernel_map: KernelMap) -> Float[Tensor, "n o"]:
        """Convolve over the pairs of a kernel map of the same size.

        Raises:
            ValueError: if the map was made for another kernel size.
        """
        if kernel_map.kernel_size != self.kernel_size:
            raise ValueError(
                f"the kernel map is of size {kernel_map.kernel_size}, "
                f"the convolution of size {self.kernel_size}"
            )
        convolve = _ENGINES[convolution_engine(feat)]
        return convolve(feat, self.weight, self.bias, kernel_map)

    def extra_repr(self) -> str:
        """Show the sizes."""
        out_channels, k, _, _, in_channels = self.weight.shape
        return f"{in_channels}, {out_channels}, kernel_size={k}, bias={self.bias is not None}"


def _convolve_by_tap(
    feat: Tensor, weight: Tensor, bias: Tensor | None, kernel_map: KernelMap
) -> Tensor:
    """Gather, multiply and add, tap by tap, in plain torch."""
    device = feat.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        feat, weight = feat.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    taps = weight.flatten(1, 3).transpose(0, 1).contiguous()  # (t, o, i)
    with torch.autocast(device, enabled=False):
        rows: Tensor = _TapConvolution.apply(feat, taps, bias, kernel_map)
    return rows


_ENGINES: Mapping[ConvolutionEngine, Callable[..., Tensor]] = MappingProxyType(
    {"torch": _convolve_by_tap}
)


class _TapConvolution(torch.autograd.Function):
    """A tap's targets are distinct, so its sums have one order whatever the threads."""

    @staticmethod
    def forward(
        ctx: Any, feat: Tensor, taps: Tensor, bias: Tensor | None, kernel_map: KernelMap
    ) -> Tensor:
        ctx.save_for_backward(feat, taps)
        ctx.kernel_map, ctx.has_bias = kernel_map, bias is not None
        # The centre tap pairs each voxel with itself: no gather.
        out = _wide(linear(feat, taps[len(taps) // 2], bias))
        for tap, source, target in _pairs(kernel_map):
            _add_rows(out, target, linear(feat.index_select(0, source), taps[tap]))
        return out.to(feat.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        feat, taps = ctx.saved_tensors
        grad, centre = grads[0].contiguous(), len(taps) // 2
        wants_feat, wants_taps, wants_bias = ctx.needs_input_grad[:3]
        grad_feat = _wide(linear(grad, taps[centre].t())) if wants_feat else None
        grad_taps = torch.zeros_like(taps) if wants_taps else None
        if grad_taps is not None:
            torch.mm(grad.t(), feat, out=grad_taps[centre])
        for tap, source, target in _pairs(ctx.kernel_map):
            rows = grad.index_select(0, target)
            if grad_taps is not None:
                torch.mm(rows.t(), feat.index_select(0, source), out=grad_taps[tap])
            if grad_feat is not None:
                _add_rows(grad_feat, source, linear(rows, taps[tap].t()))
        return (
            None if grad_feat is None else grad_feat.to(feat.dtype),
            grad_taps,
            _wide(grad).sum(0).to(grad.dtype) if wants_bias and ctx.has_bias else None,
            None,
        )


def _pairs(kernel_map: KernelMap) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield each tap that meets a voxel, apart from the centre, with its pairs."""
    starts = kernel_map.starts
    for tap, (start, stop) in enumerate(pairwise(starts)):
        if stop > start and tap != len(starts) // 2 - 1:
            yield tap, kernel_map.source[start:stop], kernel_map.target[start:stop]


def _add_rows(total: Tensor, index: Tensor, rows: Tensor) -> None:
    """Add rows[p] to total[index[p]], in place."""
    # With the index expanded, twice as fast as index_add_.
    total.scatter_add_(0, index[:, None].expand_as(rows), rows.to(total.dtype))


def _wide(rows: Tensor) -> Tensor:
    """Let sums of half-precision rows be taken in float32."""
    return rows.float() if rows.dtype in HALF else rows
