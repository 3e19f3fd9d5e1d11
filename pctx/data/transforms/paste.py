"""InstancePaste: objects of rare classes, put onto free ground of another scan.

n points, m points of one object or of some objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from pctx.data.transforms.arguments import check_counts, check_ids, check_least, check_share
from pctx.data.transforms.mixing import is_any, rows_of, turned, union
from pctx.data.transforms.protocol import Mix
from pctx.geometry.points import PointCloud

OBJECT_CELL = 0.5
"""Metres: points of a class in touching cells of this edge are one object."""
MIN_GROUND = 5
"""Points of ground below which a place has no known height."""


@dataclass(frozen=True, kw_only=True)
class InstancePaste(Mix):
    """Put objects of the other scan onto free ground of the cloud.

    An object keeps its distance from the sensor, and so its density: it is turned about the
    vertical axis by a uniform angle, until it stands on ground, touches nothing, and covers
    no other object's place. It is raised or lowered to stand above the ground as it did.

    Objects are told apart by instance numbers, and those without one by gaps of half a metre.

    Attributes:
        classes: raw ids of the objects; none pastes nothing.
        ground: raw ids of what they may stand on; points of all other ids are in the way.
        max_objects: pasted at most; which ones is drawn.
        min_points: of an object worth pasting.
        tries: angles tried for an object before it is given up.
        margin: metres kept free around an object.
        probability: of pasting at all.
    """

    classes: Sequence[int] = ()
    ground: Sequence[int] = ()
    max_objects: int = 5
    min_points: int = 20
    tries: int = 10
    margin: float = 0.3
    probability: float = 0.5

    def __post_init__(self) -> None:
        check_ids(self, classes=self.classes, ground=self.ground)
        check_counts(self, 0, max_objects=self.max_objects)
        check_counts(self, 1, min_points=self.min_points, tries=self.tries)
        check_least(self, margin=self.margin)
        check_share(self, probability=self.probability)

    def __call__(
        self, cloud: PointCloud, other: PointCloud, rng: np.random.Generator
    ) -> PointCloud:
        """Give the cloud with the objects that found a place; without labels it stays as it is."""
        if cloud.label is None or other.label is None or not len(self.classes):
            return cloud
        place, source = _Ground.of(cloud, self.ground), _Ground.of(other, self.ground)
        objects = [
            rows for rows in find_objects(other, self.classes) if len(rows) >= self.min_points
        ]
        pasted: list[PointCloud] = []
        for number in rng.permutation(len(objects))[: self.max_objects].tolist():
            found = self._placed(other.select(objects[number]), place, source, pasted, rng)
            if found is not None:
                pasted.append(found)
        return union(cloud, *pasted)

    def _placed(
        self,
        thing: PointCloud,
        place: _Ground,
        source: _Ground,
        pasted: Sequence[PointCloud],
        rng: np.random.Generator,
    ) -> PointCloud | None:
        """Turn an object until it stands free; None where no angle will do."""
        low, high = thing.coord.min(axis=0), thing.coord.max(axis=0)
        low[:2] -= self.margin
        high[:2] += self.margin
        stood = _level(source, _within(source.coord, 0, low, high))
        rise = 0.0 if stood is None else max(0.0, float(low[2]) - stood)
        near = place.ring(low, high)
        for angle in rng.uniform(-np.pi, np.pi, size=self.tries).tolist():
            # Turned back, the surroundings meet the upright box of the object as it was scanned.
            inside = _within(near.coord, angle, low, high)
            level = _level(near, inside)
            if level is None:
                continue
            shift = np.float32(level + rise - float(low[2]))
            top = float(high[2]) + float(shift) + self.margin
            if (near.coord[inside[~near.ground[inside]], 2] <= top).any():
                continue
            if any(len(_within(p.coord, angle, low, high)) for p in pasted):
                continue
            result = turned(thing, angle)
            return replace(result, coord=result.coord + np.array([0, 0, shift], np.float32))
        return None


@dataclass(frozen=True, kw_only=True, eq=False)
class _Ground:
    """A scan's finite points, and which of them are ground."""

    coord: np.ndarray  # (n, 3)
    ground: np.ndarray  # (n,) bool
    distance: np.ndarray  # (n,) horizontal metres from the origin

    @classmethod
    def of(cls, cloud: PointCloud, ground: Sequence[int]) -> _Ground:
        assert cloud.label is not None
        coord, on = cloud.coord, is_any(cloud.label, ground)
        if not np.isfinite(coord).all():
            coord, on = coord[cloud.finite], on[cloud.finite]
        x, y, _ = coord.T
        with np.errstate(over="ignore"):
            return cls(coord=coord, ground=on, distance=np.sqrt(x * x + y * y))

    def ring(self, low: np.ndarray, high: np.ndarray) -> _Ground:
        """Keep what a box (3,) sweeps over as it turns about the origin."""
        nearest = np.maximum(np.maximum(low, -high), 0)[:2]
        farthest = np.maximum(np.abs(low), np.abs(high))[:2]
        swept = (self.distance >= np.hypot(*nearest)) & (self.distance <= np.hypot(*farthest))
        rows = np.flatnonzero(swept)
        coord = self.coord.take(rows, axis=0)
        return _Ground(coord=coord, ground=self.ground[rows], distance=self.distance[rows])


def find_objects(cloud: PointCloud, classes: Sequence[int]) -> list[np.ndarray]:
    """Give the rows of each object of some raw ids: one instance, or points without a gap."""
    assert cloud.label is not None
    rows = rows_of(cloud, classes)
    if not len(rows):
        return []
    part = np.zeros(len(rows), np.int64)
    if cloud.instance is not None:
        part = cloud.instance[rows].astype(np.int64)
    single = np.flatnonzero(part <= 0)
    if len(single):
        part[single] = -1 - connected(cloud.coord[rows[single], :2], OBJECT_CELL)
    # Instances of two classes may have one number.
    order = np.lexsort((part, cloud.label[rows]))
    rows, part, label = rows[order], part[order], cloud.label[rows[order]]
    new = np.flatnonzero((np.diff(part) != 0) | (np.diff(label) != 0)) + 1
    starts = [0, *new.tolist(), len(rows)]
    return [np.sort(rows[a:b]) for a, b in pairwise(starts) if b > a]


def connected(xy: np.ndarray, cell: float) -> np.ndarray:
    """Number the groups of points (m, 2) whose cells touch, corners too: (m,) from 0."""
    grid = np.floor(xy.astype(np.float64) / cell).clip(-(2.0**30), 2.0**30).astype(np.int64)
    cells, cell_of = np.unique(grid[:, 0] * 2**32 + grid[:, 1], return_inverse=True)
    pairs = []
    for dx, dy in ((0, 1), (1, -1), (1, 0), (1, 1)):
        wanted = cells + dx * 2**32 + dy
        found = np.minimum(np.searchsorted(cells, wanted), len(cells) - 1)
        there = np.flatnonzero(cells[found] == wanted)
        pairs.append(np.stack([there, found[there]]))
    first, second = np.concatenate(pairs, axis=1)
    size = (len(cells), len(cells))
    graph = coo_matrix((np.ones(len(first), dtype=np.int8), (first, second)), shape=size)
    number: np.ndarray = connected_components(graph, directed=False)[1]
    return number[cell_of.reshape(-1)].astype(np.int64)


def _within(coord: np.ndarray, angle: float, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Give the rows of (n, 3) that lie between two corners in x and y, turned back by `angle`."""
    c, s = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    x, y, _ = coord.T
    turned_x = c * x + s * y
    rows = np.flatnonzero((turned_x >= low[0]) & (turned_x <= high[0]))
    turned_y = c * y[rows] - s * x[rows]
    kept: np.ndarray = rows[(turned_y >= low[1]) & (turned_y <= high[1])]
    return kept


def _level(scan: _Ground, rows: np.ndarray) -> float | None:
    """Give the median height of the ground among some rows; None where there is too little."""
    z = scan.coord[rows[scan.ground[rows]], 2]
    return float(np.median(z)) if len(z) >= MIN_GROUND else None
