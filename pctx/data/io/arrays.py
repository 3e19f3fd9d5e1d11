"""NumPy files: `.npy` tables, range images and named fields; `.npz` and folders of arrays.

n points.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from pctx.data.io import npy
from pctx.data.io.columns import cloud_from_columns, color_to_uint8, distinct, has_positions
from pctx.data.io.companions import with_labels
from pctx.data.io.errors import ReadError
from pctx.data.io.labelled import Labelled
from pctx.data.io.unnamed import NARROWEST, WIDEST, name_columns
from pctx.geometry.points import PointCloud

NPZ_MAGIC = b"PK\x03\x04"
SCAN_FILE = "coord.npy"
"""What makes a folder a scan."""
_LARGEST_RATIO = 20
"""Between the arrays of an archive and the archive. Scans shrink to half, bombs to a thousandth."""
_ALWAYS_READ = 1 << 27
"""Bytes of arrays that are read whatever the archive's size."""

_NAMES = {
    "coord": ("coord", "coords", "xyz", "points", "point", "pos", "position", "positions"),
    "color": ("color", "colors", "rgb"),
    "normal": ("normal", "normals"),
}
"""The names of arrays (n, 3); single columns go by those of `columns`."""


def read_npy(path: Path) -> PointCloud:
    """Read a table of points, a range image, or an array with named fields.

    - (n, 3 to 16): x, y, z, and what `unnamed` finds in the others, such as intensity in (n, 4),
      colours or normals in (n, 6), colours and label in (n, 7).
    - (height, width, 6): x, y, z, intensity, depth, label; (height, width, 5) without the label.
      Pixels of depth 0 hold no point and are passed over, row by row.

    The labels of a file in a folder `points` may lie in `../labels` (see `companions`).

    Raises:
        ReadError: it is no such array.
    """
    with _faults(path), path.open("rb") as stream:
        array = npy.load(stream, path.stat().st_size)
        if array.dtype.names:
            flat = array.reshape(-1)
            return _cloud_of_arrays({name: flat[name] for name in array.dtype.names})
        if array.dtype.kind in "fiu" and array.ndim == 3 and array.shape[2] in (5, 6):
            return _range_image(array)
        if _is_table(array):
            return with_labels(path, _cloud_of_table(array))
    raise ReadError(
        f"{path}: an array of shape {array.shape} and type {array.dtype} is no cloud; points are "
        f"(n, {NARROWEST} to {WIDEST}) with x, y and z first, or (height, width, 6) with "
        "intensity, depth and label; .npz names its arrays"
    )


def read_npz(path: Path) -> PointCloud:
    """Read named arrays: coord (also xyz, points, ...), color, normal, intensity, label, ...

    `origin` (3,) is added to the coordinates. Arrays of other names go to `extra` where they have a
    row a point, and are passed over where not. Where none has a usual name, the only table of real
    numbers holds the positions, as in `.npy`.

    Raises:
        ReadError: it is no such file, or none of its arrays holds positions, or its arrays would
            take far more memory than the file is large.
    """
    with _faults(path), path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
        members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
        whole, size = sum(m.file_size for m in members), path.stat().st_size
        if whole > _LARGEST_RATIO * size + _ALWAYS_READ:
            raise ReadError(
                f"{path}: its {size} bytes would become {whole} of arrays, more than "
                f"{_LARGEST_RATIO} times as many; save it without compression"
            )
        arrays = {}
        for member in members:
            with archive.open(member) as entry:
                arrays[member.filename.removesuffix(".npy")] = npy.load(entry, member.file_size)
        return _cloud_of_arrays(arrays)


def read_folder(path: Path) -> PointCloud:
    """Read a scan that is a folder, as Pointcept keeps it: an `.npy` file for each field.

    `coord` is needed; `color`, `normal`, `segment` (or else `segment20`), `instance`, `strength`
    have their usual meanings, and all others with a row a point go to `extra`.

    Raises:
        ReadError: a file is no array, or is of another number of points.
    """
    arrays = {}
    for file in sorted(path.glob("*.npy")):
        with _faults(file), file.open("rb") as stream:
            arrays[file.stem] = npy.load(stream, file.stat().st_size)
    coord = arrays[SCAN_FILE.removesuffix(".npy")]
    if coord.ndim != 2 or coord.shape[1] != 3:
        raise ReadError(f"{path / SCAN_FILE}: positions are (n, 3), found {coord.shape}")
    for name in ("color", "normal", "segment", "segment20", "instance", "strength"):
        if name in arrays and len(np.atleast_1d(arrays[name])) != len(coord):
            rows = len(np.atleast_1d(arrays[name]))
            raise ReadError(
                f"{path / name}.npy: {rows} rows for the {len(coord)} points of {SCAN_FILE}"
            )
    with _faults(path):
        return _cloud_of_arrays(arrays)


def is_scan_folder(path: Path) -> bool:
    """Whether a folder is one scan, of arrays."""
    return (path / SCAN_FILE).is_file()


def write_npz(path: Path, labelled: Labelled) -> None:
    """Write coord, origin, color, intensity, normal, label, instance, and the extra arrays."""
    cloud = labelled.whole
    arrays = {"coord": cloud.coord, "origin": cloud.origin}
    for name in ("color", "intensity", "normal", "label", "instance"):
        if (column := getattr(cloud, name)) is not None:
            arrays[name] = column
    for name, column in cloud.extra.items():
        arrays[distinct(name.replace("/", "_"), set(arrays))] = column
    # numpy.savez takes names as keywords, and one of them could be its own.
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.ascontiguousarray(array), allow_pickle=False)


def _is_table(array: np.ndarray) -> bool:
    return array.dtype.kind in "fiu" and array.ndim == 2 and NARROWEST <= array.shape[1] <= WIDEST


def _cloud_of_table(table: np.ndarray) -> PointCloud:
    return cloud_from_columns(name_columns(table), table[:, :3].astype(np.float64))


def _range_image(array: np.ndarray) -> PointCloud:
    pixels = array.reshape(-1, array.shape[2])
    pixels = pixels[pixels[:, 4] != 0]
    columns = {"intensity": pixels[:, 3], "depth": pixels[:, 4].astype(np.float32)}
    if array.shape[2] == 6:
        columns["label"] = pixels[:, 5]
    return cloud_from_columns(columns, pixels[:, :3].astype(np.float64))


def _cloud_of_arrays(arrays: Mapping[str, np.ndarray]) -> PointCloud:
    for name in _positions(arrays):
        array = arrays[name]
        if array.dtype.names:
            return _cloud_of_arrays({field: array[field] for field in array.dtype.names})
        if _is_table(array) and (array.shape[1] > 3 or name.lower() not in _NAMES["coord"]):
            rest = {other: column for other, column in arrays.items() if other != name}
            return _cloud_of_arrays({"coord": array[:, :3]} | name_columns(array) | rest)
    triples = {role: _find_triple(names, arrays) for role, names in _NAMES.items()}
    coord = arrays.get(triples["coord"] or "")
    if coord is None and "x" not in map(str.lower, arrays):
        found = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ValueError(
            f"it has no coord (n, 3) and no x, y and z; it has {found[:200] or 'no array'}"
        )
    rows = len(coord) if coord is not None else _num_rows(arrays)
    columns = {
        name: array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
        for name, array in arrays.items()
        if name not in triples.values() and _is_column(array, rows) and name != "origin"
    }
    cloud = cloud_from_columns(columns, None if coord is None else coord.astype(np.float64))
    for role in ("color", "normal"):
        triple = arrays.get(triples[role] or "")
        if triple is None or len(triple) != rows:
            continue
        if role == "color":
            cloud = replace(cloud, color=color_to_uint8(triple))
        else:
            cloud = replace(cloud, normal=triple.astype(np.float32))
    origin = arrays.get("origin")
    if origin is None or coord is None or origin.shape != (3,):
        return cloud
    if coord.dtype == np.float32:
        return replace(cloud, coord=coord, origin=origin.astype(np.float64))
    return replace(cloud, origin=cloud.origin + origin)


def _positions(arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Name the arrays of positions: those of usual names, or else the only table of real ones."""
    if usual := [name for name in arrays if name.lower() in _NAMES["coord"]]:
        return usual
    others = {name for role in ("color", "normal") for name in _NAMES[role]}
    tables = [
        name
        for name, array in arrays.items()
        if _is_table(array) and array.dtype.kind == "f" and name.lower() not in others
    ]
    return [] if has_positions(arrays) or len(tables) > 1 else tables


def _find_triple(names: tuple[str, ...], arrays: Mapping[str, np.ndarray]) -> str | None:
    for name, array in arrays.items():
        is_triple = array.ndim == 2 and array.shape[1] == 3 and array.dtype.kind in "fiu"
        if name.lower() in names and is_triple:
            return name
    return None


def _is_column(array: np.ndarray, rows: int) -> bool:
    return array.ndim > 0 and len(array) == rows and array.dtype.kind in "iufb"


def _num_rows(arrays: Mapping[str, np.ndarray]) -> int:
    """Give the rows of a file whose positions are single columns."""
    x = next((a for n, a in arrays.items() if n.lower() == "x" and a.ndim == 1), None)
    return 0 if x is None else len(x)


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    try:
        yield
    except ReadError:
        raise
    except Exception as error:  # NumPy evaluates headers, which fails in any way Python can.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ReadError(f"{path}: {reason}") from error
