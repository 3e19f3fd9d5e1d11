"""Buildings, standing at the origin with their front along x towards -y."""

from __future__ import annotations

import numpy as np

from pctx.data.simulator.shapes import Kind, Shapes, Surface, join, make

BUILDING = 50
_SUNK = 1.5
"""Metres a building reaches below the ground, for slopes."""


def house(rng: np.random.Generator, width: float, depth: float, storeys: int) -> Shapes:
    """Build a house with windows, a roof, and often a bay, balconies, a porch or steps."""
    tall = storeys * rng.uniform(2.7, 3.2) + rng.uniform(0, 0.8)
    wall = rng.uniform(0.22, 0.55)
    body = make(
        Kind.BOX,
        (0, 0, (tall - _SUNK) / 2),
        (width / 2, depth / 2, (tall + _SUNK) / 2),
        BUILDING,
        reflectance=wall,
        surface=Surface.FACADE,
        gap=rng.uniform(0.25, 0.5),
        pitch=rng.uniform(2.2, 4.2),
    )
    roof = _roof(rng, width, depth, tall)
    return join([body, *roof, *_front(rng, width, depth, tall, storeys, wall)])


def garage(rng: np.random.Generator) -> Shapes:
    """Build a garage or a shed with a flat roof."""
    width, depth, tall = rng.uniform(2.8, 6.5), rng.uniform(4, 6), rng.uniform(2.2, 2.9)
    return join(
        [
            _box(0, 0, width, depth, -_SUNK, tall, rng.uniform(0.2, 0.5)),
            _box(0, 0, width + 0.3, depth + 0.3, tall, tall + 0.2, 0.25),
        ]
    )


def _roof(rng: np.random.Generator, width: float, depth: float, tall: float) -> list[Shapes]:
    form = rng.choice(3, p=[0.5, 0.25, 0.25])
    if form == 2:  # flat, with a parapet
        return [_box(0, 0, width + 0.2, depth + 0.2, tall, tall + rng.uniform(0.2, 0.7), 0.3)]
    pitch = rng.uniform(0.5, 1.0) * depth / 2
    hip = min(0.98, depth / width) if form == 1 else 0.0
    return [
        make(
            Kind.BOX,
            (0, 0, tall + pitch / 2),
            (width / 2 + 0.3, depth / 2 + 0.5, pitch / 2),
            BUILDING,
            taper=(hip, hip, 0.99),
            reflectance=rng.uniform(0.15, 0.4),
        )
    ]


def _front(
    rng: np.random.Generator, width: float, depth: float, tall: float, storeys: int, wall: float
) -> list[Shapes]:
    """What stands out of the facade."""
    face, parts = -depth / 2, []
    if rng.random() < 0.35:  # a bay or a wing
        wide, out = rng.uniform(2, 4), rng.uniform(0.4, 1.6)
        x = rng.uniform(-1, 1) * max(width / 2 - wide / 2, 0)
        parts.append(_box(x, face, wide, 2 * out, -_SUNK, tall * rng.uniform(0.5, 1), wall))
    if storeys > 1 and rng.random() < 0.5:  # balconies
        columns = max(1, int(width / rng.uniform(4, 8)))
        for x in (np.arange(columns) + 0.5) / columns * width - width / 2:
            for floor in range(1, storeys):
                z = floor * tall / storeys
                parts.append(_box(x, face - 0.5, 2.4, 1.1, z, z + 0.18, 0.35))
                parts.append(_box(x, face - 1.03, 2.4, 0.05, z + 0.18, z + 1.1, 0.3))
    door = rng.uniform(-0.4, 0.4) * width
    if rng.random() < 0.6:  # steps
        parts.append(_box(door, face - 0.5, 1.8, 1.0, -_SUNK, 0.35, 0.35))
    if rng.random() < 0.35:  # a porch
        parts.append(_box(door, face - 0.7, 2.2, 1.4, 2.3, 2.5, 0.3))
    if rng.random() < 0.7:  # pilasters, drain pipes
        count = int(rng.integers(2, 5))
        for x in rng.uniform(-width / 2, width / 2, count):
            parts.append(_box(x, face, 0.2, 0.24, -_SUNK, tall, wall * 0.8))
    if rng.random() < 0.5:  # a base course
        parts.append(
            _box(0, 0, width + 0.12, depth + 0.12, -_SUNK, rng.uniform(0.4, 1.0), wall * 0.8)
        )
    return parts


def _box(
    x: float, y: float, wide: float, deep: float, low: float, high: float, reflectance: float
) -> Shapes:
    return make(
        Kind.BOX,
        (x, y, (low + high) / 2),
        (wide / 2, deep / 2, (high - low) / 2),
        BUILDING,
        reflectance=reflectance,
    )
