"""Layers of one point each: linear, MLP, norm over packed points, stochastic depth a cloud.

n points, b clouds, c channels, i input channels, o output channels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from pctx.geometry.packed import batch_from_offsets
from pctx.nn import backend

BATCH_NORM_EPS = 1e-3
BATCH_NORM_MOMENTUM = 0.01
"""Both as published with PTv3 (Wu et al., 2024), whose clouds are large and batches few."""


class Linear(nn.Linear):
    """nn.Linear whose product runs on the engine that `backend` chooses."""

    def forward(self, input: Float[Tensor, "*n i"]) -> Float[Tensor, "*n o"]:
        """Map each row."""
        return backend.linear(input, self.weight, self.bias)


class MLP(nn.Module):
    """Two linear layers with an exact GELU between them."""

    def __init__(self, channels: int, hidden_channels: int, out_channels: int | None = None):
        super().__init__()
        self.fc1 = Linear(channels, hidden_channels)
        self.fc2 = Linear(hidden_channels, channels if out_channels is None else out_channels)

    def forward(self, feat: Float[Tensor, "*n c"]) -> Float[Tensor, "*n o"]:
        """Map each row."""
        return self.fc2(F.gelu(self.fc1(feat)))


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation over packed points, exact for many rows and defined for few.

    In training the mean and the variance are taken in two passes (torch's own single pass loses
    two digits at a million rows); fewer than two rows have no variance and are normalised by the
    running statistics, which they leave as they are.
    """

    def __init__(
        self, channels: int, eps: float = BATCH_NORM_EPS, momentum: float = BATCH_NORM_MOMENTUM
    ):
        super().__init__(channels, eps=eps, momentum=momentum)

    def forward(self, input: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """Normalise each channel over the points of all clouds."""
        n = len(input)
        if not self.training or n < 2:
            mean, var = self.running_mean, self.running_var
            return F.batch_norm(input, mean, var, self.weight, self.bias, False, 0.0, self.eps)
        wide = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        mean = wide.mean(0)
        centred = wide - mean
        var = centred.square().mean(0)
        self._track(mean.detach(), var.detach() * (n / (n - 1)))
        scale = torch.rsqrt(var + self.eps) * self.weight
        return torch.addcmul(self.bias, centred, scale).to(input.dtype)

    def _track(self, mean: Tensor, unbiased_var: Tensor) -> None:
        assert self.running_mean is not None and self.running_var is not None
        assert self.num_batches_tracked is not None and self.momentum is not None
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(unbiased_var.to(self.running_var.dtype), self.momentum)
        self.num_batches_tracked.add_(1)


class LinearNorm(nn.Module):
    """Linear, batch norm, exact GELU."""

    def __init__(
        self, in_channels: int, out_channels: int, norm_momentum: float = BATCH_NORM_MOMENTUM
    ):
        super().__init__()
        self.linear = Linear(in_channels, out_channels)
        self.norm = BatchNorm(out_channels, momentum=norm_momentum)

    def forward(self, feat: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:
        """Map each row."""
        return F.gelu(self.norm(self.linear(feat)))


class DropPath(nn.Module):
    """Stochastic depth: in training, a residual branch is left out for whole clouds at random.

    A kept cloud is divided by the share kept, so that the expectation stays. Draws come from
    torch's global generator, as those of nn.Dropout do. (Huang et al., Deep Networks with
    Stochastic Depth, 2016.)
    """

    def __init__(self, probability: float):
        super().__init__()
        if not 0 <= probability < 1:
            raise ValueError(f"drop_path must be in [0, 1), found {probability}")
        self.probability = probability

    def forward(
        self, feat: Float[Tensor, "n c"], offsets: Int[Tensor, "b+1"]
    ) -> Float[Tensor, "n c"]:
        """Zero the rows of the clouds drawn."""
        if not self.training or self.probability == 0:
            return feat
        share = 1 - self.probability
        keep = torch.rand(len(offsets) - 1, device=feat.device) < share
        scale = keep.to(feat.dtype) / share
        return feat * scale[batch_from_offsets(offsets, len(feat)), None]

    def extra_repr(self) -> str:
        """Show the probability."""
        return f"{self.probability}"
