"""Vehicles, standing at the origin and heading along x: cars, vans, trucks and buses."""

from __future__ import annotations

import numpy as np

from pctx.data.simulator.shapes import Kind, Shapes, Surface, join, make

CAR, TRUCK, BUS = 10, 18, 13


def car(rng: np.random.Generator) -> Shapes:
    """Build a small car, a saloon, an estate or a high-built car."""
    length, width = rng.uniform(3.7, 4.8), rng.uniform(1.65, 1.9)
    high = rng.random() < 0.3
    height = rng.uniform(1.6, 1.85) if high else rng.uniform(1.38, 1.55)
    belt = height * rng.uniform(0.58, 0.64)
    floor = rng.uniform(0.28, 0.36) if high else rng.uniform(0.18, 0.26)
    paint = _paint(rng)
    front, rear, side = length / 2, -length / 2, width / 2

    # Hull: a straight middle with a rounded nose and tail, drawn in towards the belt.
    nose = rng.uniform(0.3, 0.55)
    hull = make(
        Kind.BOX,
        (0, 0, (floor + belt) / 2),
        (front - nose, side, (belt - floor) / 2),
        CAR,
        taper=(0.02, 0.02, 0.06),
        reflectance=paint,
    )
    deck = belt * rng.uniform(0.84, 0.95)
    ends = make(
        Kind.CYLINDER,
        [(front - nose, 0, (floor + deck) / 2), (rear + nose, 0, (floor + belt) / 2)],
        [(nose, side * 0.97, (deck - floor) / 2), (nose, side * 0.97, (belt - floor) / 2)],
        CAR,
        taper=(0.14, 0, 0),
        reflectance=paint,
    )
    bonnet = length * rng.uniform(0.2, 0.27)
    boot = rng.choice([0.02, 0.05, length * 0.2], p=[0.35, 0.35, 0.3])
    cabin_from, cabin_to = rear + 0.06 + boot, front - bonnet
    half = (cabin_to - cabin_from) / 2
    cabin = make(
        Kind.BOX,
        ((cabin_from + cabin_to) / 2, 0, (belt + height) / 2),
        (half, side * 0.97, (height - belt) / 2),
        CAR,
        taper=(
            rng.uniform(0.55, 0.8) / half,
            (0.25 if boot < 0.1 else 0.6) * rng.uniform(0.8, 1.3) / half,
            0.2,
        ),
        reflectance=paint,
        surface=Surface.CABIN,
    )
    seats = make(
        Kind.BOX,
        [(x, y * side * 0.45, (floor + height) / 2 - 0.05) for x in (-0.25, 0.45) for y in (-1, 1)],
        (0.12, side * 0.25, (height - floor) * 0.36),
        CAR,
        reflectance=0.15,
    )
    return join([hull, ends, cabin, seats, _wheels(length, width, 0.3), _plates(length, floor)])


def van(rng: np.random.Generator) -> Shapes:
    """Build a delivery van: a high box with a short sloping nose."""
    length, width, height = rng.uniform(4.6, 6.2), rng.uniform(1.85, 2.1), rng.uniform(1.9, 2.7)
    paint = max(_paint(rng), rng.choice([0.05, 0.35]))
    nose = rng.uniform(0.7, 1.1)
    bonnet = rng.uniform(1.0, 1.25)
    parts = [
        _block(-length / 2, length / 2 - nose, width, 0.28, height, CAR, paint, (0.1, 0.02, 0.06)),
        _block(0, length / 2, width * 0.98, 0.28, bonnet, CAR, paint, (0.08, 0, 0.04)),
        make(
            Kind.BOX,
            (length / 2 - nose - 0.2, 0, (bonnet + height) / 2 - 0.05),
            (nose + 0.1, width * 0.48, (height - bonnet) / 2),
            CAR,
            taper=(0.9, 0, 0.1),
            reflectance=paint,
            surface=Surface.CABIN,
        ),
    ]
    return join([*parts, _wheels(length, width, 0.34), _plates(length, 0.35)])


def truck(rng: np.random.Generator) -> Shapes:
    """Build a rigid truck: a cab, and a box body or a flat bed."""
    length, width = rng.uniform(6.5, 11.0), rng.uniform(2.3, 2.55)
    cab, height = rng.uniform(1.7, 2.3), rng.uniform(2.9, 3.7)
    paint, body = _paint(rng), rng.uniform(0.1, 0.5)
    flat = rng.random() < 0.25
    rear, front = -length / 2, length / 2
    top = rng.uniform(1.5, 1.9) if flat else height
    parts = [
        _block(rear, front - cab - 0.3, width, 0.95, top, TRUCK, body, (0, 0, 0)),
        _block(front - cab, front, width * 0.97, 0.45, 1.6, TRUCK, paint, (0.03, 0, 0.02)),
        make(
            Kind.BOX,
            (front - cab / 2, 0, (1.6 + height * 0.93) / 2),
            (cab / 2, width * 0.48, (height * 0.93 - 1.6) / 2),
            TRUCK,
            taper=(0.2, 0, 0.05),
            reflectance=paint,
            surface=Surface.CABIN,
        ),
        _block(rear + 0.2, front - 0.2, 0.9, 0.55, 0.95, TRUCK, 0.1, (0, 0, 0)),
    ]
    wheels = _wheels(length * 0.9, width, 0.48, TRUCK)
    return join([*parts, wheels, _plates(length, 0.6, TRUCK)])


def bus(rng: np.random.Generator) -> Shapes:
    """Build a city bus: rows of windows over a long hull."""
    length, width, height = rng.uniform(10, 13), 2.5, rng.uniform(2.9, 3.2)
    paint, sill = rng.uniform(0.1, 0.5), 1.35
    hull = _block(-length / 2, length / 2, width, 0.3, sill, BUS, paint, (0.01, 0.01, 0.02))
    top = make(
        Kind.BOX,
        (0, 0, (sill + height) / 2),
        (length / 2, width / 2, (height - sill) / 2),
        BUS,
        taper=(0.03, 0.02, 0.06),
        reflectance=paint,
        surface=Surface.CABIN,
    )
    roof = _block(
        -length / 2 + 0.2, length / 2 - 0.3, width * 0.94, height - 0.4, height, BUS, paint
    )
    return join(
        [hull, top, roof, _wheels(length * 0.8, width, 0.48, BUS), _plates(length, 0.5, BUS)]
    )


def _paint(rng: np.random.Generator) -> float:
    """Draw a reflectance; half of all cars are dark to a LiDAR."""
    low, high = ((-0.04, 0.03), (0.05, 0.25), (0.25, 0.5))[rng.choice(3, p=[0.5, 0.28, 0.22])]
    return max(0.0, float(rng.uniform(low, high)))


def _block(
    rear: float,
    front: float,
    width: float,
    low: float,
    high: float,
    label: int,
    reflectance: float,
    taper: tuple[float, float, float] = (0.0, 0.0, 0.0),
) -> Shapes:
    return make(
        Kind.BOX,
        ((rear + front) / 2, 0, (low + high) / 2),
        ((front - rear) / 2, width / 2, (high - low) / 2),
        label,
        taper=taper,
        reflectance=reflectance,
    )


def _wheels(length: float, width: float, radius: float, label: int = CAR) -> Shapes:
    at = [(x * length * 0.3, y * (width / 2 - 0.09), radius) for x in (-1, 1) for y in (-1, 1)]
    return make(
        Kind.CYLINDER, at, (radius, radius, 0.11), label, up=(0.0, 1.0, 0.0), reflectance=0.06
    )


def _plates(length: float, floor: float, label: int = CAR) -> Shapes:
    """Number plates and lamps, which shine in a scan."""
    x, z = length / 2, floor + 0.22
    at = [(x, 0, z), (-x, 0, z + 0.1)] + [
        (sx, y, z + 0.22) for sx in (-x, x) for y in (-0.62, 0.62)
    ]
    return make(
        Kind.BOX,
        at,
        [(0.02, 0.26, 0.055)] * 2 + [(0.08, 0.12, 0.06)] * 4,
        label,
        reflectance=[0.9, 0.9, 0.5, 0.5, 0.7, 0.7],
        surface=Surface.RETRO,
    )
