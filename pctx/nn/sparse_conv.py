"""Sparse convolutions on a kernel map: submanifold, strided, and the inverse of a strided one.

n voxels, m coarse voxels, i input channels, o output channels. Names and layouts of the parameters
are spconv's, so that state dicts move both ways; `backend` is told in `backend.convolution_engine`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pctx.geometry.kernel_map import KernelMap
from pctx.geometry.tap_table import TapTable
from pctx.nn.backend import ConvolutionBackend, check_backend, convolution_engine
from pctx.nn.fused_attention import full_precision
from pctx.nn.spconv_engine import convolve_by_spconv
from pctx.nn.table_convolution import convolve_by_table
from pctx.nn.tap_convolution import convolve_by_tap


class _SparseConvolution(nn.Module, ABC):
    """A kernel of k taps an axis, and its bias.

    Attributes:
        weight: (out, k, k, k, in / groups); weight[:, i, j, l] belongs to the kernel map's tap
            (i * k + j) * k + l.
        bias: (out,) or None.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        bias: bool,
        *,
        groups: int = 1,
        backend: ConvolutionBackend,
    ):
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(
                f"groups must divide in_channels {in_channels} and out_channels {out_channels}, "
                f"found {groups}"
            )
        k = self.kernel_size = kernel_size
        self.in_channels, self.groups, self.backend = in_channels, groups, backend
        self.weight = nn.Parameter(torch.empty(out_channels, k, k, k, in_channels // groups))
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias as torch's own convolutions do: uniform, by the fan in."""
        bound = 1 / math.sqrt(self.weight[0].numel())
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    @abstractmethod
    def forward(self, feat: Tensor, kernel_map: KernelMap | TapTable) -> Tensor:
        """Convolve over the pairs of a map."""

    def _convolve(self, feat: Tensor, kernel_map: KernelMap | TapTable) -> Tensor:
        if feat.shape[0] != kernel_map.num_sources:
            raise ValueError(
                f"the kernel map reads {kernel_map.num_sources} rows, but feat has {feat.shape[0]}"
            )
        if kernel_map.kernel_size != self.kernel_size:
            raise ValueError(
                f"the kernel map is of size {kernel_map.kernel_size}, "
                f"the convolution of size {self.kernel_size}"
            )
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        device = feat.device.type
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            feat, weight = feat.to(dtype), weight.to(dtype)
            bias = None if bias is None else bias.to(dtype)
        with full_precision(feat.device):
            if self.groups == 1 or self.groups == self.in_channels == len(weight):
                out = _convolve(feat, weight, kernel_map, self.backend)
            else:
                parts = zip(feat.chunk(self.groups, 1), weight.chunk(self.groups), strict=True)
                out = torch.cat([_convolve(*part, kernel_map, self.backend) for part in parts], 1)
            return out if bias is None else out + bias

    def extra_repr(self) -> str:
        """Show the sizes."""
        groups = f", groups={self.groups}" if self.groups > 1 else ""
        return (
            f"{self.in_channels}, {len(self.weight)}, kernel_size={self.kernel_size}{groups}, "
            f"bias={self.bias is not None}"
        )


class SubmanifoldConv3d(_SparseConvolution):
    """Sum weight[tap] @ neighbour over the neighbours that exist; no new voxels appear.

    (Graham et al., 3D Semantic Segmentation with Submanifold Sparse Convolutional Networks, 2018.)
    weight[:, i, j, l] meets the voxel at (x + d * (i - k // 2), y + d * (j - k // 2),
    z + d * (l - k // 2)), d being the dilation. With as many groups as channels it is depthwise.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        bias: bool = True,
        *,
        dilation: int = 1,
        groups: int = 1,
        backend: ConvolutionBackend = "auto",
    ):
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd and at least 1, found {kernel_size}")
        super().__init__(
            in_channels, out_channels, kernel_size, bias, groups=groups, backend=backend
        )
        self.dilation = dilation

    def forward(
        self, feat: Float[Tensor, "n i"], kernel_map: KernelMap | TapTable
    ) -> Float[Tensor, "n o"]:
        """Convolve over the pairs of a `kernel_map` of the same size and dilation.

        Raises:
            ValueError: if the map is another's.
        """
        if kernel_map.stride != 1 or kernel_map.dilation != self.dilation:
            raise ValueError(
                f"the kernel map has stride {kernel_map.stride} and dilation "
                f"{kernel_map.dilation}, the convolution stride 1 and dilation {self.dilation}"
            )
        return self._convolve(feat, kernel_map)


class SparseConv3d(_SparseConvolution):
    """The dense convolution of the same stride, at the coarse voxels of the map.

    weight[:, i, j, l] meets the voxel (stride * X - padding + i, …) of the coarse voxel (X, Y, Z).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 2,
        bias: bool = True,
        *,
        backend: ConvolutionBackend = "auto",
    ):
        super().__init__(in_channels, out_channels, kernel_size, bias, backend=backend)
        self.stride = stride

    def forward(
        self, feat: Float[Tensor, "n i"], kernel_map: KernelMap | TapTable
    ) -> Float[Tensor, "m o"]:
        """Convolve over the pairs of a `strided_map` of the same size and stride.

        Raises:
            ValueError: if the map is another's.
        """
        if kernel_map.stride != self.stride:
            raise ValueError(
                f"the kernel map has stride {kernel_map.stride}, the convolution {self.stride}"
            )
        return self._convolve(feat, kernel_map)


class SparseInverseConv3d(_SparseConvolution):
    """The transposed convolution from the coarse voxels of a strided map back to its voxels.

    weight[:, i, j, l] takes the coarse voxel (X, Y, Z) to the voxel (stride * X - padding + i, …).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        bias: bool = True,
        *,
        backend: ConvolutionBackend = "auto",
    ):
        super().__init__(in_channels, out_channels, kernel_size, bias, backend=backend)

    def forward(
        self, feat: Float[Tensor, "m i"], kernel_map: KernelMap | TapTable
    ) -> Float[Tensor, "n o"]:
        """Convolve over the pairs of the `strided_map` that led to the coarse voxels, turned round.

        Raises:
            ValueError: if the map is another's.
        """
        if kernel_map.stride == 1:
            raise ValueError("the kernel map has stride 1; an inverse goes back over a strided map")
        return self._convolve(feat, kernel_map.turned())


def set_backend(model: nn.Module, backend: ConvolutionBackend) -> None:
    """Let all sparse convolutions of a model ask for one engine, with the same numbers.

    Raises:
        ValueError: if there is no such backend.
        ImportError: if spconv is asked for and cannot be loaded.
    """
    check_backend(backend)
    for part in model.modules():
        if isinstance(part, _SparseConvolution):
            part.backend = backend


def _convolve(
    feat: Tensor, weight: Tensor, kernel_map: KernelMap | TapTable, backend: ConvolutionBackend
) -> Tensor:
    if isinstance(kernel_map, TapTable):
        return convolve_by_table(feat, weight, kernel_map)
    engine = convolution_engine(feat, weight, kernel_map, backend)
    convolve = convolve_by_spconv if engine == "spconv" else convolve_by_tap
    return convolve(feat, weight, kernel_map)
