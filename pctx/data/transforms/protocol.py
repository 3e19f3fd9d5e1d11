"""Transform: what every augmentation is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from pctx.geometry.points import PointCloud


class Transform(Protocol):
    """A pure change of a cloud; all its randomness comes from the generator."""

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Give the changed cloud; the one handed in stays as it was."""


def apply(
    transforms: Mapping[str, Transform | None], cloud: PointCloud, rng: np.random.Generator
) -> PointCloud:
    """Apply named steps in their order; a step that is None is left out."""
    for transform in transforms.values():
        if transform is not None:
            cloud = transform(cloud, rng)
    return cloud
