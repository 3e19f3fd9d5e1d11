"""Layers of one point each: linear, MLP, norm over packed points, stochastic depth a cloud.

n points, b clouds, c channels, i input channels, o output channels, m parts of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from pctx.geometry.packed import batch_from_offsets
from pctx.nn.batch_norm import normalize
from pctx.nn.lean_mlp import lean_mlp, lean_suits
from pctx.nn.linear import Linear, is_plain, norm_parts

BATCH_NORM_EPS = 1e-3
BATCH_NORM_MOMENTUM = 0.01
"""Both as published with PTv3 (Wu et al., 2024), whose clouds are large and batches few."""

NORM_EPS = 1e-5
NORM_MOMENTUM = 0.1
"""Both as published with Point Transformer V1 and V2."""

Activation = Literal["gelu", "relu"]


def widen(values: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Return half precision as float32, in which it is to be summed; the rest as it is."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


class MLP(nn.Module):
    """Two linear layers with an exact GELU, or a ReLU, between them."""

    def __init__(
        self,
        channels: int,
        hidden_channels: int,
        out_channels: int | None = None,
        *,
        activation: Activation = "gelu",
    ):
        super().__init__()
        if activation not in ("gelu", "relu"):
            raise ValueError(f"activation must be gelu or relu, found {activation}")
        if hidden_channels < 1:
            raise ValueError(f"an MLP needs a hidden channel, found {hidden_channels}")
        self.activation = activation
        self.fc1 = Linear(channels, hidden_channels)
        self.fc2 = Linear(hidden_channels, channels if out_channels is None else out_channels)

    def forward(
        self, feat: Float[Tensor, "*n c"], norm: nn.Module | None = None
    ) -> Float[Tensor, "*n o"]:
        """Map each row.

        Args:
            feat: rows.
            norm: what rows go through first; the backward of many computes a layer norm anew.
        """
        fc1, fc2 = self.fc1, self.fc2
        # Layers put in their place, by adapters for one, have a forward of their own.
        plain = is_plain(fc1, Linear) and is_plain(fc2, Linear)
        lean = plain and feat.shape[-1] == fc1.in_features and lean_suits(feat, fc1.out_features)
        folded = norm_parts(norm, fc1.in_features) if lean else None
        feat = feat if norm is None or folded is not None else norm(feat)
        if lean:
            gelu = self.activation == "gelu"
            return lean_mlp(feat, fc1.weight, fc1.bias, fc2.weight, fc2.bias, gelu, folded)
        hidden = self.fc1(feat)
        return self.fc2(F.gelu(hidden) if self.activation == "gelu" else hidden.relu())


class GroupedLinear(nn.Module):
    """One number a group of consecutive channels: their sum, weighted.

    (The grouped linear layer of Wu et al., Point Transformer V2, 2022, section 3.2.)
    """

    def __init__(self, in_channels: int, groups: int):
        super().__init__()
        if groups < 1 or in_channels % groups:
            raise ValueError(f"channels {in_channels} must be a multiple of groups {groups}")
        self.groups = groups
        self.weight = nn.Parameter(torch.empty(1, in_channels))
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)

    def forward(self, feat: Float[Tensor, "*n i"]) -> Float[Tensor, "*n o"]:
        """Map each row."""
        return (feat * self.weight[0]).unflatten(-1, (self.groups, -1)).sum(-1)

    def extra_repr(self) -> str:
        """Show the widths."""
        return f"{self.weight.shape[1]}, groups={self.groups}"


class LayerScale(nn.Module):
    """A learned factor a channel, small at first, for a residual branch.

    (LayerScale of Touvron et al., Going Deeper with Image Transformers, 2021.)
    """

    def __init__(self, channels: int, initial: float):
        super().__init__()
        self.weight = nn.Parameter(torch.full((channels,), float(initial)))

    def forward(self, feat: Float[Tensor, "*n c"]) -> Float[Tensor, "*n c"]:
        """Scale each channel."""
        return feat * self.weight


class Moments(NamedTuple):
    """What a batch norm knows of a batch: its number of rows, their mean and variance."""

    rows: Int[Tensor, ""]
    mean: Float[Tensor, "c"]
    var: Float[Tensor, "c"]


def pool_moments(parts: Sequence[Moments]) -> Moments:
    """Join the moments of the parts of a batch into those of the whole, exactly."""
    counts, means, variances = (torch.stack(each) for each in zip(*parts, strict=True))
    count = counts.sum()
    share = counts[:, None].to(means.dtype) / count.clamp(min=1)  # (m, 1)
    mean = (share * means).sum(0)
    return Moments(count, mean, (share * (variances + (means - mean).square())).sum(0))


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

    def forward(
        self,
        input: Float[Tensor, "n c"],
        valid: Bool[Tensor, "n"] | None = None,
        moments: Moments | None = None,
    ) -> Float[Tensor, "n c"]:
        """Normalise each channel over the points of all clouds.

        Args:
            input: one row a point.
            valid: rows that count in training; None if all do. The others are mapped alike.
            moments: of a batch that `input` is a part of, to be normalised by in training; they
                leave the running statistics to `track`.
        """
        if not self.training or (len(input) < 2 and moments is None):
            mean, var = self.running_mean, self.running_var
            return F.batch_norm(input, mean, var, self.weight, self.bias, False, 0.0, self.eps)
        wide = widen(input)
        if moments is None and valid is None:
            y, mean, var = normalize(wide, widen(self.weight), widen(self.bias), self.eps)
            self.track(Moments(_count(wide), mean, var))
            return y.to(input.dtype)
        if moments is None:
            moments = self.moments(input, valid)
            self.track(moments)
        assert self.running_mean is not None and self.running_var is not None
        few = moments.rows < 2
        centred = wide - torch.where(few, self.running_mean, moments.mean)
        var = torch.where(few, self.running_var, moments.var)
        scale = torch.rsqrt(var + self.eps) * self.weight
        return torch.addcmul(self.bias, centred, scale).to(input.dtype)

    @staticmethod
    def moments(input: Float[Tensor, "n c"], valid: Bool[Tensor, "n"] | None = None) -> Moments:
        """Take the moments of rows, in two passes; those of no rows are 0."""
        wide = widen(input)
        if valid is None:
            mean = wide.mean(0)
            return Moments(_count(wide), mean, (wide - mean).square().mean(0))
        others, count = ~valid[:, None], valid.sum()
        n = count.clamp(min=1)
        # Sums, not products with a row of shares, which would lose digits over many rows.
        mean = wide.masked_fill(others, 0).sum(0) / n
        return Moments(count, mean, (wide - mean).masked_fill(others, 0).square().sum(0) / n)

    @torch.no_grad()
    def track(self, moments: Moments) -> None:
        """Let a batch into the running statistics, if it has a variance."""
        assert self.running_mean is not None and self.running_var is not None
        assert self.num_batches_tracked is not None and self.momentum is not None
        dtype, known = self.running_mean.dtype, moments.rows > 1
        momentum = known.to(dtype) * self.momentum
        unbiased = moments.var.to(dtype) * moments.rows / (moments.rows - 1).clamp(min=1)
        self.running_mean.lerp_(moments.mean.to(dtype), momentum)
        self.running_var.lerp_(unbiased, momentum)
        self.num_batches_tracked.add_(known)


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


class LinearNormReLU(nn.Module):
    """Linear, batch norm, ReLU, as in Point Transformer V1 and V2."""

    def __init__(self, in_channels: int, out_channels: int, *, bias: bool = True):
        super().__init__()
        self.linear = Linear(in_channels, out_channels, bias=bias)
        self.norm = BatchNorm(out_channels, NORM_EPS, NORM_MOMENTUM)

    def forward(self, feat: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:
        """Map each row."""
        return self.norm(self.linear(feat)).relu()


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


def _count(rows: Tensor) -> Tensor:
    return torch.full((), len(rows), device=rows.device)
