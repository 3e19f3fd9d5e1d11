"""Neighborhood: the points around each query, k a query.

q queries, k neighbours a query, n points, b clouds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Neighborhood:
    """A dense table of neighbours, nearest first, ties by lowest index.

    Attributes:
        index: the row of each neighbour. A masked place names some point of the same cloud.
        valid: whether a place holds a neighbour; None if all do. Real places come first.
        distance: metres from the query; infinite at a masked place. None if not asked for.
    """

    index: Int[Tensor, "q k"]
    valid: Bool[Tensor, "q k"] | None
    distance: Float[Tensor, "q k"] | None = None

    def to(self, device: torch.device | str) -> Neighborhood:
        """Copy every tensor to a device."""
        return Neighborhood(
            index=self.index.to(device, non_blocking=True),
            valid=None if self.valid is None else self.valid.to(device, non_blocking=True),
            distance=None if self.distance is None else self.distance.to(device, non_blocking=True),
        )
