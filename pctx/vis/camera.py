"""Camera: where a picture is taken from, and how one is chosen from the points.

n points.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

View = Literal["auto", "top", "street", "oblique", "object", "driver"]
VIEWS: tuple[str, ...] = get_args(View)

SAMPLE = 30_000
"""Points looked at to choose a camera."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Camera:
    """A pinhole camera.

    Attributes:
        eye: (3,) float64, metres.
        axes: (3, 3) float64, rows right, up and forward, orthonormal.
        tangent: half the picture's height over the distance.
        reach: metres from the eye to what is looked at.
    """

    eye: np.ndarray
    axes: np.ndarray
    tangent: float
    reach: float

    @property
    def target(self) -> np.ndarray:
        """(3,) float64: the point in the middle of the picture, `reach` away."""
        return self.eye + self.reach * self.axes[2]

    @property
    def azimuth(self) -> float:
        """Of the look, from +x to +y, radians."""
        return float(np.arctan2(self.axes[2, 1], self.axes[2, 0]))

    @property
    def elevation(self) -> float:
        """Of the eye above the horizon, radians."""
        return float(np.arcsin(-self.axes[2, 2]))

    def turned(self, angle: float) -> Camera:
        """Go around what is looked at, on the same height, by radians."""
        cos, sin = np.cos(angle), np.sin(angle)
        spin = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])
        axes = self.axes @ spin.T
        return replace(self, eye=self.target - self.reach * axes[2], axes=axes)

    def project(self, coord: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Give right and up in half picture heights from the middle, and depth in metres; (n,)."""
        axes = self.axes.astype(np.float32)
        offset = (self.axes @ self.eye).astype(np.float32)
        # A column at a time: thirty times as fast as a product of matrices so thin.
        x, y, z = coord.T
        right, up, depth = (
            x * a[0] + y * a[1] + z * a[2] - o for a, o in zip(axes, offset, strict=True)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = 1 / (depth * np.float32(self.tangent))
            return right * scale, up * scale, depth


@dataclass(frozen=True, kw_only=True)
class _Pose:
    """How a view looks: angles in degrees, the percentile of points kept in the frame."""

    azimuth: float  # from the cloud's longer axis
    elevation: float  # above the horizon
    opening: float  # of the picture's height
    outside: float  # per cent of the points that may lie beyond each edge


_POSES = {
    "top": _Pose(azimuth=0, elevation=90, opening=3, outside=1.5),
    "street": _Pose(azimuth=25, elevation=36, opening=36, outside=3),
    "oblique": _Pose(azimuth=32, elevation=42, opening=30, outside=0.1),
    "object": _Pose(azimuth=35, elevation=22, opening=30, outside=0.0),
}
_MARGIN = 0.93  # of the half picture that the points fill
_SCAN_PEAK = 0.4  # median over 95th percentile of the distance: 0.5..0.7 on land, < 0.3 in scans
_EYE_HEIGHT = 2.0  # metres above the ground: that of a driver in a van, and of most sensors
_DRIVER = _Pose(azimuth=0, elevation=7, opening=50, outside=0)
_AHEAD = 15.0  # metres from the driver to what is looked at
_FLAT = 0.45  # height over width below which a cloud is land and not an object


def frame(
    coord: np.ndarray,
    *,
    view: str = "auto",
    aspect: float = 4 / 3,
    sensor: np.ndarray | None = None,
) -> Camera:
    """Choose a camera that shows the bulk of the points (n, 3) float32, up being +z.

    Args:
        coord: finite positions, metres, around the origin.
        view: "top" looks down, north (+y) up, all but without perspective; "street" suits one
            LiDAR scan, "oblique" a tile of land, "object" a thing; "auto" goes by the shape.
            "driver" stands 2 m above the ground in the middle and looks along the longer axis.
        aspect: width over height of the picture.
        sensor: (3,) where the scanner was, and the driver is; None for the middle.

    Raises:
        ValueError: `view` is unknown.
    """
    if view not in VIEWS:
        raise ValueError(f"view must be one of {', '.join(VIEWS)}; found {view!r}")
    sample = coord[distinct(coord)].astype(np.float64)
    bulk = _bulk(sample if len(sample) else np.zeros((1, 3)))
    if view == "driver":
        return _drive(bulk, sensor)
    pose = _POSES[_kind(bulk) if view == "auto" else view]
    if pose is _POSES["street"]:
        distance = np.hypot(*(bulk[:, :2] - np.median(bulk[:, :2], axis=0)).T)
        bulk = bulk[distance <= np.percentile(distance, 95)]
    azimuth = np.pi / 2 if view == "top" else _long_axis(bulk) + np.radians(pose.azimuth)
    axes = _axes(float(azimuth), np.radians(pose.elevation))
    return _fit(bulk, axes, float(np.tan(np.radians(pose.opening / 2))), pose.outside, aspect)


def _drive(bulk: np.ndarray, sensor: np.ndarray | None) -> Camera:
    low, high = np.percentile(bulk, (2.5, 97.5), axis=0)
    place = np.median(bulk, axis=0)
    if sensor is not None and ((sensor >= low - 5) & (sensor <= high + 5))[:2].all():
        place = np.asarray(sensor, np.float64)
    distance = np.hypot(*(bulk[:, :2] - place[:2]).T)
    around = bulk[distance <= max(10.0, float(np.percentile(distance, 5)))]
    ground = np.percentile(around[:, 2], 10)
    axes = _axes(_long_axis(bulk), np.radians(_DRIVER.elevation))
    eye = np.array([place[0], place[1], ground + _EYE_HEIGHT])
    tangent = float(np.tan(np.radians(_DRIVER.opening / 2)))
    return Camera(eye=eye, axes=axes, tangent=tangent, reach=_AHEAD)


def distinct(coord: np.ndarray) -> np.ndarray:
    """Give the indices of up to `SAMPLE` points, no two at one place: scanners pile up misses."""
    every = np.arange(0, len(coord), max(1, len(coord) // SAMPLE))
    return every[np.sort(np.unique(coord[every], axis=0, return_index=True)[1])]


def _bulk(coord: np.ndarray) -> np.ndarray:
    """Drop what lies far outside the middle 95 per cent."""
    low, middle, high = np.percentile(coord, (2.5, 50, 97.5), axis=0)
    span = np.maximum(high - low, (high - low).max() * 0.05)
    near = (np.abs(coord - middle) <= 1.5 * span + 1e-9).all(axis=1)
    return coord[near] if near.any() else coord


def _kind(bulk: np.ndarray) -> str:
    low, high = np.percentile(bulk, (2.5, 97.5), axis=0)
    width, height = float((high - low)[:2].max()), float(high[2] - low[2])
    distance = np.hypot(*(bulk[:, :2] - np.median(bulk[:, :2], axis=0)).T)
    half, most = np.percentile(distance, (50, 95))
    if most > 0 and half / most < _SCAN_PEAK and height < _FLAT * width:
        return "street"
    return "oblique" if height < _FLAT * width else "object"


def _long_axis(bulk: np.ndarray) -> float:
    """Give the angle of the longer horizontal axis, pointing to +x or straight to +y."""
    flat = bulk[:, :2] - bulk[:, :2].mean(axis=0)
    (xx, xy), (_, yy) = flat.T @ flat
    return float(0.5 * np.arctan2(2 * xy, xx - yy))


def _axes(azimuth: float, elevation: float) -> np.ndarray:
    """Look along `azimuth` (from +x to +y) and down by `elevation`, in radians."""
    ahead = np.array([np.cos(azimuth), np.sin(azimuth), 0.0])
    forward = ahead * np.cos(elevation) - np.array([0, 0, np.sin(elevation)])
    right = np.array([np.sin(azimuth), -np.cos(azimuth), 0.0])
    return np.stack([right, np.cross(right, forward), forward])


def _fit(
    bulk: np.ndarray, axes: np.ndarray, tangent: float, outside: float, aspect: float
) -> Camera:
    """Move back and sideways until the middle percentiles just fill the frame."""
    radius = float(np.linalg.norm(bulk - bulk.mean(axis=0), axis=1).max()) or 1.0
    target, reach = np.median(bulk, axis=0), radius / tangent
    for _ in range(30):
        camera = Camera(eye=target - reach * axes[2], axes=axes, tangent=tangent, reach=reach)
        right, up, depth = camera.project(bulk.astype(np.float32))
        seen = depth > 0.05 * reach
        edges = np.percentile(np.stack([right, up])[:, seen], (outside, 100 - outside), axis=1)
        middle, half = edges.mean(axis=0), np.ptp(edges, axis=0) / 2
        grow = max(half[0] / aspect, half[1]) / _MARGIN
        target = target + reach * tangent * (middle[0] * axes[0] + middle[1] * axes[1])
        reach = float(np.clip(reach * grow, 1e-3 * radius, 1e3 * radius))
    return Camera(eye=target - reach * axes[2], axes=axes, tangent=tangent, reach=reach)
