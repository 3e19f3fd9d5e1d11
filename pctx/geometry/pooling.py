"""Pooling: which fine rows merge into which coarse row.

n fine rows, m coarse rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Pooling:
    """A partition of fine rows into clusters, each one coarse row.

    Attributes:
        cluster: the coarse row of each fine row.
        order: the fine rows, sorted by cluster; a gather by it makes clusters segments.
        starts: cluster i owns order[starts[i] : starts[i + 1]], never empty.
    """

    cluster: Int[Tensor, "n"]
    order: Int[Tensor, "n"]
    starts: Int[Tensor, "m+1"]

    @property
    def num_coarse(self) -> int:
        """The number of coarse rows."""
        return len(self.starts) - 1

    def to(self, device: torch.device | str) -> Pooling:
        """Copy every tensor to a device."""
        return Pooling(
            cluster=self.cluster.to(device, non_blocking=True),
            order=self.order.to(device, non_blocking=True),
            starts=self.starts.to(device, non_blocking=True),
        )
