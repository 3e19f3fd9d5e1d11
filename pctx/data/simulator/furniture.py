"""What stands in a street: people, riders, lamps, signs, bins, fences and walls.

Everything stands at the origin; a street runs along x.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from pctx.data.simulator.shapes import Kind, Shapes, Surface, join, make, place

OTHER, PERSON, RIDER, FENCE, POLE, SIGN = 99, 30, 31, 51, 80, 81


def person(rng: np.random.Generator, label: int = PERSON) -> Shapes:
    """Build somebody who stands or walks along x."""
    tall = rng.uniform(1.5, 1.92) if rng.random() < 0.88 else rng.uniform(1.05, 1.4)
    stride = rng.uniform(0.0, 0.28) * tall / 1.75
    cloth, legs = rng.uniform(0.08, 0.6), rng.uniform(0.05, 0.5)
    hip, shoulder, broad = 0.5 * tall, 0.82 * tall, rng.uniform(0.19, 0.25)
    swing = stride * rng.choice([-1, 1])
    limbs = make(
        Kind.CYLINDER,
        [(swing * 0.5, 0.09, hip / 2), (-swing * 0.5, -0.09, hip / 2)],
        (0.09, 0.09, hip / 2),
        label,
        up=[(-swing, 0, hip), (swing, 0, hip)],
        taper=(-0.3, 0, 0),
        reflectance=legs,
    )
    arms = make(
        Kind.ELLIPSOID,
        [(-swing * 0.4, broad + 0.03, 0.64 * tall), (swing * 0.4, -broad - 0.03, 0.64 * tall)],
        (0.065, 0.065, 0.2 * tall),
        label,
        up=[(swing * 0.8, 0, 0.4), (-swing * 0.8, 0, 0.4)],
        reflectance=cloth,
    )
    body = make(
        Kind.ELLIPSOID,
        [(0.02, 0, (hip + shoulder) / 2), (0, 0, 0.53 * tall), (0.03, 0, 0.93 * tall)],
        [(0.16, broad, 0.21 * tall), (0.15, 0.18, 0.12 * tall), (0.1, 0.085, 0.07 * tall)],
        label,
        reflectance=[cloth, legs, 0.35],
    )
    parts = [limbs, arms, body]
    if rng.random() < 0.25:  # a bag on the back
        bag = make(Kind.ELLIPSOID, (-0.2, 0, 0.68 * tall), (0.13, 0.16, 0.22), label)
        parts.append(bag)
    return join(parts)


def rider(rng: np.random.Generator) -> Shapes:
    """Build a bicycle with its rider, heading along x; all of it is the rider's, as in KITTI."""
    body = place(person(rng, RIDER), (-0.1, 0, 0.25))
    wheels = make(
        Kind.CYLINDER,
        [(-0.52, 0, 0.34), (0.52, 0, 0.34)],
        (0.34, 0.34, 0.025),
        RIDER,
        up=(0.0, 1.0, 0.0),
        reflectance=0.15,
        gap=0.65,
    )
    frame = make(
        Kind.CYLINDER,
        [(0.05, 0, 0.62), (-0.2, 0, 0.5), (0.47, 0, 0.7)],
        [(0.025, 0.025, 0.45), (0.025, 0.025, 0.35), (0.025, 0.025, 0.36)],
        RIDER,
        up=[(1, 0, 0.25), (-0.3, 0, 1), (-0.25, 0, 1)],
    )
    return join([body, wheels, frame])


def lamp(rng: np.random.Generator, toward: float) -> Shapes:
    """Build a lamp post whose arm reaches along y to the side of the sign of `toward`."""
    tall, radius = rng.uniform(4.0, 9.0), rng.uniform(0.055, 0.11)
    grey = rng.uniform(0.08, 0.4)
    post = _post(rng, tall, radius, grey)
    reach = rng.uniform(0.4, 2.2)
    arm = make(
        Kind.CYLINDER,
        (0, toward * reach / 2, tall),
        (0.045, 0.045, reach / 2),
        POLE,
        up=(0.0, 1.0, 0.12),
        reflectance=grey,
    )
    head = make(
        Kind.ELLIPSOID, (0, toward * reach, tall), (0.16, 0.38, 0.1), POLE, reflectance=grey
    )
    return join([post, arm, head])


def mast(rng: np.random.Generator) -> Shapes:
    """Build a bare pole: a bollard, a wooden line pole or a short iron post."""
    tall, radius = ((1.0, 0.07), (7.5, 0.13), (2.8, 0.045))[rng.integers(3)]
    return _post(rng, tall * rng.uniform(0.9, 1.2), radius, rng.uniform(0.1, 0.4))


def traffic_sign(rng: np.random.Generator) -> Shapes:
    """Build a post with one or two plates that face along -x, or along x."""
    bottom = rng.uniform(1.3, 2.3)
    size = rng.uniform(0.28, 0.42)
    turn = rng.normal(0, 0.25) + (np.pi if rng.random() < 0.3 else 0)
    plates, z = [], bottom + size
    for _ in range(1 + int(rng.random() < 0.45)):
        shine = rng.uniform(0.25, 0.95)
        if rng.random() < 0.5:
            half = (size, size, 0.015)
            plate = make(
                Kind.CYLINDER, (-0.06, 0, z), half, SIGN, up=(1.0, 0.0, 0.0), reflectance=shine,
                surface=Surface.RETRO,
            )  # fmt: skip
        else:
            half = (0.015, size * rng.uniform(0.8, 1.3), size * rng.uniform(0.5, 1.0))
            plate = make(
                Kind.BOX, (-0.06, 0, z), half, SIGN, reflectance=shine, surface=Surface.RETRO
            )
        plates.append(plate)
        z += 2 * size + 0.05
    post = _post(rng, z - size * 0.8, rng.uniform(0.03, 0.045), rng.uniform(0.1, 0.35))
    return place(join([post, *plates]), (0, 0, 0), turn)


def sign_board(rng: np.random.Generator) -> Shapes:
    """Build a wide board on two posts, facing along -x."""
    wide, tall, low = rng.uniform(0.9, 2.2), rng.uniform(0.5, 1.2), rng.uniform(0.5, 1.6)
    board = make(
        Kind.BOX,
        (0, 0, low + tall / 2),
        (0.03, wide / 2, tall / 2),
        SIGN,
        reflectance=rng.uniform(0.2, 0.8),
        surface=Surface.RETRO,
    )
    posts = [
        place(_post(rng, low + tall, 0.04, 0.25), (0.06, y * (wide / 2 - 0.12), 0)) for y in (-1, 1)
    ]
    return place(join([board, *posts]), (0, 0, 0), rng.normal(0, 0.25))


def street_thing(rng: np.random.Generator) -> Shapes:
    """Build a bin, a street cabinet or a bench; SemanticKITTI calls them other objects."""
    kind = rng.integers(3)
    grey = rng.uniform(0.1, 0.4)
    if kind == 0:
        tall, radius = rng.uniform(0.7, 1.2), rng.uniform(0.2, 0.35)
        half = (radius, radius, tall / 2)
        return make(Kind.CYLINDER, (0, 0, tall / 2), half, OTHER, reflectance=grey)
    if kind == 1:
        tall = rng.uniform(0.9, 1.5)
        half = (rng.uniform(0.3, 0.7), rng.uniform(0.15, 0.4), tall / 2)
        return make(Kind.BOX, (0, 0, tall / 2), half, OTHER, reflectance=grey)
    return make(
        Kind.BOX,
        [(0, 0, 0.45), (0, 0.22, 0.75), (-0.7, 0, 0.22), (0.7, 0, 0.22)],
        [(0.85, 0.22, 0.03), (0.85, 0.03, 0.18), (0.04, 0.2, 0.22), (0.04, 0.2, 0.22)],
        OTHER,
        reflectance=grey,
    )


class Fence(Enum):
    """The fences there are."""

    SLATS = "slats"
    WIRE = "wire"
    PLANKS = "planks"
    WALL = "a low wall"
    RAIL = "a guard rail"
    RAILINGS = "railings on a low wall"


def fence(rng: np.random.Generator, length: float, style: Fence) -> Shapes:
    """Build a stretch of fence along x, `length` metres long."""
    half = length / 2 + 0.05
    if style is Fence.WALL:
        return _panel(half, 0.1, -0.3, rng.uniform(0.5, 1.3), 0.33)
    if style is Fence.RAIL:
        return join([_panel(half, 0.06, 0.45, 0.78, 0.4), _posts(half, 0.65, 0.06)])
    if style is Fence.RAILINGS:
        wall = _panel(half, 0.1, -0.3, 0.45, 0.33)
        return join([wall, _panel(half, 0.02, 0.45, 1.25, 0.2, gap=0.75, pitch=0.13)])
    tall, gap, pitch = {
        Fence.SLATS: (1.1, 0.45, 0.16),
        Fence.WIRE: (1.4, 0.72, 0.0),
        Fence.PLANKS: (1.75, 0.06, 0.2),
    }[style]
    panel = _panel(half, 0.02, 0.06, tall, 0.28, gap=gap, pitch=pitch)
    return join([panel, _posts(half, tall + 0.05, 0.05)])


def _post(rng: np.random.Generator, tall: float, radius: float, reflectance: float) -> Shapes:
    lean = (*rng.normal(0, 0.012, 2), 1.0)
    return make(
        Kind.CYLINDER,
        (0, 0, tall / 2 - 0.1),
        (radius, radius, tall / 2 + 0.1),
        POLE,
        up=lean,
        taper=(0.25 if radius > 0.05 else 0.0, 0, 0),
        reflectance=reflectance,
    )


def _panel(
    half: float,
    thick: float,
    low: float,
    high: float,
    reflectance: float,
    gap: float = 0.0,
    pitch: float = 0.0,
) -> Shapes:
    return make(
        Kind.BOX,
        (0, 0, (low + high) / 2),
        (half, thick, (high - low) / 2),
        FENCE,
        reflectance=reflectance,
        gap=gap,
        pitch=pitch,
    )


def _posts(half: float, tall: float, radius: float) -> Shapes:
    return make(
        Kind.CYLINDER,
        [(-half, 0, tall / 2 - 0.1), (0, 0, tall / 2 - 0.1)],
        (radius, radius, tall / 2 + 0.1),
        FENCE,
        reflectance=0.25,
    )
