"""Orbit: a camera that turns about a place and keeps upright, moved by hand.

It imports nothing of pctx, so that the window starts fast. n points.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

_TURN = 0.006  # radians a pixel


@dataclass(frozen=True, kw_only=True, eq=False)
class Orbit:
    """Where one looks from.

    Attributes:
        target: (3,) float64, metres; what is in the middle.
        azimuth: of the look, from +x to +y, radians.
        elevation: of the eye above the horizon, radians.
        reach: metres from the eye to the target.
        tangent: half the picture's height over the distance.
    """

    target: np.ndarray
    azimuth: float
    elevation: float
    reach: float
    tangent: float

    @property
    def axes(self) -> np.ndarray:
        """(3, 3): right, up and forward."""
        a, e = self.azimuth, self.elevation
        forward = np.array([np.cos(a) * np.cos(e), np.sin(a) * np.cos(e), -np.sin(e)])
        right = np.array([np.sin(a), -np.cos(a), 0.0])
        return np.stack([right, np.cross(right, forward), forward])

    @property
    def eye(self) -> np.ndarray:
        """(3,): where the camera is."""
        eye: np.ndarray = self.target - self.reach * self.axes[2]
        return eye

    def turn(self, dx: float, dy: float) -> Orbit:
        """Turn by a drag of so many pixels, never over the top."""
        elevation = float(np.clip(self.elevation + dy * _TURN, -np.pi / 2, np.pi / 2))
        return replace(self, azimuth=self.azimuth - dx * _TURN, elevation=elevation)

    def shift(self, dx: float, dy: float, height: float) -> Orbit:
        """Move the target with a drag of so many pixels in a picture of that height."""
        right, up, _ = self.axes
        metres = 2 * self.tangent * self.reach / height
        return replace(self, target=self.target + metres * (dy * up - dx * right))

    def zoom(self, factor: float) -> Orbit:
        """Go so many times as far away."""
        return replace(self, reach=float(np.clip(self.reach * factor, 1e-3, 1e7)))

    def look_at(self, place: np.ndarray, reach: float) -> Orbit:
        """Look at a place from the same side."""
        return replace(self, target=np.asarray(place, np.float64), reach=reach)

    def project(self, coord: np.ndarray, w: int, h: int) -> tuple[np.ndarray, np.ndarray]:
        """Give pixels (n, 2), from the upper left, and depths (n,) in metres."""
        axes = self.axes.astype(np.float32)
        right, up, depth = (coord @ axes.T - (self.axes @ self.eye).astype(np.float32)).T
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = h / 2 / (depth * np.float32(self.tangent))
            return np.stack([w / 2 + right * scale, h / 2 - up * scale], axis=1), depth

    def pick(self, coord: np.ndarray, x: float, y: float, w: int, h: int) -> int | None:
        """Give the number of the nearest point within 6 pixels of a place, None where none is."""
        pixel, depth = self.project(coord, w, h)
        with np.errstate(invalid="ignore"):
            apart = np.abs(pixel - np.array([x, y], np.float32)).max(axis=1)
            near = np.flatnonzero((apart <= _REACH) & (depth > 0.01 * self.reach))
        if len(near) == 0:
            return None
        # A farther point shines through the gaps of a nearer surface: depth decides, then pixels.
        return int(near[np.argmin(depth[near] + apart[near] / _REACH * 0.01 * self.reach)])


_REACH = 6.0
