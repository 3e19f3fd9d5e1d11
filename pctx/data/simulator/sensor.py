"""Sensor: a spinning LiDAR, its beams, and what it makes of the light that comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Sensor:
    """A spinning LiDAR on the roof of a car.

    Attributes:
        elevations: one a beam, radians above the horizon, from the top down.
        columns: firings a turn.
        height: metres above the road.
        max_range: metres.
        range_noise: metres, standard deviation.
        beam_bias: metres, standard deviation of the error that all returns of a beam share.
        reach: metres at which a plain target of 10 % reflectance is just lost.
        dropout: share of returns lost for no reason.
        gain: intensity of a white target nearby, before it is cut at 1.
        dark: reflectance that reads as intensity 0.
        fade: loss of intensity a metre beyond 20 m, as a share of the gain.
        roof: metres of the carrying car: front, rear, half width, and drop below the sensor.
    """

    elevations: tuple[float, ...]
    columns: int
    height: float
    max_range: float
    range_noise: float = 0.018
    beam_bias: float = 0.02
    reach: float = 180.0
    dropout: float = 0.015
    gain: float = 1.15
    dark: float = 0.0
    fade: float = 0.008
    roof: tuple[float, float, float, float] = (1.3, 1.35, 0.5, 0.45)

    def __post_init__(self) -> None:
        if not self.elevations or any(np.diff(self.elevations) >= 0):
            raise ValueError("elevations must be one or more angles from the top down")
        if self.columns < 4:
            raise ValueError(f"columns must be at least 4, found {self.columns}")
        for name in ("height", "max_range", "reach"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0 metres, found {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Rays:
    """The rays of one turn, beam by beam: ray beam * columns + column.

    Attributes:
        direction: (beams * columns, 3) float32 unit vectors, x forward, y left, z up.
        elevations: (beams,) radians, from the top down.
        columns: firings a turn; column j points to the azimuth 2 pi (j + shift) / columns.
        shift: (beams,) 0..1, how far a beam's firings lie beyond the column.
    """

    direction: np.ndarray
    elevations: np.ndarray
    columns: int
    shift: np.ndarray


def fire(sensor: Sensor, rng: np.random.Generator) -> Rays:
    """Aim every beam at every column; each beam has its own small offset in azimuth."""
    elevations = np.asarray(sensor.elevations)
    shift = rng.uniform(0, 1, len(elevations))
    column = np.arange(sensor.columns) + shift[:, None]  # (beams, columns)
    azimuth = 2 * np.pi * column / sensor.columns
    up = np.broadcast_to(elevations[:, None], azimuth.shape)
    direction = np.stack(
        [np.cos(up) * np.cos(azimuth), np.cos(up) * np.sin(azimuth), np.sin(up)], axis=-1
    )
    return Rays(
        direction=direction.reshape(-1, 3).astype(np.float32),
        elevations=elevations,
        columns=sensor.columns,
        shift=shift,
    )


def intensity(
    sensor: Sensor,
    depth: np.ndarray,
    ring: np.ndarray,
    reflectance: np.ndarray,
    cosine: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Give the reading 0..1 of each return (n,), in steps of 1/255.

    Close up it follows the reflectance and hardly the angle, farther off it sinks to 0, and each
    beam has its own gain: so it is in KITTI's and nuScenes' scans.
    """
    beams = len(sensor.elevations)
    gain = np.clip(rng.normal(1, 0.17, beams), 0.5, 1.5) * rng.uniform(0.85, 1.15)
    gain *= np.where(rng.uniform(size=beams) < 0.06, 0.6, 1)
    light = (reflectance - sensor.dark) * (0.85 + 0.15 * cosine)
    light *= rng.normal(1, 0.15, len(depth))
    light -= sensor.fade * np.maximum(depth - 20, 0)
    reading = np.clip(sensor.gain * gain[ring] * light, 0, 1)
    return (np.round(reading * 255) / 255).astype(np.float32)


def heard(
    sensor: Sensor,
    depth: np.ndarray,
    reflectance: np.ndarray,
    cosine: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Say which returns (n,) are strong enough to be noticed.

    The light that comes back falls with the square of the range and with the incidence.
    """
    light = np.maximum(reflectance, 0.03) * np.maximum(cosine, 0.01) / 0.1
    reach = sensor.reach * np.sqrt(light) * rng.uniform(0.75, 1.1, len(depth))
    lost = rng.uniform(size=len(depth)) < sensor.dropout
    return (depth < np.minimum(reach, sensor.max_range)) & ~lost


def _beams(*blocks: tuple[float, float, int]) -> tuple[float, ...]:
    """Give elevations in radians from blocks of evenly spaced beams (first, last, how many)."""
    return tuple(float(np.radians(angle)) for block in blocks for angle in np.linspace(*block))


SENSORS: Mapping[str, Sensor] = MappingProxyType(
    {
        # Velodyne HDL-64E as on KITTI's car: medians of the beams of a SemanticKITTI scan.
        "hdl64": Sensor(
            elevations=_beams((2.3, -7.95, 32), (-8.5, -24.0, 32)),
            columns=2160,
            height=1.73,
            max_range=80.0,
        ),
        # Velodyne HDL-32E as on the nuScenes cars, 20 turns a second.
        "hdl32": Sensor(
            elevations=_beams((10.67, -30.67, 32)),
            columns=1084,
            height=1.84,
            max_range=100.0,
            range_noise=0.02,
            reach=85.0,
            dropout=0.004,
            gain=0.48,
            beam_bias=0.004,
            dark=0.1,
            fade=0.002,
            roof=(1.3, 1.6, 0.85, 0.55),
        ),
        # Velodyne VLP-16, 10 turns a second.
        "vlp16": Sensor(
            elevations=_beams((15.0, -15.0, 16)),
            columns=1800,
            height=1.8,
            max_range=100.0,
            range_noise=0.02,
            reach=100.0,
            dropout=0.005,
            gain=0.6,
        ),
        # Ouster OS1-64 (first generation), 1024 columns.
        "os1_64": Sensor(
            elevations=_beams((16.6, -16.6, 64)),
            columns=1024,
            height=1.85,
            max_range=90.0,
            range_noise=0.02,
            reach=90.0,
            dropout=0.01,
            gain=0.7,
        ),
    }
)
"""The sensors known by name."""
