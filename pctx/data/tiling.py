"""Tiles: a cloud cut into pieces that fit in memory, each point in the core of one tile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True, eq=False)
class Tile:
    """Row numbers of a cloud.

    Attributes:
        core: rows whose result is read from this tile.
        rows: rows the model sees: the core and its surroundings, ascending.
    """

    core: np.ndarray
    rows: np.ndarray


def grid_tiles(coord: np.ndarray, size: float, overlap: float) -> Iterator[Tile]:
    """Cut into squares of `size` metres in x and y; each sees `overlap` metres around itself."""
    if not size > 0:
        raise ValueError(f"the tile size must be above 0 metres, found {size}")
    if not overlap >= 0:
        raise ValueError(f"the overlap must be 0 metres or more, found {overlap}")
    if not len(coord):
        return
    low = coord[:, :2].min(axis=0).astype(np.float64)
    cell = np.floor((coord[:, :2] - low) / size).astype(np.int64)
    _, tile_of = np.unique(cell, axis=0, return_inverse=True)
    order = np.argsort(tile_of.reshape(-1), kind="stable")
    starts = np.flatnonzero(np.diff(tile_of.reshape(-1)[order], prepend=-1))
    for core in np.split(order, starts[1:]):
        yield Tile(core=core, rows=_around(coord, core, overlap))


def balanced_tiles(
    coord: np.ndarray, max_points: int, max_extent: float, overlap: float
) -> Iterator[Tile]:
    """Halve until a tile has at most `max_points` core points and `max_extent` metres.

    The longest axis is cut at its median, or at its middle where the extent is what is too large
    (a far stray point then ends in a tile of its own). A small cloud is one tile.
    """
    if not len(coord):
        return
    pending = [np.arange(len(coord))]
    while pending:
        core = pending.pop()
        low, high = coord[core].min(axis=0), coord[core].max(axis=0)
        axis = int(np.argmax(high - low))
        extent = high[axis] - low[axis]
        if extent > max_extent:
            left = coord[core, axis] <= (low[axis] + high[axis]) / 2
        elif len(core) > max_points and extent > 0:
            left = coord[core, axis] < np.median(coord[core, axis])
            if not left.any():
                left = coord[core, axis] == low[axis]
        else:
            whole = len(core) == len(coord)
            yield Tile(core=core, rows=core if whole else _around(coord, core, overlap))
            continue
        pending += [core[~left], core[left]]


def _around(coord: np.ndarray, core: np.ndarray, overlap: float) -> np.ndarray:
    """Give the rows inside the core's bounding box widened by `overlap` metres."""
    inside = np.ones(len(coord), dtype=bool)
    for axis in range(3):
        low, high = coord[core, axis].min(), coord[core, axis].max()
        inside &= (coord[:, axis] >= low - overlap) & (coord[:, axis] <= high + overlap)
    return np.flatnonzero(inside)
