"""Transform and Mix: what every augmentation is, and how named steps of them are applied."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

import numpy as np

from pctx.geometry.points import PointCloud

Draw: TypeAlias = Callable[[np.random.Generator], PointCloud]
"""Gives another cloud of the split, chosen by the generator."""


class Transform(Protocol):
    """A pure change of a cloud; all its randomness comes from the generator."""

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Give the changed cloud; the one handed in stays as it was."""


class Mix(ABC):
    """A pure mixture of a cloud with another; final classes are frozen dataclasses.

    Attributes:
        probability: of mixing at all; `apply` tosses the coin, so that no cloud is read in vain.
    """

    probability: float

    @abstractmethod
    def __call__(
        self, cloud: PointCloud, other: PointCloud, rng: np.random.Generator
    ) -> PointCloud:
        """Give the mixture, in the frame of `cloud`; both clouds stay as they were."""


Step: TypeAlias = "Transform | Mix"


def apply(
    steps: Mapping[str, Step | None],
    cloud: PointCloud,
    rng: np.random.Generator,
    draw: Draw | None = None,
) -> PointCloud:
    """Apply named steps in their order; a step that is None is left out.

    What a mix adds has gone through the transforms named before it, with numbers of its own.

    Args:
        draw: gives the clouds that mixes add.

    Raises:
        ValueError: a step is a mix, and there is nothing to draw from.
    """
    before: list[Transform] = []
    for name, step in steps.items():
        if step is None:
            continue
        if not isinstance(step, Mix):
            cloud = step(cloud, rng)
            before.append(step)
            continue
        if draw is None:
            raise ValueError(f"the step {name} mixes two clouds, and there is no other to draw")
        if rng.random() < step.probability:
            other = draw(rng)
            for transform in before:
                other = transform(other, rng)
            cloud = step(cloud, other, rng)
    return cloud
