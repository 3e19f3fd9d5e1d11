"""What is on a road and its walks: traffic, parked cars, people, lamps, signs and street trees."""

from __future__ import annotations

import numpy as np

from pctx.data.simulator import furniture, plants, vehicles
from pctx.data.simulator.layout import AHEAD, BEHIND
from pctx.data.simulator.shapes import Shapes
from pctx.data.simulator.site import OFF_ROAD, Edge, Site
from pctx.data.simulator.street import Zone


def put_traffic(site: Site) -> None:
    """Put vehicles into both lanes, and riders at their edges."""
    rng, half, handed = site.rng, site.plan.street.left.half, site.plan.handed
    lane = min(half * 0.5, 1.9)
    for _ in range(int(rng.integers(0, 7))):
        own = site.chance(0.5)
        s = rng.choice([-1, 1], p=[0.3, 0.7]) * rng.uniform(9, 60)
        t = handed * (-lane if own else lane)
        vehicle, room = _vehicle(site, heavy=0.16)
        site.put(vehicle, s, t, room=room, zones=(Zone.ROAD,), turn=0.0 if own else np.pi)
    for _ in range(int(rng.integers(0, 3))):
        s, t = rng.uniform(-20, 30), rng.choice([-1, 1]) * (half - 0.8)
        turn = 0.0 if t * handed < 0 else np.pi
        site.put(furniture.rider(rng), s, t, room=1.1, zones=(Zone.ROAD,), turn=turn)


def put_parked(site: Site, edge: Edge) -> None:
    """Put vehicles along the kerb, into driveways and onto a car park."""
    rng, side = site.rng, edge.side
    share = rng.uniform(*edge.style.parked)
    slanted = side.half > 5.5 and site.chance(0.2)
    # In a narrow street they stand half on the sidewalk.
    inner = 1.7 if slanted else 1.15 if side.half >= 3.4 else 0.3
    s = BEHIND + 10
    while s < AHEAD:
        if site.chance(share) and not site.at_arm(s, edge.left, 7):
            vehicle, room = (vehicles.car(rng), 1.45) if slanted else _vehicle(site, heavy=0.03)
            turn = rng.normal(0, 0.03) + (np.pi if site.chance(0.5) else 0)
            turn += edge.sign * 0.9 if slanted else 0.0
            t = edge.at(-inner + rng.normal(0, 0.08))
            site.put(vehicle, s, t, room=room, zones=(Zone.ROAD, Zone.WALK), turn=turn)
        s += 3.1 if slanted else rng.uniform(5.4, 6.6)
    for start, end in side.drives:
        if side.front > 4 and site.chance(0.5):
            t = edge.at(side.fence_line + rng.uniform(2.4, side.front + 0.5))
            turn = rng.choice([-1, 1]) * np.pi / 2
            car = vehicles.car(rng)
            site.put(car, (start + end) / 2, t, room=2.3, zones=(Zone.DRIVE,), turn=turn)
    if side.lot is not None:
        start, end, near, far = side.lot
        for row in np.arange(near + 3, far - 2, 7.5).tolist():
            for s in np.arange(start + 2, end - 1, 2.7).tolist():
                if site.chance(0.6):
                    turn = np.pi / 2 + rng.normal(0, 0.04)
                    car = vehicles.car(rng)
                    site.put(car, s, edge.at(row), room=1.3, zones=(Zone.LOT,), turn=turn)


def put_people(site: Site, edge: Edge) -> None:
    """Put people on the walk, on a square, and a few on the road."""
    rng, side = site.rng, edge.side
    outer = side.house_line if side.paved else side.fence_line
    count = rng.integers(0, 5) + (rng.integers(2, 8) if side.paved else 0)
    for _ in range(int(count)):
        s = rng.choice([-1, 1], p=[0.4, 0.6]) * rng.gamma(3.0, 5.0)
        d = rng.uniform(0.3, max(outer, 1.2))
        if site.chance(0.08):
            d = -rng.uniform(0.5, side.half)
        for _ in range(1 + int(site.chance(0.3))):
            turn = rng.choice([0, np.pi]) + rng.normal(0, 0.5)
            site.put(furniture.person(rng), s, edge.at(d), room=0.4, turn=turn)
            s, d = s + rng.normal(0, 0.5), d + 0.75


def put_furniture(site: Site, edge: Edge) -> None:
    """Put lamps, signs, masts and bins along the walk."""
    rng, side = site.rng, edge.side
    inner, outer = 0.45, max(side.fence_line - 0.35, 0.5)
    if site.chance(0.8):
        line = edge.at(rng.choice([inner, outer]))
        for s in _along(site, rng.uniform(20, 38)):
            site.put(furniture.lamp(rng, -edge.sign), s, line, room=0.35, zones=OFF_ROAD)
    # Plates face the traffic on their side.
    turn = 0.0 if edge.left != (site.plan.handed > 0) else np.pi
    for s in _along(site, rng.uniform(14, 30), -30, 55):
        d = rng.choice([inner, outer, outer + 0.8])
        if site.chance(0.12):
            board = furniture.sign_board(rng)
            site.put(board, s, edge.at(d + 1.0), room=0.9, zones=OFF_ROAD, turn=turn)
        else:
            sign = furniture.traffic_sign(rng)
            site.put(sign, s, edge.at(d), room=0.3, zones=OFF_ROAD, turn=turn)
    for s in _along(site, rng.uniform(16, 45), -35, 50):
        line = edge.at(rng.choice([inner, outer]))
        site.put(furniture.mast(rng), s, line, room=0.25, zones=OFF_ROAD)
    for s in _along(site, rng.uniform(14, 40), -30, 40):
        tilt = rng.normal(0, 0.2)
        thing = furniture.street_thing(rng)
        site.put(thing, s, edge.at(outer - 0.1), room=0.6, zones=OFF_ROAD, turn=tilt)


def put_street_trees(site: Site, edge: Edge) -> None:
    """Put trees and bushes on the verge or the walk, or a guard rail along the road."""
    rng, side = site.rng, edge.side
    if side.verge > 1.2:
        for s in _along(site, rng.uniform(7, 15) / min(edge.style.green, 1.3)):
            t = edge.at(side.verge * rng.uniform(0.35, 0.65))
            site.put(plants.tree(rng, site.leaves(s, t)), s, t, room=0.8, zones=(Zone.GRASS,))
        if site.chance(0.45):
            for s in _along(site, rng.uniform(4, 12)):
                t = edge.at(side.verge / 2)
                site.put(plants.bush(rng, 12), s, t, room=0.8, zones=(Zone.GRASS,))
    elif side.walk > 2.6 and site.chance(0.6):
        for s in _along(site, rng.uniform(8, 16)):
            t = edge.at(0.8)
            site.put(plants.tree(rng, site.leaves(s, t)), s, t, room=0.7, zones=(Zone.WALK,))
    if edge.style.houses < 0.3 and site.chance(0.3):
        for s in np.arange(-40, 50, 4.0).tolist():
            if not site.at_arm(s, edge.left, 6):
                rail = furniture.fence(rng, 4.0, furniture.Fence.RAIL)
                site.put(rail, s, edge.at(0.45), zones=OFF_ROAD)


def _vehicle(site: Site, heavy: float) -> tuple[Shapes, float]:
    """Draw a vehicle, a lorry or bus with the chance `heavy`, and the room it takes."""
    kind = site.rng.random()
    if kind < heavy:
        build = vehicles.truck if site.chance(0.6) else vehicles.bus
        return build(site.rng), 4.8
    if kind < heavy + 0.14:
        return vehicles.van(site.rng), 3.0
    return vehicles.car(site.rng), 2.35


def _along(site: Site, spacing: float, start: float = BEHIND, end: float = AHEAD) -> np.ndarray:
    """Give places along the street, not quite evenly spaced."""
    steps = np.arange(start, end, spacing)
    return steps + site.rng.uniform(0, spacing * 0.6, len(steps))
