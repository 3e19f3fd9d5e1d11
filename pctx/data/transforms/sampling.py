"""Augmentations that leave points out, or change their order. All fields are cut alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pctx.data.transforms.arguments import check_above_zero, check_counts, check_share
from pctx.data.transforms.geometric import check_box
from pctx.geometry.points import PointCloud


@dataclass(frozen=True, kw_only=True)
class Dropout:
    """Leave out a share `ratio` of the points, any of them, with probability `probability`."""

    ratio: float = 0.2
    probability: float = 0.2

    def __post_init__(self) -> None:
        check_share(self, ratio=self.ratio, probability=self.probability)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Keep the rest, in their order."""
        if rng.random() >= self.probability:
            return cloud
        n = len(cloud)
        kept = np.zeros(n, dtype=bool)
        kept[rng.permutation(n)[: int(n * (1 - self.ratio))]] = True
        return keep(cloud, kept)


@dataclass(frozen=True, kw_only=True)
class CropNearest:
    """Keep the points nearest to one of them: `max_points`, and at most a share `ratio`.

    Sphere crops of published recipes come after their voxel grid, and so does `data.max_points`.
    This crop counts raw points.
    """

    max_points: int | None = None
    ratio: float = 1.0

    def __post_init__(self) -> None:
        check_share(self, ratio=self.ratio)
        if self.max_points is not None:
            check_counts(self, 1, max_points=self.max_points)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Keep the nearest, in their order."""
        n = len(cloud)
        most = int(n * self.ratio)
        if self.max_points is not None:
            most = min(most, self.max_points)
        distance = squared_distance(cloud, rng)
        if most >= n or distance is None:
            return cloud
        kept = np.zeros(n, dtype=bool)
        kept[np.argpartition(distance, most)[:most]] = True
        return keep(cloud, kept)


@dataclass(frozen=True, kw_only=True)
class CropSphere:
    """Keep the points within `radius` metres of one of them."""

    radius: float = 20.0

    def __post_init__(self) -> None:
        check_above_zero(self, radius=self.radius)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Keep the points inside."""
        distance = squared_distance(cloud, rng)
        return cloud if distance is None else keep(cloud, distance <= self.radius**2)


@dataclass(frozen=True, kw_only=True)
class CropBox:
    """Leave out the points outside a box from `low` to `high`, metres from the cloud's origin."""

    low: Sequence[float] = (-75.2, -75.2, -4.0)
    high: Sequence[float] = (75.2, 75.2, 2.0)

    def __post_init__(self) -> None:
        check_box(self, self.low, self.high)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Keep the points inside; the generator is not asked."""
        kept = np.ones(len(cloud), dtype=bool)
        for axis, low, high in zip(cloud.coord.T, self.low, self.high, strict=True):
            kept &= (axis >= np.float32(low)) & (axis <= np.float32(high))
        return keep(cloud, kept)


@dataclass(frozen=True, kw_only=True)
class Resample:
    """Give exactly `num_points`: any of the points, or where there are fewer, some repeatedly.

    An empty cloud stays empty.
    """

    num_points: int = 16_384

    def __post_init__(self) -> None:
        check_counts(self, 1, num_points=self.num_points)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Keep points in their order; the repeated ones follow."""
        n = len(cloud)
        if n == 0:
            return cloud
        if n < self.num_points:
            again = rng.integers(n, size=self.num_points - n)
            return cloud.select(np.concatenate([np.arange(n), again]))
        kept = np.zeros(n, dtype=bool)
        kept[rng.permutation(n)[: self.num_points]] = True
        return keep(cloud, kept)


@dataclass(frozen=True, kw_only=True)
class Shuffle:
    """Put the points into a random order."""

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Change the order of every field alike."""
        return cloud.select(rng.permutation(len(cloud)))


def keep(cloud: PointCloud, kept: np.ndarray) -> PointCloud:
    """Cut a cloud by a mask (n,); where all are kept it is the very same."""
    return cloud if kept.all() else cloud.select(np.flatnonzero(kept))


def squared_distance(cloud: PointCloud, rng: np.random.Generator) -> np.ndarray | None:
    """Give (n,) float32 square metres from a random finite point; None where there is none.

    Points that are not finite are infinitely far.
    """
    coord = cloud.coord
    whole = bool(np.isfinite(coord).all())
    finite = None if whole else np.flatnonzero(cloud.finite)
    count = len(coord) if finite is None else len(finite)
    if count == 0:
        return None
    place = int(rng.integers(count))
    center = coord[place if finite is None else finite[place]]
    with np.errstate(invalid="ignore", over="ignore"):
        apart = coord - center
        distance = np.einsum("ni,ni->n", apart, apart)
    return distance if whole else np.where(np.isnan(distance), np.float32(np.inf), distance)
