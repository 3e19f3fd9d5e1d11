"""simulate(): one scan of a street that never was, with true labels."""

from __future__ import annotations

import numpy as np

from pctx.data.simulator.cast import Hits, cast, incidence
from pctx.data.simulator.layout import draw_plan
from pctx.data.simulator.scene import furnish
from pctx.data.simulator.sensor import SENSORS, Rays, Sensor, fire, heard, intensity
from pctx.data.simulator.shapes import Kind, Shapes, Surface, join, make
from pctx.data.simulator.street import Street, Zone, strike_ground
from pctx.geometry.points import PointCloud

VERSION = 1
"""Rises whenever the same seed gives another scan, so that caches notice."""

ROAD, WALK, GRASS = 40, 48, 72
_OWN_CAR = -1
_STOREY = 2.9


def simulate(rng: np.random.Generator, sensor: str | Sensor = "hdl64") -> PointCloud:
    """Draw a street and scan it once.

    Points are in the sensor's frame: x forward, y left, z up, metres, in steps of a millimetre,
    beam by beam from the top. `label` holds SemanticKITTI's raw ids, `intensity` lies in 0..1 and
    `extra["ring"]` numbers the beams from the top. About 0.5 s for a 64-beam scan on one core.

    Args:
        sensor: a name from `SENSORS`, or one of your own.

    Raises:
        ValueError: there is no sensor of that name; the message lists those there are.
    """
    if isinstance(sensor, str):
        if sensor not in SENSORS:
            raise ValueError(f"no sensor {sensor!r}; there are {', '.join(SENSORS)}")
        sensor = SENSORS[sensor]
    plan = draw_plan(sensor.height, rng)
    shapes = join([furnish(plan, rng), _carrier(sensor)])
    rays = fire(sensor, rng)
    floor = strike_ground(plan.street, rays, sensor.max_range)
    reach = np.minimum(floor, sensor.max_range).astype(np.float32)
    hits = cast(shapes, rays, reach, rng)
    return _listen(plan.street, shapes, rays, floor, hits, sensor, rng)


def _carrier(sensor: Sensor) -> Shapes:
    """The roof and bonnet of the car that carries the sensor; its returns are taken away."""
    front, rear, half, drop = sensor.roof
    return make(
        Kind.BOX,
        [((front - rear) / 2, 0, -drop - 0.2), ((front + 1.1 - rear) / 2, 0, -sensor.height + 0.5)],
        [((front + rear) / 2, half, 0.2), ((front + 1.1 + rear) / 2, half, 0.3)],
        _OWN_CAR,
    )


def _listen(
    street: Street,
    shapes: Shapes,
    rays: Rays,
    floor: np.ndarray,
    hits: Hits,
    sensor: Sensor,
    rng: np.random.Generator,
) -> PointCloud:
    """Turn what the rays met into the returns a sensor reports."""
    ray = np.flatnonzero((hits.shape >= 0) | np.isfinite(floor))
    ring = ray // rays.columns
    direction, depth = rays.direction[ray], hits.depth[ray].copy()
    label = np.empty(len(ray), dtype=np.int64)
    reflectance, cosine = np.empty(len(ray)), np.empty(len(ray))
    there = ~hits.lost[ray]

    solid = np.flatnonzero(hits.shape[ray] >= 0)
    owner = hits.shape[ray[solid]]
    label[solid] = shapes.label[owner]
    albedo, angle, deeper, kept = _solids(shapes, owner, direction[solid], depth[solid], rng)
    reflectance[solid], cosine[solid] = albedo, angle
    depth[solid] += deeper
    there[solid] &= kept & (label[solid] != _OWN_CAR)

    ground = np.flatnonzero(hits.shape[ray] < 0)
    label[ground], reflectance[ground], cosine[ground], shorter = _ground(
        street, direction[ground], depth[ground], rng
    )
    depth[ground] -= shorter

    there &= heard(sensor, depth, reflectance, cosine, rng)
    reading = intensity(sensor, depth, ring, reflectance, cosine, rng)
    depth = depth + rng.normal(0, sensor.beam_bias, len(sensor.elevations))[ring]
    depth += rng.normal(0, sensor.range_noise, len(depth))
    coord = np.round(direction * depth[:, None], 3)
    cloud = PointCloud(
        coord=coord.astype(np.float32),
        intensity=reading,
        label=label,
        extra={"ring": ring.astype(np.int16)},
    )
    return cloud.select(there & (depth > 0.5))


def _solids(
    shapes: Shapes,
    owner: np.ndarray,
    direction: np.ndarray,
    depth: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Give reflectance, cosine of incidence, metres to add and whether it returns (n,)."""
    cosine, point = incidence(shapes, owner, direction, depth)
    reflectance = shapes.reflectance[owner].copy()
    surface = shapes.surface[owner]
    deeper, kept = np.zeros(len(owner)), np.ones(len(owner), dtype=bool)

    leaves = np.flatnonzero(surface == Surface.LEAVES)
    cosine[leaves] = rng.uniform(0.2, 1, len(leaves))
    reflectance[leaves] *= rng.uniform(0.6, 1.2, len(leaves))
    retro = surface == Surface.RETRO
    cosine[retro] = 1
    cabin = surface == Surface.CABIN
    reflectance[cabin & (cosine < 0.5)] *= 0.5

    wall = np.flatnonzero(surface == Surface.FACADE)
    glass = wall[_on_window(shapes, owner[wall], point[wall])]
    fate = rng.uniform(size=len(glass))
    recess = 0.14 / np.maximum(cosine[glass], 0.2)
    deeper[glass] = np.where(fate < 0.06, rng.uniform(0.5, 4, len(glass)), recess)
    kept[glass[fate > 0.75]] = False
    reflectance[glass] *= np.where(fate < 0.06, 0.6, 0.35)
    return reflectance, cosine, deeper, kept


def _on_window(shapes: Shapes, owner: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Say which points (n,) in the frames of facades lie on a window."""
    metre = point * shapes.half[owner]
    long_side = np.abs(point[:, 1]) > np.abs(point[:, 0])
    along = np.where(long_side, metre[:, 0], metre[:, 1]) / shapes.pitch[owner]
    up = (metre[:, 2] + shapes.half[owner, 2]) / _STOREY
    pane = np.abs(along - np.round(along)) < shapes.gap[owner] / 2
    return pane & (up % 1 > 0.35) & (up % 1 < 0.82) & (np.abs(point[:, 2]) < 0.999)


def _ground(
    street: Street, direction: np.ndarray, depth: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Give label, reflectance, cosine of incidence and metres that grass stands nearer (n,)."""
    x, y = (direction[:, :2] * depth[:, None]).T.astype(np.float64)
    zone = street.zone(*street.locate(x, y))
    labels = np.array([ROAD, WALK, GRASS, WALK, ROAD])  # in the order of `Zone`
    asphalt, paving, grass = rng.uniform((0.13, 0.25, 0.31), (0.29, 0.36, 0.42))
    lot = paving if rng.random() < 0.4 else asphalt
    drive = paving if rng.random() < 0.7 else asphalt
    albedo = np.array([asphalt, paving, grass, drive, lot])[zone]
    # Worn lanes and patches.
    albedo *= 1 + 0.1 * np.sin(0.7 * x + 1.1 * y) * np.sin(0.31 * x - 0.5 * y)
    marked = np.flatnonzero(zone == Zone.ROAD)
    albedo[marked] += 0.18 * _markings(street, x[marked], y[marked])

    sink = np.maximum(-direction[:, 2], 0.02)
    blade = rng.uniform(0.005, 0.045) * rng.random(len(depth)) ** 2
    shorter = np.where(zone == Zone.GRASS, np.minimum(blade / sink, 0.4), 0)
    cosine = np.where(zone == Zone.GRASS, np.maximum(sink, 0.25), sink)
    return labels[zone], albedo, cosine, shorter


def _markings(street: Street, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Say where a road is painted: a dashed centre line and lines along the kerb."""
    s, t = street.locate(x, y)
    center = (np.abs(t) < 0.08) & (s % 9 < 4.5)
    edge = np.abs(street.kerb_distance(s, t) + 0.45) < 0.07
    return center | (edge & (street.left.half > 4.5))


__all__ = ["SENSORS", "VERSION", "simulate"]
