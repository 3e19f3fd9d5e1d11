"""LAS 1.0 to 1.4 and LAZ: read into a cloud, and written as a copy with other classes.

A copy shares every byte with its source but the class of each point, the compressed form of the
points, and what says where the parts behind them begin. n points.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from pctx.data.io import copc, las_points
from pctx.data.io.columns import cloud_from_columns
from pctx.data.io.errors import ReadError
from pctx.data.io.labelled import Labelled
from pctx.data.io.las_file import (
    LAS_MAGIC,
    LasFile,
    open_las_file,
    read_las_file,
    read_las_front,
    write_las_file,
)
from pctx.data.io.las_new import NEW_FORMAT, new_las_file
from pctx.geometry.points import PointCloud

log = logging.getLogger(__name__)

BLOCK = 250_000
"""Points in memory at a time where a file is copied."""

MAX_DECODERS = 4
"""Processes that decompress one file."""

_ALWAYS = ("classification", "return_number", "number_of_returns")
_COLUMNS = MappingProxyType({"color": ("red", "green", "blue"), "intensity": ("intensity",)})
"""Columns of a sample that every one has, and by the field that is asked for."""


def read_las(path: Path) -> PointCloud:
    """Read every field of every point.

    The label is the classification, intensity is as stored, colours become 8-bit; what else a point
    has goes to `extra` under the names of `las_points.columns`. Colours and nir that are all 0 are
    absent: formats that hold them are also used where there are none.

    Raises:
        ReadError: it is no LAS or LAZ file, or holds less than its header says.
    """
    file = read_las_file(path)
    cloud = _cloud(path, file)
    length = file.points.shape[1]
    # Before version 1.3 nothing may follow the points.
    if not file.compressed and file.header[25] < 3 and len(file.tail) >= length:
        log.warning(
            "%s: the header says %d points, and the file holds %d more, which are passed over",
            *(path, len(file.points), len(file.tail) // length),
        )
    return cloud


def read_las_sample(path: Path, step: int, fields: Collection[str] | None = None) -> PointCloud:
    """Read every `step`-th point, the first included, in the memory that these take.

    LAZ is decompressed by several processes, each a part: about 3 million points a second and core,
    and half as many more where points are in layers and only some are asked for.

    Args:
        path: the file.
        step: at least 1.
        fields: which of color and intensity are wanted, beside what every sample has: positions,
            returns, label and extra fields; None reads all that there is.

    Raises:
        ReadError: as `read_las` does.
    """
    with open_las_file(path, fields) as (file, num_points, blocks):
        workers = min(os.cpu_count() or 1, MAX_DECODERS) if file.compressed else 1
        share = max(1, -(-num_points // (workers * step))) * step
        size = max(1, BLOCK // step)

        def part(first: int) -> np.ndarray:
            count = min(share, num_points - first)
            return np.concatenate([file.points, *blocks(size, first, count, step)])

        with ThreadPoolExecutor(workers) as pool:
            parts = list(pool.map(part, range(0, num_points, share)))
    only = None if fields is None else {*_ALWAYS, *(n for f in fields for n in _COLUMNS[f])}
    return _cloud(path, replace(file, points=np.concatenate([file.points, *parts])), only)


def read_las_point(path: Path, number: int) -> PointCloud:
    """Read every field of one point, of LAZ by decompressing the chunk it is in.

    Raises:
        ReadError: as `read_las` does.
    """
    with open_las_file(path) as (file, _, blocks):
        return _cloud(path, replace(file, points=np.concatenate(list(blocks(1, number, 1)))))


def _cloud(path: Path, file: LasFile, only: Collection[str] | None = None) -> PointCloud:
    scales, offsets = file.scales_and_offsets
    if len(file.points) and not (np.isfinite([*scales, *offsets]).all() and scales.all()):
        raise ReadError(
            f"{path}: its header scales points by {scales.tolist()} and moves them by "
            f"{offsets.tolist()}: it is corrupt"
        )
    return cloud_from_columns(las_points.columns(file, only), las_points.positions(file))


def write_las(path: Path, labelled: Labelled) -> None:
    """Write LAZ where the name ends in .laz, else LAS: a copy of a source of this kind, or anew.

    A new file is LAS 1.4 with coordinates to a millimetre (to 0.01 mm below 100 m). Intensities up
    to 1 are stretched to 16 bits. A non-finite point is put at the origin and flagged as withheld.

    Raises:
        ValueError: a class code does not fit, or the source has another number of points.
    """
    compressed = path.name.lower().endswith(".laz")
    source = labelled.source
    if source is None or not is_las(source):
        cloud = labelled.whole
        if cloud.label is not None:
            _check_classes(path, NEW_FORMAT, np.unique(cloud.label).tolist())
        file = new_las_file(cloud)
        write_las_file(file.with_compression(True) if compressed else file, path)
        return
    label = labelled.cloud.label
    if label is not None:
        _check_classes(source, read_las_front(source).point_format, np.unique(label).tolist())

    def change(file: LasFile, start: int) -> LasFile:
        rows = slice(start, start + len(file.points))
        if label is not None:
            file = las_points.with_classes(file, label[rows])
        added = {name: column[rows] for name, column in labelled.added.items()}
        return las_points.with_extra(file, added) if added else file

    copy_las(source, path, change, num_points=len(labelled.cloud))


def copy_las(
    source: Path,
    path: Path,
    change: Callable[[LasFile, int], LasFile],
    *,
    num_points: int | None = None,
) -> None:
    """Copy a LAS or LAZ file with other points, block by block: in little memory.

    Args:
        source: the file that is copied.
        path: LAZ where it ends in .laz, else LAS.
        change: gives a block with its points changed, from the block and the number of its first
            point. It is called with no points too, for the header and the records.
        num_points: how many points the source must have.

    Raises:
        ReadError: the source is no LAS or LAZ file, or holds less than its header says.
        ValueError: the source has another number of points, or `change` refuses.
    """
    compressed = path.name.lower().endswith(".laz")
    with open_las_file(source) as (before, found, blocks):
        if num_points is not None and found != num_points:
            raise ValueError(f"{source} has {found} points, the cloud to write {num_points}")
        try:
            file = change(before, 0)
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from error
        if compressed != file.compressed or (compressed and file.extra_size != before.extra_size):
            file = file.with_compression(compressed)
        if copc.is_copc(file) and not compressed:
            file = copc.without_copc(file)
        written = write_las_file(file, path, _changed(before, blocks(BLOCK), change))
        if copc.is_copc(written):
            copc.relocate(path, before, written)


def _changed(
    file: LasFile, blocks: Iterator[np.ndarray], change: Callable[[LasFile, int], LasFile]
) -> Iterator[np.ndarray]:
    done = 0
    for points in blocks:
        yield change(replace(file, points=points), done).points
        done += len(points)


def is_las(path: Path) -> bool:
    """Whether a file begins as LAS and LAZ files do."""
    with path.open("rb") as stream:
        return stream.read(4) == LAS_MAGIC


def count_points(path: Path) -> int:
    """Give the number of points that the header of a LAS or LAZ file speaks of."""
    return read_las_front(path).num_points


def check_classes(source: Path, codes: Iterable[int]) -> None:
    """Raise ValueError where a copy of a LAS file cannot hold a class code."""
    _check_classes(source, read_las_front(source).point_format, codes)


def _check_classes(path: Path, point_format: int, codes: Iterable[int]) -> None:
    largest = las_points.largest_class(point_format)
    if wrong := [code for code in codes if not 0 <= code <= largest]:
        raise ValueError(
            f"{path}: class {wrong[0]} does not fit into point format {point_format}, which holds "
            f"0 to {largest}; write .ply or .npz, or give the class another raw id in the card"
        )
