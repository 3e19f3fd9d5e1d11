"""Augmentations that move a cloud as a whole: turns, mirrors, scales, shifts.

Where nothing else is said, they act about the cloud's origin, the sensor of a scan. The origin in
the file's frame stays as it is, and so do points that are not finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pctx.data.transforms.arguments import (
    are_numbers,
    check_choice,
    check_interval,
    check_least,
    check_share,
    is_list,
)
from pctx.geometry.compiled_grid import compiled_suits, multiply
from pctx.geometry.points import PointCloud, all_finite

Axis = Literal["x", "y", "z"]


@dataclass(frozen=True, kw_only=True)
class Rotate:
    """Turn about an axis by a uniform angle in ± `angle` radians.

    Attributes:
        axis: "x", "y" or "z", the vertical.
        probability: of turning at all.
        center: what stays in place: the "origin", or the middle of the points' "box".
    """

    angle: float = np.pi
    axis: Axis = "z"
    probability: float = 1.0
    center: Literal["origin", "box"] = "origin"

    def __post_init__(self) -> None:
        check_least(self, angle=self.angle)
        check_choice(self, ("x", "y", "z"), axis=self.axis)
        check_choice(self, ("origin", "box"), center=self.center)
        check_share(self, probability=self.probability)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Turn coordinates and normals."""
        if rng.random() >= self.probability:
            return cloud
        turn = rotation(rng.uniform(-self.angle, self.angle), "xyz".index(self.axis))
        return _linear(cloud, turn, _middle(cloud, self.center))


@dataclass(frozen=True, kw_only=True)
class RotateBy:
    """Turn about an axis by one of some `angles` in radians, each as likely.

    Attributes:
        axis: "x", "y" or "z", the vertical.
        probability: of turning at all.
        center: what stays in place: the "origin", or the middle of the points' "box".
    """

    angles: Sequence[float] = (np.pi / 2, np.pi, 3 * np.pi / 2)
    axis: Axis = "z"
    probability: float = 0.75
    center: Literal["origin", "box"] = "origin"

    def __post_init__(self) -> None:
        if not is_list(self.angles) or not self.angles or not are_numbers(self.angles):
            raise ValueError(f"RotateBy: angles must be some radians, found {self.angles!r}")
        check_choice(self, ("x", "y", "z"), axis=self.axis)
        check_choice(self, ("origin", "box"), center=self.center)
        check_share(self, probability=self.probability)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Turn coordinates and normals."""
        if rng.random() >= self.probability:
            return cloud
        angle = self.angles[int(rng.integers(len(self.angles)))]
        turn = rotation(angle, "xyz".index(self.axis))
        return _linear(cloud, turn, _middle(cloud, self.center))


@dataclass(frozen=True, kw_only=True)
class Tilt:
    """Turn about x and y by uniform angles in ± `angle` radians."""

    angle: float = 0.03

    def __post_init__(self) -> None:
        check_least(self, angle=self.angle)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Turn coordinates and normals."""
        about_x, about_y = rng.uniform(-self.angle, self.angle, size=2)
        return _linear(cloud, rotation(about_x, axis=0) @ rotation(about_y, axis=1))


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Multiply all coordinates by one uniform factor in [`low`, `high`]."""

    low: float = 0.9
    high: float = 1.1

    def __post_init__(self) -> None:
        check_interval(self, self.low, self.high, least=0)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Scale coordinates."""
        return moved(cloud, cloud.coord * np.float32(rng.uniform(self.low, self.high)))


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Multiply x, y and z each by its own uniform factor in [`low`, `high`]."""

    low: float = 0.9
    high: float = 1.1

    def __post_init__(self) -> None:
        check_interval(self, self.low, self.high, least=0)
        if not self.low > 0:
            raise ValueError(f"Stretch: low must be above 0, found {self.low!r}")

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Scale coordinates; turn normals so that they stay upright on their surfaces."""
        factor = rng.uniform(self.low, self.high, size=3).astype(np.float32)
        result = moved(cloud, cloud.coord * factor)
        if cloud.normal is None:
            return result
        upright = cloud.normal / factor
        length = np.sqrt(np.einsum("ni,ni->n", upright, upright))[:, None]
        return replace(result, normal=upright / np.where(length > 0, length, 1))


@dataclass(frozen=True, kw_only=True)
class Flip:
    """Mirror along each of `axes`, each with probability `probability`."""

    probability: float = 0.5
    axes: Sequence[Axis] = ("x", "y")

    def __post_init__(self) -> None:
        check_share(self, probability=self.probability)
        if not is_list(self.axes) or any(axis not in ("x", "y", "z") for axis in self.axes):
            raise ValueError(f"Flip: axes must be some of x, y, z, found {self.axes!r}")

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Mirror coordinates and normals."""
        coord = cloud.coord.copy()
        normal = None if cloud.normal is None else cloud.normal.copy()
        for axis in self.axes:
            if rng.random() < self.probability:
                # Column by column: over the rows of a narrow array numpy is many times slower.
                for vectors in (coord,) if normal is None else (coord, normal):
                    vectors[:, "xyz".index(axis)] *= -1
        return replace(moved(cloud, coord), normal=normal)


@dataclass(frozen=True, kw_only=True)
class Translate:
    """Move the whole cloud by uniform metres in ± `x`, ± `y` and ± `z`."""

    x: float = 0.2
    y: float = 0.2
    z: float = 0.0

    def __post_init__(self) -> None:
        check_least(self, x=self.x, y=self.y, z=self.z)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Move coordinates."""
        limit = np.array([self.x, self.y, self.z])
        return moved(cloud, cloud.coord + rng.uniform(-limit, limit).astype(np.float32))


@dataclass(frozen=True, kw_only=True)
class Center:
    """Put the middle of the points' extent in x and y at 0, and with "xyz" the lowest z at 0."""

    axes: Literal["xyz", "xy"] = "xyz"

    def __post_init__(self) -> None:
        check_choice(self, ("xyz", "xy"), axes=self.axes)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Move coordinates; the generator is not asked."""
        low, high = extent(cloud)
        shift = (low + high) / 2
        shift[2] = low[2] if self.axes == "xyz" else 0
        return moved(cloud, cloud.coord - shift.astype(np.float32))


@dataclass(frozen=True, kw_only=True)
class ClipBox:
    """Put points beyond a box onto its border: coordinates are clipped to [`low`, `high`], metres.

    This is what published LiDAR recipes do; `CropBox` leaves such points out.
    """

    low: Sequence[float] = (-75.2, -75.2, -4.0)
    high: Sequence[float] = (75.2, 75.2, 2.0)

    def __post_init__(self) -> None:
        check_box(self, self.low, self.high)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Clip coordinates; the generator is not asked."""
        low, high = (np.array(corner, np.float32) for corner in (self.low, self.high))
        return moved(cloud, np.minimum(np.maximum(cloud.coord, low), high))


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


def moved(cloud: PointCloud, coord: np.ndarray) -> PointCloud:
    """Give finite points new coordinates (n, 3) float32; the others keep what they have."""
    if not all_finite(cloud.coord):
        coord = np.where(cloud.finite[:, None], coord, cloud.coord)
    return replace(cloud, coord=coord)


def extent(cloud: PointCloud) -> tuple[np.ndarray, np.ndarray]:
    """Give the lowest and highest coordinates (3,) float64 of the finite points; 0 without any."""
    coord = cloud.coord
    if not all_finite(coord):
        coord = coord[cloud.finite]
    if not len(coord):
        return np.zeros(3), np.zeros(3)
    # Column by column: over the rows of a narrow array numpy is twenty times slower.
    low = np.array([axis.min() for axis in coord.T], dtype=np.float64)
    return low, np.array([axis.max() for axis in coord.T], dtype=np.float64)


def check_box(owner: object, low: Sequence[float], high: Sequence[float]) -> None:
    """Refuse corners that are not three ascending numbers."""
    corners = is_list(low, 3) and is_list(high, 3) and are_numbers([*low, *high])
    if not corners or any(a > b for a, b in zip(low, high, strict=True)):
        raise ValueError(
            f"{type(owner).__name__}: low and high must be three ascending metres each, "
            f"found {low!r} and {high!r}"
        )


def _middle(cloud: PointCloud, center: str) -> np.ndarray | None:
    if center == "origin":
        return None
    low, high = extent(cloud)
    return (low + high) / 2


def _linear(cloud: PointCloud, matrix: np.ndarray, center: np.ndarray | None = None) -> PointCloud:
    turn = matrix.T.astype(np.float32)
    normal = None if cloud.normal is None else cloud.normal @ turn
    if compiled_suits(cloud.coord, np.float32):
        coord = multiply(cloud.coord, turn)
    else:
        with np.errstate(invalid="ignore"):  # infinite points, which stay
            coord = cloud.coord @ turn
    if center is not None:
        coord = coord + (center - matrix @ center).astype(np.float32)
    return replace(moved(cloud, coord), normal=normal)
