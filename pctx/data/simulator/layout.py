"""Layouts: drawing a street from the four kinds there are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pctx.data.simulator.street import Side, Street

AHEAD, BEHIND = 80.0, -70.0
"""Metres along the street that are built on."""

Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Style:
    """A kind of street: ranges in metres, and chances in 0..1.

    Attributes:
        half: see `Side`.
        verge: see `Side`.
        no_verge: the chance that there is none.
        walk: see `Side`.
        no_walk: the chance that there is none.
        front: see `Side`.
        no_front: the chance that there is none.
        bank: see `Side`.
        square: the chance of a paved square.
        lot: the chance of a car park.
        drive: the chance that a property has a driveway.
        houses: the chance that a property has a house; 1 gives closed rows of them.
        storeys: from and to.
        parked: the share of the kerb with a parked car.
        green: how much grows in gardens and verges, 1 for a usual street.
    """

    half: Range
    verge: Range
    no_verge: float
    walk: Range
    no_walk: float
    front: Range
    no_front: float
    bank: Range
    square: float
    lot: float
    drive: float
    houses: float
    storeys: tuple[int, int]
    parked: Range
    green: float


STYLES = (
    Style(  # a suburb: gardens, hedges, driveways
        half=(2.9, 4.4), verge=(1.0, 2.5), no_verge=0.6, walk=(1.3, 2.6), no_walk=0.05,
        front=(2.5, 9.0), no_front=0.05, bank=(-0.06, 0.06), square=0.0, lot=0.06, drive=0.6,
        houses=0.85, storeys=(1, 2), parked=(0.05, 0.4), green=1.7,
    ),
    Style(  # a town street: closed facades, wide walks, parked cars
        half=(3.6, 6.5), verge=(1.5, 3.0), no_verge=0.75, walk=(2.0, 5.0), no_walk=0.0,
        front=(1.0, 4.0), no_front=0.65, bank=(0.0, 0.03), square=0.12, lot=0.1, drive=0.1,
        houses=1.0, storeys=(2, 5), parked=(0.2, 0.75), green=1.0,
    ),
    Style(  # an avenue: broad green strips and blocks set back from the street
        half=(4.5, 8.5), verge=(1.5, 6.0), no_verge=0.15, walk=(1.6, 3.5), no_walk=0.05,
        front=(4.0, 16.0), no_front=0.05, bank=(-0.1, 0.08), square=0.05, lot=0.3, drive=0.1,
        houses=0.55, storeys=(2, 6), parked=(0.0, 0.3), green=2.0,
    ),
    Style(  # a country road: banks, fields, woods
        half=(2.7, 4.0), verge=(0.8, 3.0), no_verge=0.1, walk=(1.4, 2.2), no_walk=0.6,
        front=(8.0, 35.0), no_front=0.0, bank=(-0.18, 0.2), square=0.0, lot=0.04, drive=0.15,
        houses=0.15, storeys=(1, 2), parked=(0.0, 0.05), green=2.2,
    ),
)  # fmt: skip
"""The kinds of streets."""

_SHARES = (0.34, 0.26, 0.22, 0.18)


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """A street, and the style of its left and right side.

    Attributes:
        handed: 1 where traffic keeps right, -1 where it keeps left.
    """

    street: Street
    left: Style
    right: Style
    handed: int


def draw_plan(height: float, rng: np.random.Generator) -> Plan:
    """Draw a street with the sensor `height` metres above one of its lanes."""
    main = int(rng.choice(len(STYLES), p=_SHARES))
    styles = [
        STYLES[main if rng.random() < 0.7 else int(rng.choice(len(STYLES), p=_SHARES))]
        for _ in range(2)
    ]
    half = rng.uniform(*STYLES[main].half)
    handed = 1 if rng.random() < 0.75 else -1
    crossing = None
    arms = (False, False)
    if rng.random() < 0.5:
        crossing = (rng.uniform(-30, 40), rng.uniform(2.8, 5.5))
        arms = ((True, True), (True, False), (False, True))[rng.integers(3)]
    inside = crossing is not None and abs(crossing[0]) < crossing[1] + 5
    turning = inside and rng.random() < 0.4
    lane = min(half * 0.5, 1.9) + rng.normal(0, 0.2)
    street = Street(
        height=height,
        curvature=float(rng.choice([0.0, rng.uniform(-1, 1) / 95, rng.uniform(-1, 1) / 250])),
        offset=-handed * lane,
        heading=float(rng.uniform(-1.0, 1.0) if turning else rng.normal(0, 0.03)),
        left=_side(styles[0], half, rng),
        right=_side(styles[1], half, rng),
        crossing=crossing,
        arms=arms,
        tilt=(rng.normal(0, 0.012), rng.normal(0, 0.01)),
        waves=np.concatenate(
            [_waves(rng, 3, (25, 80), (0.05, 0.3)), _waves(rng, 3, (1.5, 12), (0.001, 0.007))]
        ),
        bumps=_waves(rng, 4, (1.0, 6.0), (0.004, 0.022)),
    )
    return Plan(street=street, left=styles[0], right=styles[1], handed=handed)


def _side(style: Style, half: float, rng: np.random.Generator) -> Side:
    verge = 0.0 if rng.random() < style.no_verge else rng.uniform(*style.verge)
    walk = 0.0 if rng.random() < style.no_walk else rng.uniform(*style.walk)
    front = 0.0 if rng.random() < style.no_front else rng.uniform(*style.front)
    square = rng.random() < style.square
    if square:
        front = rng.uniform(10, 25)
    lot = None
    if not square and rng.random() < style.lot:
        start, inner = rng.uniform(-30, 15), verge + walk
        lot = (start, start + rng.uniform(18, 45), inner, inner + rng.uniform(11, 24))
        front = max(front, lot[3] - inner + 1)
    drives = [
        (s, s + rng.uniform(2.6, 5.5))
        for s in np.arange(BEHIND, AHEAD, 14.0) + rng.uniform(0, 8, 11)
        if rng.random() < style.drive
    ]
    return Side(
        half=half,
        verge=verge,
        walk=walk,
        front=front,
        paved=square,
        kerb=rng.uniform(0.08, 0.16) if walk else rng.uniform(0.0, 0.03),
        bank=0.0 if square or lot is not None else rng.uniform(*style.bank),
        drives=tuple(drives),
        lot=lot,
    )


def _waves(rng: np.random.Generator, count: int, length: Range, amplitude: Range) -> np.ndarray:
    angle = rng.uniform(0, 2 * np.pi, count)
    longest, shortest = np.log(length[1]), np.log(length[0])
    number = 2 * np.pi / np.exp(rng.uniform(shortest, longest, count))
    return np.stack(
        [
            rng.uniform(*amplitude, count),
            number * np.cos(angle),
            number * np.sin(angle),
            rng.uniform(0, 2 * np.pi, count),
        ],
        axis=1,
    )
