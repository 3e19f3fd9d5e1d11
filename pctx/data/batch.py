"""TrainingBatch: the points and the plan of a training step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch

from pctx.data.parcel import pinned
from pctx.geometry.hierarchy import Hierarchy
from pctx.geometry.points import PointBatch

Planner: TypeAlias = Callable[[PointBatch, torch.Generator | None], Hierarchy]
"""Plans points: what a backbone's `plan` does, with weights or without."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingBatch:
    """What a training step reads.

    Attributes:
        points: packed clouds, with labels.
        hierarchy: their plan; None where nobody planned.
    """

    points: PointBatch
    hierarchy: Hierarchy | None = None

    @property
    def num_clouds(self) -> int:
        """The number of clouds."""
        return self.points.num_clouds

    def to(self, device: torch.device | str) -> TrainingBatch:
        """Copy every tensor to a device."""
        plan = self.hierarchy
        return TrainingBatch(
            points=self.points.to(device), hierarchy=None if plan is None else plan.to(device)
        )

    def pin_memory(self) -> TrainingBatch:
        """Copy every tensor to memory that a GPU reads by itself."""
        copied: TrainingBatch = pinned(self)
        return copied
