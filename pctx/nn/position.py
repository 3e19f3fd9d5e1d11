"""Where a point is, told to a network: sinusoidal, learned, coordinate MLP, conditional encoding.

Encodings are parts that take one another's place where they are called alike:

- absolute: `encode(coord) -> (n, c)`, added to the features of a point, or joined to them;
- relative: `encode(position, windows, …) -> (w, h, k, k)`, added to the scores of attention in
  windows (`relative.py`; `contextual.py` adds to the values too, rotary turns queries and keys);
- conditional: `encode(feat, kernel_map) -> (n, c)`, added to the features (the residual is the
  caller's).

n points, a axes, c channels, w windows, k slots a window, h heads.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from pctx.geometry.kernel_map import KernelMap
from pctx.nn.linear import Linear, normed_linear
from pctx.nn.mlp import NORM_EPS, NORM_MOMENTUM, BatchNorm
from pctx.nn.sparse_conv import SubmanifoldConv3d

TABLE_STD = 0.02
"""Spread of a fresh table, as published with Swin (Liu et al., 2021) and PTv3."""


class SinusoidalEncoding(nn.Module):
    """Sines and cosines of each coordinate, from short waves to long; nothing is learned.

    An axis has p = channels // 6 waves, wave i of 2 pi * scale * temperature**(i / p) metres, and
    for each its sine and its cosine; x comes first, then y, then z. The channels % 6 that are left
    over are 0. Points further apart than the longest wave may be told alike. (Vaswani et al.,
    Attention Is All You Need, 2017, section 3.5, an axis at a time.)

    Args:
        channels: at least 6.
        scale: metres in which the shortest wave turns by one radian: about the voxels' edge.
        temperature: the longest wave over the shortest, but for one step of p.
    """

    def __init__(self, channels: int, scale: float = 0.1, temperature: float = 10_000.0):
        super().__init__()
        if channels < 6:
            raise ValueError(
                f"channels must be at least 6, a sine and a cosine an axis, found {channels}"
            )
        if scale <= 0 or temperature < 1:
            raise ValueError(
                f"scale must be above 0 and temperature at least 1, found {scale} and {temperature}"
            )
        self.channels = channels
        self.scale = scale
        self.temperature = temperature

    def forward(self, coord: Float[Tensor, "*n 3"]) -> Float[Tensor, "*n c"]:
        """Encode each coordinate, in metres from whatever origin the model takes."""
        waves = self.channels // 6
        exponent = -torch.arange(waves, device=coord.device, dtype=coord.dtype) / waves
        angle = coord[..., None] / self.scale * self.temperature**exponent  # (*n, 3, p)
        pairs = torch.stack([angle.sin(), angle.cos()], dim=-1)  # (*n, 3, p, 2)
        return F.pad(pairs.flatten(-3), (0, self.channels % 6))

    def extra_repr(self) -> str:
        """Show the sizes."""
        return f"{self.channels}, scale={self.scale}, temperature={self.temperature}"


class LearnedEncoding(nn.Module):
    """A learned row for each bucket of each axis; the rows of the axes are added.

    Bucket b holds positions from b * step to (b + 1) * step; positions below 0 count to bucket 0,
    those past the last to the last. (Vaswani et al., 2017, section 3.5, row E of table 3;
    Dosovitskiy et al., An Image Is Worth 16x16 Words, 2021, for the places of patches.)

    Attributes:
        table: (axes, size, channels).

    Args:
        channels: c.
        size: buckets an axis.
        step: of a bucket: 1 for voxel or patch numbers, else metres.
        axes: 3 for positions in space, 1 for places in a row.
    """

    def __init__(self, channels: int, size: int, step: float = 1.0, axes: int = 3):
        super().__init__()
        if size < 1 or step <= 0:
            raise ValueError(f"size and step must be positive, found {size} and {step}")
        self.step = step
        self.table = nn.Parameter(torch.empty(axes, size, channels))
        nn.init.trunc_normal_(self.table, std=TABLE_STD)

    def forward(
        self, position: Float[Tensor, "*n a"] | Int[Tensor, "*n a"]
    ) -> Float[Tensor, "*n c"]:
        """Look up each position."""
        axes, size, channels = self.table.shape
        bucket = torch.div(position, self.step, rounding_mode="floor").long().clamp(0, size - 1)
        first = torch.arange(axes, device=position.device) * size
        rows = self.table.view(axes * size, channels).index_select(0, (bucket + first).view(-1))
        return rows.view(*position.shape, channels).sum(-2)

    def extra_repr(self) -> str:
        """Show the sizes."""
        axes, size, channels = self.table.shape
        return f"{channels}, size={size}, step={self.step}, axes={axes}"


class CoordinateMLP(nn.Module):
    """Metres to channels: linear, batch norm, ReLU, linear.

    Of coordinates it is an absolute encoding, of the offsets between points a relative one.
    (Zhao et al., Point Transformer, 2021, equation 4, with 3 hidden channels; Wu et al., Point
    Transformer V2, 2022, section 3.3, with as many as channels.)
    """

    def __init__(self, channels: int, hidden_channels: int = 3, *, eps: float = 1e-5):
        super().__init__()
        self.fc1 = Linear(3, hidden_channels)
        self.norm = BatchNorm(hidden_channels, eps=eps, momentum=0.1)
        self.fc2 = Linear(hidden_channels, channels)

    def forward(
        self, offset: Float[Tensor, "*n 3"], valid: Bool[Tensor, "*n"] | None = None
    ) -> Float[Tensor, "*n c"]:
        """Encode each offset or coordinate.

        Args:
            offset: metres.
            valid: rows that the norm counts in training; None if all. The others are mapped alike.
        """
        rows = None if valid is None else valid.reshape(-1)
        hidden = self.norm(self.fc1(offset.reshape(-1, 3)), rows).relu()
        return self.fc2(hidden).view(*offset.shape[:-1], self.fc2.out_features)


class ConditionalEncoding(nn.Module):
    """Position out of which neighbours exist: submanifold convolution, linear, layer norm.

    The residual stays outside: `feat + encode(feat, …)`. (xCPE: Wu et al., Point Transformer V3,
    2024, section 4; after Chu et al., Conditional Positional Encodings, 2023.)
    """

    def __init__(self, channels: int, kernel_size: int = 3):
        super().__init__()
        self.conv = SubmanifoldConv3d(channels, channels, kernel_size)
        self.linear = Linear(channels, channels)
        self.norm = nn.LayerNorm(channels)

    def forward(self, feat: Float[Tensor, "n c"], kernel_map: KernelMap) -> Float[Tensor, "n c"]:
        """Encode each voxel by the features around it."""
        return normed_linear(self.linear, self.norm, self.conv(feat, kernel_map))


class DepthwiseConditionalEncoding(nn.Module):
    """Position out of which neighbours exist, a channel at a time: depthwise convolution, norm.

    The residual stays outside: `feat + encode(feat, …)`. (The conditional encoding of Wang,
    OctFormer, 2023, there over the nodes of one octree depth.)
    """

    def __init__(self, channels: int, kernel_size: int = 3):
        super().__init__()
        self.conv = SubmanifoldConv3d(channels, channels, kernel_size, bias=False, groups=channels)
        self.norm = BatchNorm(channels, eps=NORM_EPS, momentum=NORM_MOMENTUM)

    def forward(self, feat: Float[Tensor, "n c"], kernel_map: KernelMap) -> Float[Tensor, "n c"]:
        """Encode each voxel by the features around it."""
        return self.norm(self.conv(feat, kernel_map))
