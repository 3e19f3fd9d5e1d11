"""Scene: points that are looked at box by box, of a cloud in memory or of a file on disk.

n points.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Protocol

import numpy as np

from pctx.data.prepare import anchor_of
from pctx.data.strays import STRAY_VOXELS, near_bulk, tell
from pctx.data.tiling import (
    Box,
    Cells,
    Limits,
    balanced_boxes,
    cell_anchor,
    cell_edge,
    cell_keys,
    halves,
    in_range,
    sort_cells,
    square_boxes,
)
from pctx.geometry.points import PointCloud


class Scene(Protocol):
    """Points in boxes."""

    @property
    def middle(self) -> np.ndarray | None:
        """(3,): what `FeatureSpec.extract` calls so; None where a box holds all points."""

    @property
    def anchor(self) -> np.ndarray:
        """(3,): where a voxel begins, relative to the origin, metres."""

    def load(self, box: Box) -> tuple[PointCloud, np.ndarray]:
        """Give the points in a box, and the numbers (n,) by which results name them."""

    def halves(self, box: Box) -> tuple[Box, ...]:
        """Cut a box in two; () where it cannot be."""


class CloudScene:
    """A cloud in memory. Points are numbered by their rows.

    Args:
        cloud: all points.
        rows: those that count, ascending; finite. Strays among them are left out.
        fields: of the features that are read; other columns are left behind.
        grid_size: edge of a voxel, metres.
        tile: edge of square tiles in metres; None for as few boxes as the limits allow.
        overlap: metres that a tile sees around itself.
        limits: of a tile.
    """

    def __init__(
        self,
        cloud: PointCloud,
        rows: np.ndarray,
        *,
        fields: Collection[str],
        grid_size: float,
        tile: float | None,
        overlap: float,
        limits: Limits,
    ) -> None:
        self.cloud = with_fields(cloud, fields)
        self.grid_size, self.tile = grid_size, tile
        self.anchor = anchor_of(cloud.coord)
        self._anchor = cell_anchor(cloud.origin + self.anchor, tile) - cloud.origin
        rows = self._without_strays(rows)
        coord = cloud.coord[rows]
        extent = _extent(coord)
        self._sorted: tuple[Cells, np.ndarray] | None = None
        self.rows = rows
        self.middle: np.ndarray | None = None
        self.boxes = [Box.everything()] if len(rows) else []
        few = len(rows) <= min(limits.voxels, limits.points) and extent <= limits.extent
        if len(rows) and not (few and tile is None):
            cells, _ = self._sort()
            if tile is not None:
                self.boxes = square_boxes(cells, tile)
            else:
                self.boxes = balanced_boxes(cells, limits, overlap)
            if len(self.boxes) > 1:
                self.middle = middle_of(coord.min(axis=0), coord.max(axis=0))

    def load(self, box: Box) -> tuple[PointCloud, np.ndarray]:
        """Give the points in a box, in their order, and their rows."""
        rows = self.rows
        if box.has_faces:
            cells, order = self._sort()
            ranges = list(cells.runs(cells.touching(box)))
            picked = [order[start:stop] for start, stop in ranges]
            rows = self.rows[np.sort(np.concatenate([np.zeros(0, np.int64), *picked]))]
            rows = rows[box.holds(self.cloud.coord[rows])]
        whole = len(rows) == len(self.cloud)
        return self.cloud if whole else self.cloud.select(rows), rows

    def halves(self, box: Box) -> tuple[Box, ...]:
        """Cut a box in two; () where it is one cell."""
        return halves(self._sort()[0], box)

    def _without_strays(self, rows: np.ndarray) -> np.ndarray:
        """Leave out the rows that are out of range, or far from all others."""
        coord = self.cloud.coord[rows]
        if not _extent(coord) > STRAY_VOXELS * self.grid_size:
            return rows
        edge = cell_edge(self.grid_size, self.tile)
        keys = cell_keys(coord, edge, self._anchor)
        near = in_range(keys)
        if near.any():
            near[near] = near_bulk(keys[near], STRAY_VOXELS * self.grid_size / edge)
        tell(len(rows) - int(near.sum()))
        return rows[near]

    def _sort(self) -> tuple[Cells, np.ndarray]:
        if self._sorted is None:
            edge = cell_edge(self.grid_size, self.tile)
            coord = self.cloud.coord[self.rows]
            self._sorted = sort_cells(coord, edge, self._anchor, self.grid_size)
        return self._sorted


def _extent(coord: np.ndarray) -> float:
    """Give the longest side of the box of points (n, 3), metres; 0 of none."""
    if not len(coord):
        return 0.0
    return float((coord.max(axis=0).astype(np.float64) - coord.min(axis=0)).max())


def with_fields(cloud: PointCloud, fields: Collection[str]) -> PointCloud:
    """Leave behind the labels, and the extra columns that no feature of these names reads."""
    wanted = {*fields, *(("return_number", "number_of_returns") if "returns" in fields else ())}
    extra = {name: column for name, column in cloud.extra.items() if name in wanted}
    return replace(cloud, label=None, instance=None, extra=extra)


def middle_of(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Give (3,) float32: the middle of an extent in x and y, and its lowest z."""
    middle = [(low[0] + high[0]) / 2, (low[1] + high[1]) / 2, low[2]]
    return np.array(middle, dtype=np.float32)
