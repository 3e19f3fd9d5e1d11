"""Views: the same cloud turned, mirrored, scaled or ordered otherwise, for votes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import torch

from pctx.data.transforms.geometric import rotation
from pctx.data.transforms.views import published_turns
from pctx.geometry.points import PointCloud

CHANGES = ("rotate", "flip", "scale", "shuffle")
"""What may differ from view to view."""
MOST_VIEWS = 1000
_SCALES = (1.0, 0.95, 1.05)
"""Factors of the coordinates, in turn: the range that training usually scales by, halved."""


@dataclass(frozen=True, kw_only=True)
class View:
    """One way to look at a cloud; the one without arguments changes nothing.

    Attributes:
        angle: radians about the vertical axis.
        flip: mirror x.
        scale: factor of all coordinates.
        seed: of what the model's plan draws at random in training, such as the curves' order; None
            draws nothing.
    """

    angle: float = 0.0
    flip: bool = False
    scale: float = 1.0
    seed: int | None = None

    def apply(self, cloud: PointCloud) -> PointCloud:
        """Change coordinates and normals; a view that moves nothing gives the very same cloud."""
        if not (self.angle or self.flip or self.scale != 1):
            return cloud
        turn = rotation(self.angle, axis=2) @ np.diag([-1.0 if self.flip else 1.0, 1.0, 1.0])
        turn = turn.T.astype(np.float32)
        normal = None if cloud.normal is None else cloud.normal @ turn
        return replace(cloud, coord=cloud.coord @ (turn * np.float32(self.scale)), normal=normal)

    def moved(self, place: np.ndarray) -> np.ndarray:
        """Give where a place (3,) float32 comes to lie."""
        return self.apply(PointCloud(coord=place[None])).coord[0]

    def generator(self) -> torch.Generator | None:
        """Give what the model's plan draws from."""
        return None if self.seed is None else torch.Generator().manual_seed(self.seed)


def make_views(count: int | str, changes: Collection[str] = CHANGES) -> tuple[View, ...]:
    """Give the cloud as it is, then count - 1 other views of it; or those of a published recipe.

    View i is turned by i / count of a full turn, mirrored where i is odd, scaled by 1, 0.95 and
    1.05 in turn, and shuffled by seed i: as far as `changes` names it. A recipe's name, as
    `published_views` has them, gives its views, whatever `changes` names.

    Raises:
        ValueError: count is out of range, or there is no such change.
    """
    if isinstance(count, str):
        return tuple(View(angle=turn, scale=scale) for turn, scale in published_turns(count))
    if not 1 <= count <= MOST_VIEWS:
        raise ValueError(f"views must be from 1 to {MOST_VIEWS}, found {count}")
    if wrong := [name for name in changes if name not in CHANGES]:
        raise ValueError(f"views change {', '.join(CHANGES)}, found {wrong[0]!r}")
    if count > 1 and not changes:
        raise ValueError(f"{count} views must differ in one of {', '.join(CHANGES)}")
    return tuple(
        View(
            angle=2 * np.pi * i / count if "rotate" in changes else 0.0,
            flip=bool(i % 2) and "flip" in changes,
            scale=_SCALES[i % len(_SCALES)] if "scale" in changes else 1.0,
            seed=i if i and "shuffle" in changes else None,
        )
        for i in range(count)
    )
