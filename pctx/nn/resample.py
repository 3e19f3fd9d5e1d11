"""Features from one level to the next: max pooling down, copies or interpolation up.

n fine points, m coarse points, c channels, i and s input channels, o output channels.
"""

from __future__ import annotations

from typing import NamedTuple

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from pctx.geometry.hierarchy import Level
from pctx.geometry.neighbors import Neighborhood, interpolation_weights
from pctx.geometry.pooling import Pooling
from pctx.nn.linear import Linear
from pctx.nn.mlp import BATCH_NORM_MOMENTUM, BatchNorm, LinearNorm
from pctx.nn.segment import segment_reduce


def pool_max(feat: Float[Tensor, "n c"], pooling: Pooling) -> Float[Tensor, "m c"]:
    """Take the largest of each cluster, channel by channel."""
    return segment_reduce(feat.index_select(0, pooling.order), pooling.starts, "max")


def unpool(feat: Float[Tensor, "m c"], pooling: Pooling) -> Float[Tensor, "n c"]:
    """Copy each coarse row to the fine rows of its cluster."""
    return feat.index_select(0, pooling.cluster)


def interpolate(feat: Float[Tensor, "m c"], nearest: Neighborhood) -> Float[Tensor, "n c"]:
    """Mix for each fine row the coarse rows nearest to it, by their inverse distances.

    A row without any gets zeros. (Qi et al., PointNet++, 2017, equation 2, with p = 1.)

    Args:
        feat: of the coarse rows.
        nearest: coarse rows for each fine one, with distances; see `interpolation_weights`.
    """
    n, k = nearest.index.shape
    if feat.shape[0] == 0:  # no row 0 for masked places to name
        return feat.new_zeros(n, feat.shape[1])
    weights = interpolation_weights(nearest).to(feat.dtype)
    rows = feat.index_select(0, nearest.index.flatten()).view(n, k, feat.shape[1])
    return (rows * weights[..., None]).sum(1)


class PoolDown(nn.Module):
    """Linear, maximum of each cluster, batch norm, exact GELU."""

    def __init__(
        self, in_channels: int, out_channels: int, norm_momentum: float = BATCH_NORM_MOMENTUM
    ):
        super().__init__()
        self.linear = Linear(in_channels, out_channels)
        self.norm = BatchNorm(out_channels, momentum=norm_momentum)

    def forward(self, feat: Float[Tensor, "n i"], level: Level) -> Float[Tensor, "m o"]:
        """Bring the rows of a level to the next."""
        assert level.pooling is not None
        return F.gelu(self.norm(pool_max(self.linear(feat), level.pooling)))


class Joined(NamedTuple):
    """What meets at a decoder level.

    Attributes:
        feat: the sum of both branches.
        skip: the encoder's branch alone.
    """

    feat: Tensor
    skip: Tensor


class UnpoolJoin(nn.Module):
    """Copy coarse rows up and add the encoder's, each through linear, batch norm and GELU."""

    def __init__(
        self,
        in_channels: int,
        skip_channels: int,
        out_channels: int,
        norm_momentum: float = BATCH_NORM_MOMENTUM,
    ):
        super().__init__()
        self.up = LinearNorm(in_channels, out_channels, norm_momentum)
        self.skip = LinearNorm(skip_channels, out_channels, norm_momentum)

    def forward(
        self, feat: Float[Tensor, "m i"], skip: Float[Tensor, "n s"], level: Level
    ) -> Float[Tensor, "n o"]:
        """Bring coarse rows to the points of a level."""
        return self.both(feat, skip, level).feat

    def both(self, feat: Float[Tensor, "m i"], skip: Float[Tensor, "n s"], level: Level) -> Joined:
        """Return what `forward` does, (n, o), and the encoder's share of it, (n, o)."""
        assert level.pooling is not None
        beside = self.skip(skip)
        return Joined(beside + unpool(self.up(feat), level.pooling), beside)
