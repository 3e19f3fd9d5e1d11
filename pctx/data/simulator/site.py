"""Site: the notebook of a scene being built."""

from __future__ import annotations

import numpy as np

from pctx.data.simulator.layout import Plan, Style
from pctx.data.simulator.shapes import Shapes, join, place
from pctx.data.simulator.street import Side, Zone

OFF_ROAD = (Zone.WALK, Zone.GRASS, Zone.DRIVE)


class Site:
    """What has been put along a street so far, and which ground is taken.

    Attributes:
        plan: the street.
        rng: the source of all chance.
    """

    def __init__(self, plan: Plan, rng: np.random.Generator) -> None:
        self.plan = plan
        self.rng = rng
        self._parts: list[Shapes] = []
        self._places: list[tuple[float, float, float]] = []
        # The carrying car's place is taken.
        self._taken = [(0.0, 0.0, 3.0)]

    def chance(self, share: float) -> bool:
        """Toss a coin."""
        return bool(self.rng.random() < share)

    def put(
        self,
        shapes: Shapes,
        s: float,
        t: float,
        *,
        room: float = 0.0,
        claim: float = 0.0,
        zones: tuple[Zone, ...] = (),
        turn: float = 0.0,
    ) -> bool:
        """Stand shapes at (s, t), if they may stand there.

        Args:
            room: metres around it that must be free, and are taken then.
            claim: metres around it that are taken, free or not.
            zones: what the ground must be; any where empty.
            turn: radians from the street's direction.
        """
        street = self.plan.street
        if zones and street.zone(np.array([s]), np.array([t]))[0] not in zones:
            return False
        x, y, way = street.point(np.array([s]), np.array([t]))
        here, there = float(x[0]), float(y[0])
        if room and any(
            (here - a) ** 2 + (there - b) ** 2 < (room + r) ** 2 for a, b, r in self._taken
        ):
            return False
        if room or claim:
            self._taken.append((here, there, max(room, claim)))
        self._parts.append(shapes)
        self._places.append((here, there, float(way[0]) + turn))
        return True

    def build(self) -> Shapes:
        """Join all that was put, each on the ground beneath it, in the sensor's frame."""
        x, y, turn = np.array(self._places).T
        position = np.stack([x, y, self.plan.street.ground(x, y)], axis=1)
        return join([place(*each) for each in zip(self._parts, position, turn, strict=True)])

    def at_arm(self, s: float, left: bool, margin: float) -> bool:
        """Say whether a side road leaves within `margin` metres of s on that side."""
        street = self.plan.street
        road = street.crossing
        return road is not None and street.arms[not left] and abs(s - road[0]) < road[1] + margin

    def leaves(self, s: float, t: float) -> int:
        """Give the clusters of leaves a tree at (s, t) is worth: fewer farther away."""
        away = np.hypot(s, t - self.plan.street.offset)
        return int(np.clip(110 - 2.2 * away, 18, 96))


class Edge:
    """One side of a site's street, and the way from kerb distances to t."""

    def __init__(self, site: Site, left: bool) -> None:
        self.left = left
        self.sign = 1 if left else -1
        self.side: Side = site.plan.street.side(left)
        self.style: Style = site.plan.left if left else site.plan.right
        self.facing = 0.0 if left else np.pi
        """Turn of what looks to the street with its -y."""

    def at(self, d: float) -> float:
        """Give the t of a kerb distance."""
        return self.sign * (self.side.half + d)
