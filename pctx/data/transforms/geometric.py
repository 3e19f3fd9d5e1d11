"""Augmentations that move points. Each turns about the cloud's origin, the sensor of a scan."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pctx.geometry.points import PointCloud


@dataclass(frozen=True, kw_only=True)
class Rotate:
    """Turn about the vertical axis by a uniform angle in ± `angle` radians."""

    angle: float = np.pi

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Turn coordinates and normals."""
        return _linear(cloud, rotation(rng.uniform(-self.angle, self.angle), axis=2))


@dataclass(frozen=True, kw_only=True)
class Tilt:
    """Turn about x and y by uniform angles in ± `angle` radians."""

    angle: float = 0.03

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Turn coordinates and normals."""
        about_x, about_y = rng.uniform(-self.angle, self.angle, size=2)
        return _linear(cloud, rotation(about_x, axis=0) @ rotation(about_y, axis=1))


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Multiply all coordinates by one uniform factor in [`low`, `high`]."""

    low: float = 0.9
    high: float = 1.1

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Scale coordinates."""
        factor = np.float32(rng.uniform(self.low, self.high))
        return replace(cloud, coord=cloud.coord * factor)


@dataclass(frozen=True, kw_only=True)
class Flip:
    """Mirror x and mirror y, each with probability `probability`."""

    probability: float = 0.5

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Mirror coordinates and normals."""
        signs = np.where(rng.random(2) < self.probability, -1.0, 1.0)
        return _linear(cloud, np.diag([signs[0], signs[1], 1.0]))


@dataclass(frozen=True, kw_only=True)
class Jitter:
    """Add normal noise of `sigma` metres to each coordinate, cut at ± `clip` metres."""

    sigma: float = 0.005
    clip: float = 0.02

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Move every point by its own noise."""
        noise = rng.standard_normal(cloud.coord.shape, dtype=np.float32) * np.float32(self.sigma)
        return replace(cloud, coord=cloud.coord + noise.clip(-self.clip, self.clip))


def rotation(angle: float, axis: int) -> np.ndarray:
    """Give the (3, 3) matrix that turns column vectors by `angle` radians about an axis 0..2."""
    first, second = [i for i in range(3) if i != axis]
    if axis == 1:
        first, second = second, first
    matrix = np.eye(3)
    matrix[first, first] = matrix[second, second] = np.cos(angle)
    matrix[second, first] = np.sin(angle)
    matrix[first, second] = -matrix[second, first]
    return matrix


def _linear(cloud: PointCloud, matrix: np.ndarray) -> PointCloud:
    turn = matrix.T.astype(np.float32)
    normal = None if cloud.normal is None else cloud.normal @ turn
    return replace(cloud, coord=cloud.coord @ turn, normal=normal)
