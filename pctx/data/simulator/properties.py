"""What lies beside a street: houses with gardens and fences, and the land behind them."""

from __future__ import annotations

import numpy as np

from pctx.data.simulator import buildings, furniture, plants, vehicles
from pctx.data.simulator.layout import AHEAD, BEHIND
from pctx.data.simulator.site import Edge, Site
from pctx.data.simulator.street import Zone

_STRETCH = 2.5
"""Metres of a piece of hedge or fence."""

_HEDGE, _SHRUBS, _NONE = "hedge", "shrubs", "none"
_BORDERS = (_HEDGE, _SHRUBS, _NONE, *furniture.Fence)
_TOWN = (0.28, 0.22, 0.1, 0.08, 0.06, 0.07, 0.08, 0.04, 0.07)
_COUNTRY = (0.12, 0.43, 0.22, 0.0, 0.18, 0.0, 0.05, 0.0, 0.0)
"""Chances of the borders of a property, in the order of `_BORDERS`."""


def put_properties(site: Site, edge: Edge) -> None:
    """Put houses with their gardens and fences, one property after another."""
    rng, side, style = site.rng, edge.side, edge.style
    closed = style.houses >= 1 or site.chance(0.15)
    storeys = int(rng.integers(style.storeys[0], style.storeys[1] + 1))
    hedge = rng.uniform(0.8, 2.2)
    s = BEHIND + rng.uniform(0, 8)
    while s < AHEAD:
        width = rng.uniform(9, 18) if closed else rng.uniform(9, 24)
        blocked = site.at_arm(s + width / 2, edge.left, side.house_line + width / 2 - 1)
        if not blocked and site.chance(0.97 if closed else style.houses):
            depth = rng.uniform(8, 13)
            full = closed and site.chance(0.85)
            wide = width if full else width * rng.uniform(0.5, 0.8)
            house = buildings.house(rng, wide, depth, max(1, storeys + int(rng.integers(-1, 2))))
            front = side.house_line + (rng.uniform(0, 0.3) if closed else rng.uniform(0, 3))
            t, claim = edge.at(front + depth / 2), 0.45 * min(wide, depth)
            site.put(house, s + width / 2, t, claim=claim, turn=edge.facing)
            if not closed and site.chance(0.3):
                garage = buildings.garage(rng)
                site.put(garage, s + width, edge.at(front + 4), claim=2, turn=edge.facing)
        if side.front > 1 and not side.paved:
            _garden(site, edge, (s, s + width), hedge)
        s += width + (0.0 if closed else rng.uniform(0, 5))


def put_backdrop(site: Site, edge: Edge) -> None:
    """Put trees, thickets and more houses where they show between and behind the houses."""
    rng, style = site.rng, edge.style
    start = edge.side.house_line + (14 if style.houses > 0.3 else 2)
    wild = (Zone.GRASS,)

    def anywhere(out: float) -> tuple[float, float]:
        return rng.uniform(BEHIND, AHEAD), edge.at(start + out)

    for _ in range(int(rng.integers(0, 6) * style.houses)):
        wide, deep = rng.uniform(9, 25), rng.uniform(8, 14)
        house = buildings.house(rng, wide, deep, int(rng.integers(1, 5)))
        s, t = anywhere(12 + rng.uniform(0, 20))
        if not site.at_arm(s, edge.left, wide / 2 + 4):
            site.put(house, s, t, room=wide / 2, turn=rng.integers(4) * np.pi / 2)
    for _ in range(int(rng.integers(10, 22) * style.green)):
        s, t = anywhere(rng.gamma(1.5, 9.0))
        site.put(plants.tree(rng, site.leaves(s, t)), s, t, room=1.2, zones=wild)
    for _ in range(int(rng.integers(5, 14) * style.green)):
        s, t = anywhere(rng.gamma(1.5, 9.0))
        broad, tall = rng.uniform(2, 5), rng.uniform(1.5, 5)
        wood = plants.thicket(rng, broad, tall, int(rng.integers(14, 34)))
        site.put(wood, s, t, room=broad / 2, zones=wild)


def put_side_road(site: Site, edge: Edge) -> None:
    """Put houses, hedges and cars along the side road of a side, if one leaves there."""
    rng, street, side = site.rng, site.plan.street, edge.side
    if street.crossing is None or not street.arms[not edge.left]:
        return
    center, half = street.crossing
    for bank in (-1, 1):
        d = side.house_line + 16
        while d < 55:
            wide, deep = rng.uniform(9, 18), rng.uniform(8, 12)
            s = center + bank * (half + side.house_line + deep / 2 + 0.5)
            if site.chance(edge.style.houses):
                house = buildings.house(rng, wide, deep, int(rng.integers(1, 4)))
                turn = -bank * np.pi / 2  # its front to the side road
                site.put(house, s, edge.at(d + wide / 2), claim=0.45 * deep, turn=turn)
            elif side.front > 1:
                hedge = plants.hedge(rng, 4.0, 1.5, 1.0)
                site.put(hedge, s, edge.at(d), zones=(Zone.GRASS,), turn=np.pi / 2)
            d += wide + rng.uniform(0, 4)
        for d in np.arange(12, 45, 6.5).tolist():
            if site.chance(0.3):
                s, turn = center + bank * (half - 1.15), rng.choice([-1, 1]) * np.pi / 2
                car = vehicles.car(rng)
                site.put(car, s, edge.at(d), room=2.3, zones=(Zone.ROAD,), turn=turn)


def _garden(site: Site, edge: Edge, span: tuple[float, float], hedge: float) -> None:
    """Fence a front garden and plant it."""
    rng, side, style = site.rng, edge.side, edge.style
    line = side.fence_line + 0.4
    shares = _COUNTRY if style.houses < 0.3 else _TOWN
    border = _BORDERS[int(rng.choice(len(_BORDERS), p=shares))]
    tall, thick = hedge * rng.uniform(0.85, 1.15), rng.uniform(0.6, 1.3)
    growing = (Zone.GRASS,)
    fence = furniture.fence(rng, _STRETCH, border) if isinstance(border, furniture.Fence) else None
    for s in np.arange(span[0], span[1] - 1.5, _STRETCH) + _STRETCH / 2:
        if border == _HEDGE:
            piece = plants.hedge(rng, _STRETCH, tall * rng.uniform(0.9, 1.1), thick)
            site.put(piece, s, edge.at(line + thick / 2), zones=growing)
        elif border == _SHRUBS:
            piece = plants.thicket(rng, thick * 1.3, tall * rng.uniform(0.8, 2.2), 9)
            site.put(piece, s, edge.at(line + thick * 1.4), zones=growing)
        elif fence is not None:
            site.put(fence, s, edge.at(line), zones=growing)
    depth = max(side.front - 2.0, 0.5)
    area = (span[1] - span[0]) * depth * style.green
    for _ in range(rng.poisson(min(area / 60, 5))):
        s, t = rng.uniform(*span), edge.at(line + 1.2 + rng.uniform(0, depth))
        site.put(plants.tree(rng, site.leaves(s, t)), s, t, room=1.0, zones=growing)
    for _ in range(rng.poisson(min(area / 25, 8))):
        s, t = rng.uniform(*span), edge.at(line + 1.0 + rng.uniform(0, depth))
        site.put(plants.bush(rng, int(rng.integers(8, 20))), s, t, room=0.9, zones=growing)
