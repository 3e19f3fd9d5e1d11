"""Tiles: boxes that part a cloud, sized by what memory holds, and how their results blend.

n points, k cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

CELL_VOXELS = 25
"""Voxels along the edge of a cell, the unit in which boxes are cut: half the usual overlap."""
_FILLS = (0.95, 0.9, 0.8, 0.75, np.inf)
"""Parts of what a box may hold that are tried: what a cut adds in surroundings is known after it.
Infinite halves whatever is too large."""
MAX_CELL = 2**20
"""Cells from the origin along an axis beyond which a point is out of range."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Box:
    """A part of space: low <= position < high. Infinite where nothing was cut.

    Attributes:
        low: (3,) float64, metres, its lowest corner.
        high: (3,) float64, metres, the opposite one.
    """

    low: np.ndarray
    high: np.ndarray

    @classmethod
    def everything(cls) -> Box:
        """Give the box that has no faces."""
        return cls(low=np.full(3, -np.inf), high=np.full(3, np.inf))

    @property
    def has_faces(self) -> bool:
        """Whether something was cut."""
        return bool(np.isfinite([self.low, self.high]).any())

    def widened(self, by: float | np.ndarray) -> Box:
        """Move all faces outwards by so many metres, one number or one an axis."""
        return Box(low=self.low - by, high=self.high + by)

    def holds(self, coord: np.ndarray) -> np.ndarray:
        """Tell (n,) which points (n, 3) lie in the box."""
        inside = np.logical_and(coord >= self.low, coord < self.high)
        return np.asarray(inside.all(axis=1))

    def weight(self, coord: np.ndarray, blend: float) -> np.ndarray:
        """Give (n,) float32 in [0, 1]: how much this box has to say of each point (n, 3).

        It falls from 1 to 0 in a straight line from `blend` metres inside a face to `blend` metres
        outside, and the falls of an edge are multiplied. Of two boxes with a face in common the
        weights add up to 1; with blend 0 a point is of one box alone.
        """
        if blend == 0:
            return self.holds(coord).astype(np.float32)
        weight = np.ones(len(coord))
        for axis in range(3):
            for face, inwards in ((self.low[axis], 1), (self.high[axis], -1)):
                if np.isfinite(face):
                    inside = (coord[:, axis].astype(np.float64) - face) * inwards
                    weight *= np.clip((inside + blend) / (2 * blend), 0, 1)
        return weight.astype(np.float32)


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """The occupied cells of a cloud, sorted by x, then y, then z.

    Attributes:
        edge: metres.
        anchor: (3,) float64, where cell (0, 0, 0) begins, metres.
        keys: (k, 3) int64, number of each cell along the axes.
        points: (k,) int64, points in each.
        voxels: (k,) int64, voxels in each, or a few more.
    """

    edge: float
    anchor: np.ndarray
    keys: np.ndarray
    points: np.ndarray
    voxels: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        """(k + 1,) int64: where each cell begins among points sorted by cell."""
        return np.concatenate([[0], np.cumsum(self.points)])

    def touching(self, box: Box) -> np.ndarray:
        """Tell (k,) which cells have something in common with a box."""
        begin = self.keys * self.edge + self.anchor
        return ((begin + self.edge > box.low) & (begin < box.high)).all(axis=1)

    def inside(self, box: Box) -> np.ndarray:
        """Tell (k,) which cells have their middle in a box. Boxes that part space part cells."""
        return box.holds((self.keys + 0.5) * self.edge + self.anchor)

    def runs(self, chosen: np.ndarray) -> Iterator[tuple[int, int]]:
        """Give the ranges of sorted points that the chosen cells (k,) fill, neighbours joined."""
        starts = self.starts
        edges = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]])))
        for first, end in edges.reshape(-1, 2).tolist():
            yield int(starts[first]), int(starts[end])

    def chosen(self, mask: np.ndarray) -> Cells:
        """Cut all columns by a mask (k,)."""
        return replace(
            self, keys=self.keys[mask], points=self.points[mask], voxels=self.voxels[mask]
        )

    def merged(self, other: Cells) -> Cells:
        """Add the counts of other points, counted with the same edge and anchor."""
        keys = np.concatenate([self.keys, other.keys])
        _, first, of = np.unique(_packed(keys), return_index=True, return_inverse=True)
        points, voxels = (
            np.bincount(of.reshape(-1), weights=np.concatenate(counts), minlength=len(first))
            for counts in ((self.points, other.points), (self.voxels, other.voxels))
        )
        return replace(
            self,
            keys=keys[first],
            points=points.astype(np.int64),
            voxels=voxels.astype(np.int64),
        )

    def rank(self, keys: np.ndarray) -> np.ndarray:
        """Give (j,) the place of each of some cells (j, 3), which must be among these."""
        return np.searchsorted(_packed(self.keys), _packed(keys))


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a tile may hold, its surroundings counted: voxels, points, metres along an axis."""

    voxels: int
    points: int
    extent: float


def cell_keys(coord: np.ndarray, edge: float, anchor: np.ndarray) -> np.ndarray:
    """Number the cells (n, 3) int64 of points; MAX_CELL or more from 0 where out of range."""
    cell = np.floor((coord - anchor) / edge)
    return cell.clip(-MAX_CELL, MAX_CELL).astype(np.int64)


def in_range(keys: np.ndarray) -> np.ndarray:
    """Tell (n,) which cells are near enough to be numbered."""
    return (np.abs(keys) < MAX_CELL).all(axis=1)


def sort_cells(
    coord: np.ndarray, edge: float, anchor: np.ndarray, grid_size: float
) -> tuple[Cells, np.ndarray]:
    """Sort points into cells.

    Args:
        coord: (n, 3) finite, in range, metres.
        edge: of a cell.
        anchor: (3,), where cell (0, 0, 0) begins.
        grid_size: edge of a voxel, to count voxels.

    Returns:
        The cells, and (n,) the points' order by cell, stable within one.
    """
    keys = cell_keys(coord, edge, anchor)
    packed = _packed(keys)
    order = np.argsort(packed, kind="stable")
    ascending = packed[order]
    head = np.flatnonzero(np.diff(ascending, prepend=-1))
    count = np.diff(np.append(head, len(coord)))
    cell_of = np.repeat(np.arange(len(head)), count)
    # The voxels in a cell by number, and cells by rank: both fit in one key.
    inner = np.floor((coord - (keys * edge + anchor)) / grid_size).clip(0, 2**12 - 1)
    x, y, z = inner.astype(np.int64)[order].T
    distinct = np.unique((cell_of << 36) | (x << 24) | (y << 12) | z)
    return Cells(
        edge=edge,
        anchor=anchor,
        keys=keys[order[head]],
        points=count,
        voxels=np.bincount(distinct >> 36, minlength=len(head)),
    ), order


def cell_edge(grid_size: float, tile: float | None) -> float:
    """Give the edge of a cell in metres: 25 voxels, or up to twice that where tiles are given."""
    edge = CELL_VOXELS * grid_size
    if tile is None or tile <= edge:
        return tile or edge
    return tile / 2 ** int(np.log2(tile / edge))


def cell_anchor(place: np.ndarray, tile: float | None) -> np.ndarray:
    """Give (3,): where a cell near a place begins.

    Square tiles begin at whole multiples of their edge, so that those of a file are the same
    whatever origin it is read with, and meet those of its neighbours. Other cells begin at a whole
    metre: a cloud moved by whole metres is cut where it was.
    """
    step = tile or 1.0
    anchor: np.ndarray = np.round(place / step) * step
    return anchor


def square_boxes(cells: Cells, tile: float) -> list[Box]:
    """Part the cells into squares of `tile` metres in x and y, a multiple of their edge."""
    squares = np.unique(cells.keys[:, :2] // round(tile / cells.edge), axis=0)
    return [
        Box(
            low=np.array([*(square * tile + cells.anchor[:2]), -np.inf]),
            high=np.array([*((square + 1) * tile + cells.anchor[:2]), np.inf]),
        )
        for square in squares
    ]


def balanced_boxes(cells: Cells, limits: Limits, overlap: float) -> list[Box]:
    """Cut all space until each box, with `overlap` metres around it, is within the limits.

    Of several ways to cut it gives the one of the fewest boxes. These are nearly full, so that
    the largest, and the memory it takes, hardly depends on how many there are. A box that is no
    wider than twice the overlap is not cut for its voxels: it would see ever the same surroundings.
    """
    return min((_cut_boxes(cells, limits, overlap, fill) for fill in _FILLS), key=len)


def halves(cells: Cells, box: Box, max_extent: float = np.inf) -> tuple[Box, ...]:
    """Cut a box across its longest axis, where half of its voxels are on either side.

    Where it is longer than `max_extent` it is cut in the middle: a far stray point then ends in a
    box of its own.

    Returns:
        Two boxes; none where there is one cell only.
    """
    return _cut(cells, box, max_extent, 1 / 2)


def _cut_boxes(cells: Cells, limits: Limits, overlap: float, fill: float) -> list[Box]:
    """Cut boxes into as many equal ones as would each be `fill` of what is allowed.

    An odd number is halved unequally: of five parts two lie on one side, three on the other.
    """
    done: list[Box] = []
    pending = [(Box.everything(), cells)]
    while pending:
        box, near = pending.pop()
        near = near.chosen(near.touching(box.widened(overlap)))
        parts: tuple[Box, ...] = ()
        if (load := _load(near, box, limits, overlap)) > 1:
            count = max(int(np.ceil(load / fill)), 2) if np.isfinite(load) else 2
            parts = _cut(near, box, limits.extent, count // 2 / count)
        if not parts:
            done.append(box)
        pending += [(part, near) for part in reversed(parts)]
    return done


def _cut(cells: Cells, box: Box, max_extent: float, share: float) -> tuple[Box, ...]:
    """Cut a box across its longest axis, where `share` of its voxels are on the lower side."""
    core = cells.inside(box)
    keys = cells.keys[core]
    extent = np.ptp(keys, axis=0) if len(keys) else np.zeros(3)
    axis = int(np.argmax(extent))
    if extent[axis] == 0:
        return ()
    along, low, high = keys[:, axis], keys[:, axis].min(), keys[:, axis].max()
    if (extent[axis] + 1) * cells.edge > max_extent:
        cut = (low + high + 1) // 2
    else:
        order = np.argsort(along, kind="stable")
        summed = np.cumsum(cells.voxels[core][order])
        cut = along[order][np.searchsorted(summed, summed[-1] * share)]
    face = min(max(cut, low + 1), high) * cells.edge + cells.anchor[axis]
    first_high, second_low = box.high.copy(), box.low.copy()
    first_high[axis] = second_low[axis] = face
    return Box(low=box.low, high=first_high), Box(low=second_low, high=box.high)


def _load(seen: Cells, box: Box, limits: Limits, overlap: float) -> float:
    """Give how many times what is allowed a box is that sees these cells; infinite if too wide."""
    if not len(seen.keys):
        return 0.0
    core = seen.keys[seen.inside(box)]
    width = float(np.ptp(core, axis=0).max() + 1) * seen.edge if len(core) else 0.0
    if width > limits.extent:
        return np.inf
    voxels = seen.voxels.sum() / limits.voxels if width > 2 * overlap else 0.0
    return float(max(voxels, seen.points.sum() / limits.points))


def _packed(keys: np.ndarray) -> np.ndarray:
    x, y, z = (keys + MAX_CELL).T
    return (x << 42) | (y << 21) | z
