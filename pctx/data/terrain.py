"""The ground under a cloud, told from what stands on it, and heights above it.

n points, k cells of a map.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import ndimage

from pctx.data.surroundings import finite_axes, group_cells, spread

TERRAIN_CELL = 1.0
"""Metres: the edge of the square cells of the map of the ground."""
WINDOWS = ((3, 0.3), (5, 0.5), (9, 0.8), (17, 1.2), (33, 1.5))
"""Edge in cells of what is opened, and metres: what stands out by more is not ground."""
DEEPEST_PIT = 1.0
"""Metres below all cells around it that a cell may lie: deeper points are errors of the sensor."""
PLANES = (33, 9, 3)
"""Edges in cells over which planes are laid through ground; the smallest with any counts."""
TERRAIN_REACH = TERRAIN_CELL * (WINDOWS[-1][0] - 1 + PLANES[0] // 2 + 3)
"""Metres around a point within which others can change its height."""
_LEVEL = 0.2  # cells²: what holds a plane level
_BLOCK = 1024  # cells on edge of the maps that are worked on at a time


def height_above_terrain(coord: np.ndarray) -> np.ndarray:
    """Give (n,) float32 metres above the ground under each point; non-finite points get 0.

    The lowest points of cells of 1 m make a map; what a flat square of 3 to 33 m does not fit
    under is cut off by grey openings, and where that takes more than a tolerance, something
    stands on the ground: a bush, a tree, a house up to 33 m wide. Planes through what is left give
    the ground of each cell, and points between the middles of cells take it in between. (Zhang
    et al., A progressive morphological filter for removing nonground measurements from airborne
    LIDAR data, 2003.)
    """
    known, axes = finite_axes(coord)
    if not axes.size:
        return np.zeros(len(coord), dtype=np.float32)
    place = axes[:2].astype(np.float64) / TERRAIN_CELL
    whole = np.floor(place)
    cells = group_cells(whole)
    z = axes[2].astype(np.float32)
    lowest = np.minimum.reduceat(z[cells.order], cells.starts[:-1])
    corners = _corners(cells.grid_coord[:, :2], _terrain(cells.grid_coord[:, :2], lowest))
    # Between the middles of the four cells nearest to a point; of these, those that have points.
    aside = (place - whole).astype(np.float32) - np.float32(0.5)
    away = np.where(aside < 0, 0, 2)
    total, weights = np.zeros_like(z), np.zeros_like(z)
    share = np.abs(aside)
    for dx in (False, True):
        for dy in (False, True):
            ground = corners[cells.inverse, away[0] if dx else 1, away[1] if dy else 1]
            weight = (share[0] if dx else 1 - share[0]) * (share[1] if dy else 1 - share[1])
            weight = np.where(np.isnan(ground), np.float32(0), weight)
            total += np.where(np.isnan(ground), np.float32(0), ground) * weight
            weights += weight
    return spread([z - total / weights], known)[:, 0]


def _corners(cell: np.ndarray, ground: np.ndarray) -> np.ndarray:
    """Give (k, 3, 3) the ground of the cells around each cell, NaN where there are none."""
    key = cell[:, 0] * 2**32 + cell[:, 1]
    corners = np.full((len(key), 3, 3), np.nan, dtype=np.float32)
    for dx in (-1, 0, 1):
        for dy in (-1, 0, 1):
            wanted = key + (dx * 2**32 + dy)
            row = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
            here = key[row] == wanted
            corners[here, dx + 1, dy + 1] = ground[row[here]]
    return corners


def _terrain(cell: np.ndarray, lowest: np.ndarray) -> np.ndarray:
    """Give (k,) float32, the ground of each cell (k, 2), worked out on maps of a bounded size."""
    ground = np.empty_like(lowest)
    halo = round(TERRAIN_REACH / TERRAIN_CELL)
    for inside, around in _blocks(cell, halo):
        first = cell[around].min(axis=0)
        rows, columns = (cell[around] - first).T
        low = np.full((rows.max() + 1, columns.max() + 1), np.inf, dtype=np.float32)
        low[rows, columns] = lowest[around]
        rows, columns = (cell[inside] - first).T
        ground[inside] = _ground_of_map(low)[rows, columns]
    return ground


def _blocks(cell: np.ndarray, halo: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Give the cells of each square block, and those with what lies within a halo of them."""
    if np.ptp(cell, axis=0).max() < 2 * _BLOCK:
        everything = np.arange(len(cell))
        yield everything, everything
        return
    block = cell // _BLOCK
    key = block[:, 0] * 2**32 + block[:, 1]
    order = np.argsort(key, kind="stable")
    names, starts = np.unique(key[order], return_index=True)
    members = dict(zip(names.tolist(), np.split(order, starts[1:]), strict=True))
    for name, inside in members.items():
        beside = (name + dx * 2**32 + dy for dx in (-1, 0, 1) for dy in (-1, 0, 1))
        near = np.concatenate([members[other] for other in beside if other in members])
        low, high = cell[inside].min(axis=0) - halo, cell[inside].max(axis=0) + halo
        kept = ((cell[near] >= low) & (cell[near] <= high)).all(axis=1)
        yield inside, near[kept]


def _ground_of_map(low: np.ndarray) -> np.ndarray:
    """Give the height of the ground on a map of lowest points, inf where a cell has none."""
    known = np.isfinite(low)
    ring = np.ones((3, 3), dtype=bool)
    ring[1, 1] = False
    around = ndimage.minimum_filter(low, footprint=ring, mode="constant", cval=np.inf)
    low = np.where(np.isfinite(around) & (low < around - DEEPEST_PIT), around, low)
    before, ground = low, known.copy()
    for window, tolerance in WINDOWS:
        opened = ndimage.minimum_filter(low, window, mode="constant", cval=np.inf)
        opened[~known] = -np.inf
        opened = ndimage.maximum_filter(opened, window, mode="constant", cval=-np.inf)
        ground[known] &= before[known] - opened[known] < tolerance
        before = opened
    terrain = before
    for window in PLANES:
        share = _mean(ground, window)
        some = share > 0.5 / window**2
        terrain[some] = _planes(np.where(ground, low, 0.0), ground, share, window)[some]
    return terrain


def _planes(low: np.ndarray, ground: np.ndarray, share: np.ndarray, window: int) -> np.ndarray:
    """Give what planes through the ground of each window have in its middle, by least squares.

    Along what the ground of a window does not tell, they are level.
    """
    row, column = np.ogrid[: low.shape[0], : low.shape[1]]
    share = np.maximum(share, 1e-9)
    x, y, z = (_mean(values * ground, window) / share for values in (row, column, low))
    xx = _mean(row**2 * ground, window) / share - x**2 + _LEVEL
    yy = _mean(column**2 * ground, window) / share - y**2 + _LEVEL
    xy = _mean(row * column * ground, window) / share - x * y
    xz = _mean(row * low, window) / share - x * z
    yz = _mean(column * low, window) / share - y * z
    along_x, along_y = xz * yy - yz * xy, yz * xx - xz * xy
    plane: np.ndarray = z + (along_x * (row - x) + along_y * (column - y)) / (xx * yy - xy**2)
    return plane


def _mean(values: np.ndarray, window: int) -> np.ndarray:
    mean: np.ndarray = ndimage.uniform_filter(values.astype(np.float64), window, mode="constant")
    return mean
