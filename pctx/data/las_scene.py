"""LasScene: a LAS or LAZ file of any size, its points sorted by cells on disk.

n points of r bytes, k cells.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pctx.data.io import las_points
from pctx.data.io.atomic import replacing
from pctx.data.io.columns import cloud_from_columns
from pctx.data.io.las_file import LasFile, open_las_file
from pctx.data.median import Median
from pctx.data.scenes import middle_of, with_fields
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
from pctx.geometry.points import FLOAT32_SAFE_EXTENT, PointCloud

BLOCK = 1_000_000
"""Points of the file in memory at a time."""
_LARGEST = ("red", "green", "blue", "nir")
"""Fields that are read by the largest value in the whole file."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Placed:
    """Where the points of a block of a file are among the sorted ones.

    Attributes:
        rows: (j,) rows of the block by cell; points without a cell are left out.
        runs: of these, (start among all sorted points, how many).
    """

    rows: np.ndarray
    runs: tuple[tuple[int, int], ...]


class Placer:
    """Says block by block, in the file's order, where its points are among the sorted ones.

    Attributes:
        low: (3,) least of the points placed so far, metres in the file's frame.
        high: (3,) largest.
    """

    def __init__(self, cells: Cells, skip: Collection[int]) -> None:
        self.cells, self.skip = cells, skip
        self.low, self.high = np.full(3, np.inf), np.full(3, -np.inf)
        self._next = cells.starts[:-1].copy()

    def __call__(self, block: LasFile) -> Placed:
        """Place the next block."""
        rows, coord = _with_cell(block, self.cells.edge, self.cells.anchor, self.skip)
        keys = cell_keys(coord, self.cells.edge, self.cells.anchor)
        if len(rows):  # strays have no cell
            cells = self.cells.keys
            near = ((keys >= cells.min(axis=0)) & (keys <= cells.max(axis=0))).all(axis=1)
            rows, coord, keys = rows[near], coord[near], keys[near]
        if not len(rows):
            return Placed(rows=rows, runs=())
        self.low = np.minimum(self.low, coord.min(axis=0))
        self.high = np.maximum(self.high, coord.max(axis=0))
        rank = self.cells.rank(keys)
        order = np.argsort(rank, kind="stable")
        found, counts = np.unique(rank, return_counts=True)
        starts = self._next[found]
        self._next[found] += counts
        runs = tuple(zip(starts.tolist(), counts.tolist(), strict=True))
        return Placed(rows=rows[order], runs=runs)


@dataclass(frozen=True, kw_only=True, eq=False)
class LasScene:
    """A file whose points can be read box by box. Points are numbered by their sorted place.

    Attributes:
        front: the file without its points.
        folder: where the sorted points lie, `points.bin`.
        cells: of the points, around the first of them.
        origin: (3,) float64, that of the cloud.
        anchor: (3,) float64, where a voxel begins, relative to the origin: as `anchor_of` has it.
        low: (3,) least of all points in the cells (strays are in none), relative to the origin.
        high: (3,) largest.
        witness: (1, r) a point that has the largest colours and nir of all: with it a part of the
            file is read as the whole would be.
        fields: of the features that are read.
        parts: whether there is more than one box.
    """

    front: LasFile
    folder: Path
    cells: Cells
    origin: np.ndarray
    anchor: np.ndarray
    low: np.ndarray
    high: np.ndarray
    witness: np.ndarray
    fields: tuple[str, ...]
    parts: bool = True

    @property
    def middle(self) -> np.ndarray | None:
        """(3,): the middle of the extent and the lowest z; None where one box holds all."""
        return middle_of(self.low, self.high) if self.parts else None

    @property
    def local(self) -> Cells:
        """The cells relative to the origin."""
        return replace(self.cells, anchor=self.cells.anchor - self.origin)

    def boxes(self, tile: float | None, limits: Limits, overlap: float) -> list[Box]:
        """Part the file into squares of `tile` metres, or into as few boxes as the limits allow."""
        if not len(self.cells.keys):
            return []
        if tile is not None:
            return square_boxes(self.local, tile)
        return balanced_boxes(self.local, limits, overlap)

    def load(self, box: Box) -> tuple[PointCloud, np.ndarray]:
        """Give the points in a box by cell, and their numbers."""
        cells, length = self.local, self.front.points.shape[1]
        ranges = list(cells.runs(cells.touching(box)))
        with (self.folder / "points.bin").open("rb") as stream:
            parts = [self.witness]
            for start, stop in ranges:
                stream.seek(start * length)
                parts.append(np.fromfile(stream, np.uint8, (stop - start) * length))
        raw = np.concatenate([part.reshape(-1, length) for part in parts])
        numbers = np.concatenate([np.arange(a, b) for a, b in [(0, 1), *ranges]])
        file = replace(self.front, points=raw)
        xyz = las_points.positions(file)
        coord = (xyz - self.origin).astype(np.float32)
        cloud = with_fields(cloud_from_columns(las_points.columns(file), xyz), self.fields)
        inside = box.holds(coord)
        inside[0] = False
        cloud = replace(cloud, coord=coord, origin=self.origin).select(inside)
        return cloud, numbers[inside]

    def halves(self, box: Box) -> tuple[Box, ...]:
        """Cut a box in two; () where it is one cell."""
        return halves(self.local, box)


def sort_las(
    source: Path,
    folder: Path,
    *,
    grid_size: float,
    tile: float | None,
    fields: Collection[str],
    skip: Collection[int] = (),
) -> LasScene:
    """Read a file twice and leave its points sorted by cell in a folder, in little memory.

    Raises:
        ReadError: it is no LAS or LAZ file, or holds less than its header says.
    """
    with open_las_file(source) as (front, _, blocks):
        survey = _Survey(front, grid_size, tile, skip)
        for block in _files(front, blocks(BLOCK)):
            survey.add(block)
        cells = _without_strays(survey.cells, grid_size)
        placer = Placer(cells, skip)
        with (folder / "points.bin").open("wb") as stream:
            for block in _files(front, blocks(BLOCK)):
                placed, first = placer(block), 0
                for start, count in placed.runs:
                    stream.seek(start * block.points.shape[1])
                    stream.write(block.points[placed.rows[first : first + count]].data)
                    first += count
                for median, values in zip(survey.medians, _integers(block), strict=True):
                    median.refine(values)
    scales, offsets = front.scales_and_offsets
    middle = np.array([median.value for median in survey.medians]) * scales + offsets
    far = np.abs(middle).max() > FLOAT32_SAFE_EXTENT
    origin = np.round(middle) if far else np.zeros(3)
    with replacing(folder / "cells.npz", overwrite=True) as beside:
        np.savez(
            beside,
            low=placer.low - origin,
            high=placer.high - origin,
            origin=origin,
            voxel_anchor=np.round(middle) - origin,
            edge=cells.edge,
            anchor=cells.anchor,
            keys=cells.keys,
            points=cells.points,
            voxels=cells.voxels,
            witness=survey.witness,
        )
    return sorted_las(source, folder, fields)


def sorted_las(source: Path, folder: Path, fields: Collection[str]) -> LasScene:
    """Find what `sort_las` left in a folder.

    Raises:
        FileNotFoundError: it has not been there, or not to its end.
    """
    with np.load(folder / "cells.npz") as kept, open_las_file(source) as (front, _, _):
        return LasScene(
            front=front,
            folder=folder,
            cells=Cells(
                edge=float(kept["edge"]),
                anchor=kept["anchor"],
                keys=kept["keys"],
                points=kept["points"],
                voxels=kept["voxels"],
            ),
            origin=kept["origin"],
            anchor=kept["voxel_anchor"],
            low=kept["low"],
            high=kept["high"],
            witness=kept["witness"],
            fields=tuple(fields),
        )


class _Survey:
    """What the first pass over a file finds out."""

    def __init__(
        self, front: LasFile, grid_size: float, tile: float | None, skip: Collection[int]
    ) -> None:
        self.grid_size, self.tile, self.skip = grid_size, tile, skip
        self.edge = edge = cell_edge(grid_size, tile)
        self.num_points = 0
        self.medians = [Median() for _ in range(3)]
        self.witness = np.zeros((1, front.points.shape[1]), np.uint8)
        self.cells = Cells(
            edge=edge,
            anchor=np.zeros(3),
            keys=np.zeros((0, 3), np.int64),
            points=np.zeros(0, np.int64),
            voxels=np.zeros(0, np.int64),
        )

    def add(self, block: LasFile) -> None:
        """Look at the next block."""
        if self.num_points == 0:
            xyz = las_points.positions(block)
            place = np.nan_to_num(np.median(xyz, axis=0), posinf=0, neginf=0)
            # The median of all, around which a cloud in memory is cut, is known after two passes.
            anchor = cell_anchor(place, self.tile)
            self.cells = replace(self.cells, anchor=anchor)
        self.num_points += len(block.points)
        for median, values in zip(self.medians, _integers(block), strict=True):
            median.count(values)
        las_points.keep_largest(block, self.witness, _LARGEST)
        rows, coord = _with_cell(block, self.edge, self.cells.anchor, self.skip)
        if len(rows):
            found, _ = sort_cells(coord, self.edge, self.cells.anchor, self.grid_size)
            self.cells = self.cells.merged(found)


def _without_strays(cells: Cells, grid_size: float) -> Cells:
    """Leave out the cells that are far from all others, as `CloudScene` does."""
    if not len(cells.keys):
        return cells
    near = near_bulk(cells.keys, STRAY_VOXELS * grid_size / cells.edge, cells.points)
    keys, points, voxels = cells.keys[near], cells.points[near], cells.voxels[near]
    tell(int(cells.points.sum() - points.sum()))
    return replace(cells, keys=keys, points=points, voxels=voxels)


def _integers(block: LasFile) -> tuple[np.ndarray, ...]:
    return tuple(las_points.integers(block, axis).astype(np.int64) for axis in "XYZ")


def _with_cell(
    block: LasFile, edge: float, anchor: np.ndarray, skip: Collection[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Give the rows of a block that have a cell, and their positions: finite, near, not skipped."""
    xyz = las_points.positions(block)
    good = np.isfinite(xyz).all(axis=1)
    if skip:
        good &= ~np.isin(las_points.classes(block), list(skip))
    good[good] = in_range(cell_keys(xyz[good], edge, anchor))
    return np.flatnonzero(good), xyz[good]


def _files(front: LasFile, blocks: Iterator[np.ndarray]) -> Iterator[LasFile]:
    return (replace(front, points=points) for points in blocks)
