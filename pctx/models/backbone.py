"""Backbone: what every network offers, a plan of integers and a run of floats.

n points, c channels, r rows of the level that comes out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pctx.geometry.hierarchy import Hierarchy
from pctx.geometry.points import PointBatch
from pctx.models.unet import UNet
from pctx.nn.linear import Linear


class Backbone(nn.Module, ABC):
    """A network from point features to point features.

    Attributes:
        in_channels: channels it reads.
        out_channels: channels it gives.
        out_level: the level whose rows `forward` gives; 0 where every point gets one.
        joins: the levels where what the way down gave is added on the way back; None for all but
            the coarsest. It serves those who look inside.
    """

    in_channels: int
    out_channels: int
    out_level: int = 0
    joins: tuple[int, ...] | None = None

    if TYPE_CHECKING:

        def __call__(self, feat: Tensor, hierarchy: Hierarchy) -> Tensor:
            """Call `forward`, typed."""

    @abstractmethod
    def plan(self, points: PointBatch, generator: torch.Generator | None = None) -> Hierarchy:
        """Work out orders, windows and neighbours: a value that reads no feature.

        Args:
            points: the packed clouds.
            generator: for what training draws at random; None, as in evaluation, draws nothing.
        """

    @abstractmethod
    def forward(
        self, feat: Float[Tensor, "n in_channels"], hierarchy: Hierarchy
    ) -> Float[Tensor, "r out_channels"]:
        """Compute features along a plan of the same points."""

    def layers_in_order(self) -> list[nn.Module]:
        """List the parts in the order that features pass them, for learning rates that fall by it.

        Here the children as they were registered, lists and U-Nets part by part.
        """
        found: list[nn.Module] = []
        for part in self.children():
            if isinstance(part, UNet):
                found += part.layers_in_order()
            else:
                found += part if isinstance(part, nn.ModuleList) else [part]
        return found

    def make_head(self, num_classes: int) -> nn.Module:
        """Make what turns this backbone's rows into class scores: linear, but where published so.

        Args:
            num_classes: scores a row.
        """
        return Linear(self.out_channels, num_classes)
