"""Street: where road, walks and grass run, how high the ground is, and where rays meet it.

Places are given twice: (x, y) metres in the sensor's frame, and (s, t): s metres along the
street's centre line from beside the sensor, t metres to its left. The kerb distance d is negative
on a road and grows outward from its kerb.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from pctx.data.simulator.sensor import Rays

_FILLET = 6.0
"""Metres: radius of the kerb at a crossing."""


class Zone(IntEnum):
    """What the ground is."""

    ROAD = 0
    WALK = 1
    GRASS = 2
    DRIVE = 3
    """A driveway across verge and front garden."""
    LOT = 4
    """A car park beside the street."""


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of the street, from the kerb outward; metres.

    Attributes:
        half: from the centre line to the kerb.
        verge: width of the grass along the kerb.
        walk: width of the sidewalk behind it.
        front: width of what lies between the sidewalk and the houses.
        paved: the front is a square, not gardens.
        kerb: its height.
        bank: rise a metre beyond the sidewalk.
        drives: (s from, s to) of driveways.
        lot: (s from, s to, d from, d to) of a car park.
    """

    half: float
    verge: float
    walk: float
    front: float
    paved: bool = False
    kerb: float = 0.12
    bank: float = 0.0
    drives: tuple[tuple[float, float], ...] = ()
    lot: tuple[float, float, float, float] | None = None

    @property
    def fence_line(self) -> float:
        """Kerb distance of the sidewalk's outer edge."""
        return self.verge + self.walk

    @property
    def house_line(self) -> float:
        """Kerb distance of the facades."""
        return self.verge + self.walk + self.front


@dataclass(frozen=True, kw_only=True, eq=False)
class Street:
    """A street with the sensor at (0, 0, 0) above it.

    Attributes:
        height: metres, sensor above ground.
        curvature: 1 / radius of the centre line, positive to the left.
        offset: t of the sensor.
        heading: radians from the street's direction to the sensor's x axis.
        left: the side at t > 0.
        right: the side at t <= 0.
        crossing: (s, half width) of a side road, to the sides in `arms`.
        arms: whether it leaves to the left, to the right.
        tilt: slopes of the ground along x and y.
        waves: (k, 4) of long undulations: amplitude, wave numbers in x and y, phase.
        bumps: (k, 4) of the roughness of grass.
    """

    height: float
    curvature: float
    offset: float
    heading: float
    left: Side
    right: Side
    crossing: tuple[float, float] | None
    arms: tuple[bool, bool]
    tilt: tuple[float, float]
    waves: np.ndarray
    bumps: np.ndarray

    def locate(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Turn sensor places (x, y) into street places (s, t)."""
        c, s = np.cos(self.heading), np.sin(self.heading)
        bend = self._bend
        u, v = c * x - s * y, s * x + c * y + self.offset
        ahead, inward = u * bend, 1 - v * bend
        return np.arctan2(ahead, inward) / bend, (1 - np.hypot(ahead, inward)) / bend

    def point(self, s: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Turn street places into sensor places x, y and the street's direction there (radians)."""
        bend = self._bend
        turn = np.asarray(s) * bend
        radius = 1 / bend - t
        u, v = radius * np.sin(turn), 1 / bend - radius * np.cos(turn) - self.offset
        c, sn = np.cos(self.heading), np.sin(self.heading)
        return c * u + sn * v, c * v - sn * u, turn - self.heading

    def side(self, left: bool) -> Side:
        """Give the left or the right side."""
        return self.left if left else self.right

    def kerb_distance(self, s: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Give d: metres from the nearest kerb, negative on a road."""
        main = np.abs(t) - np.where(t > 0, self.left.half, self.right.half)
        if self.crossing is None:
            return main
        other = np.abs(s - self.crossing[0]) - self.crossing[1]
        # The union of two roads with a rounded corner.
        in_main, in_other = np.maximum(_FILLET - main, 0), np.maximum(_FILLET - other, 0)
        both = np.maximum(_FILLET, np.minimum(main, other)) - np.hypot(in_main, in_other)
        return np.where(np.where(t > 0, *self.arms), both, main)

    def zone(self, s: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Give the `Zone` of street places."""
        d = self.kerb_distance(s, t)
        zone = np.full(np.shape(d), Zone.GRASS, dtype=np.int8)
        for left, here in ((True, t > 0), (False, t <= 0)):
            side = self.side(left)
            walk = (d >= side.verge) & (d < side.fence_line)
            if side.paved:
                walk |= (d >= side.fence_line) & (d < side.house_line)
            zone[here & walk] = Zone.WALK
            for start, end in side.drives:
                on = (s > start) & (s < end) & (d >= 0) & (d < side.house_line + 6)
                zone[here & on & ~walk] = Zone.DRIVE
            if side.lot is not None:
                start, end, inner, outer = side.lot
                zone[here & (s > start) & (s < end) & (d >= inner) & (d < outer)] = Zone.LOT
        zone[d < 0] = Zone.ROAD
        return zone

    def ground(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Give the ground's z at sensor places; it is -height beneath the sensor."""
        z = self._surface(np.append(x, 0.0), np.append(y, 0.0))
        return z[:-1] - z[-1] - self.height

    @property
    def _bend(self) -> float:
        return self.curvature if abs(self.curvature) > 1e-5 else 1e-5

    def _surface(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        s, t = self.locate(x, y)
        d = self.kerb_distance(s, t)
        z = self.tilt[0] * x + self.tilt[1] * y + _sines(self.waves, x, y)
        grass = np.zeros_like(d)
        for left, here in ((True, t > 0), (False, t <= 0)):
            side = self.side(left)
            out = d - side.fence_line
            bank = side.bank * np.clip(out, 0, 14)
            rise = side.kerb * _step(d / 0.05) + 0.02 * np.clip(d, 0, side.fence_line) + bank
            z += np.where(here, rise, 0)
            on_verge = _step(d / 0.3) * _step((side.verge - d) / 0.3)
            beyond = 0.0 if side.paved or side.lot is not None else _step(out / 0.5)
            grass += np.where(here, on_verge + beyond, 0)
        z -= 0.012 * np.maximum(4 + np.minimum(d, 0), 0) ** 2 / 4  # the crown of the road
        return z + grass * _sines(self.bumps, x, y)


def strike_ground(street: Street, rays: Rays, max_range: float) -> np.ndarray:
    """Give the range (rays,) float32 at which rays meet the ground, inf where they do not.

    The ground's profile under every other column is a rising curve of elevation over distance,
    once what stands in the shadow of a rise is left out; each beam is looked up in it, and the
    meeting point is then made exact along its own ray.
    """
    beams, width = len(rays.elevations), rays.columns
    stride = 2 if width > 720 else 1
    azimuth = 2 * np.pi * (np.arange(0, width, stride) + 0.5) / width
    reach = np.geomspace(1.5, max_range, 170)
    x, y = np.cos(azimuth)[:, None] * reach, np.sin(azimuth)[:, None] * reach
    profile = street.ground(x.ravel(), y.ravel()).reshape(x.shape)  # (columns, reach)
    skyline = np.maximum.accumulate(profile / reach, axis=1)
    slope = np.tan(rays.elevations)
    bracket = np.stack([np.searchsorted(line, slope) for line in skyline])  # (columns, beams)
    bracket = np.repeat(bracket, stride, axis=0)[:width]
    profile = np.repeat(profile, stride, axis=0)[:width]

    beam, column = np.nonzero((bracket > 0).T & (bracket < len(reach)).T)
    k = bracket[column, beam]
    near, far = reach[k - 1], reach[k]
    below, above = profile[column, k - 1], profile[column, k]
    rise = slope[beam]
    ray = beam * width + column
    flat = rays.direction[ray, :2].astype(np.float64)
    flat /= np.hypot(flat[:, 0], flat[:, 1])[:, None]
    # The beam runs above the profile at `near` and below it at `far`: the Illinois rule of false
    # position closes in on where they meet.
    over, under = np.maximum(rise * near - below, 0), np.minimum(rise * far - above, -1e-9)
    for _ in range(3):
        at = near + (far - near) * over / (over - under)
        gap = rise * at - street.ground(flat[:, 0] * at, flat[:, 1] * at)
        above_it = gap > 0
        near, over = np.where(above_it, at, near), np.where(above_it, gap, over / 2)
        far, under = np.where(above_it, far, at), np.where(above_it, under / 2, gap)
    at = near + (far - near) * over / np.maximum(over - under, 1e-12)
    depth = np.full(beams * width, np.inf, dtype=np.float32)
    depth[ray] = at * np.sqrt(1 + rise**2)
    return depth


def _step(t: np.ndarray) -> np.ndarray:
    """Rise smoothly from 0 at t <= 0 to 1 at t >= 1."""
    t = np.clip(t, 0, 1)
    return t * t * (3 - 2 * t)


def _sines(waves: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    total = np.zeros_like(x)
    for amplitude, u, v, phase in waves:
        total += amplitude * np.sin(u * x + v * y + phase)
    return total
