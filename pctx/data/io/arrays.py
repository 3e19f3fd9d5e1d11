"""NumPy files: `.npy` tables, range images and named fields, and `.npz` with an array a field.

n points.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from pctx.data.io.columns import cloud_from_columns, color_to_uint8, distinct
from pctx.data.io.errors import ReadError
from pctx.data.io.labelled import Labelled
from pctx.geometry.points import PointCloud

NPY_MAGIC, NPZ_MAGIC = b"\x93NUMPY", b"PK\x03\x04"

_NAMES = {
    "coord": ("coord", "coords", "xyz", "points", "point", "pos", "position", "positions"),
    "color": ("color", "colors", "rgb"),
    "normal": ("normal", "normals"),
}
"""The names of arrays (n, 3); single columns go by those of `columns`."""


def read_npy(path: Path) -> PointCloud:
    """Read a table of points, a range image, or an array with named fields.

    - (n, 3): x, y, z. (n, 4): and intensity. (n, 6): x, y, z and normals where those columns are
      of unit length or below 0, else colours. (n, 7): x, y, z, colours, label.
    - (height, width, 6): x, y, z, intensity, depth, label; (height, width, 5) without the label.
      Pixels of depth 0 hold no point and are passed over, row by row.

    Raises:
        ReadError: it is no such array.
    """
    with _faults(path), path.open("rb") as stream:
        array = np.load(stream, allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ReadError(f"{path}: this is a file of several arrays; call it .npz")
        if array.dtype.names:
            return cloud_from_columns({name: array[name].reshape(-1) for name in array.dtype.names})
        if array.dtype.kind in "fiu" and array.ndim == 3 and array.shape[2] in (5, 6):
            return _range_image(array)
        if array.dtype.kind in "fiu" and array.ndim == 2 and array.shape[1] in (3, 4, 6, 7):
            return _table(array)
    raise ReadError(
        f"{path}: an array of shape {array.shape} and type {array.dtype} is no cloud; points are "
        "(n, 3), (n, 4) with intensity, (n, 6) with colours or normals, (n, 7) with colours and "
        "label, or (height, width, 6) with intensity, depth and label; .npz names its arrays"
    )


def read_npz(path: Path) -> PointCloud:
    """Read named arrays: coord (also xyz, points, ...), color, normal, intensity, label, ...

    `origin` (3,) is added to the coordinates. Arrays of other names go to `extra` where they have a
    row a point, and are passed over where not.

    Raises:
        ReadError: it is no such file, or none of its arrays holds positions.
    """
    with _faults(path), path.open("rb") as stream:
        with np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        return _cloud_of_arrays(arrays)


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


def _table(array: np.ndarray) -> PointCloud:
    xyz, rest = array[:, :3], array[:, 3:]
    columns: dict[str, np.ndarray] = {}
    if array.shape[1] == 4:
        columns["intensity"] = rest[:, 0]
    elif array.shape[1] == 6 and _are_normals(rest):
        columns |= dict(zip(("nx", "ny", "nz"), rest.T, strict=True))
    elif array.shape[1] >= 6:
        columns |= dict(zip(("red", "green", "blue"), rest.T, strict=False))
    if array.shape[1] == 7:
        columns["label"] = rest[:, 3]
    return cloud_from_columns(columns, xyz.astype(np.float64))


def _are_normals(columns: np.ndarray) -> bool:
    length = np.linalg.norm(columns[np.isfinite(columns).all(axis=1)].astype(np.float64), axis=1)
    # Rounded normals are a little off; a normal may also be missing, and then is 0.
    unit = (np.abs(length - 1) < 0.05) | (length == 0)
    return bool((columns < 0).any() or (unit.all() and length.any()))


def _range_image(array: np.ndarray) -> PointCloud:
    pixels = array.reshape(-1, array.shape[2])
    pixels = pixels[pixels[:, 4] != 0]
    columns = {"intensity": pixels[:, 3], "depth": pixels[:, 4].astype(np.float32)}
    if array.shape[2] == 6:
        columns["label"] = pixels[:, 5]
    return cloud_from_columns(columns, pixels[:, :3].astype(np.float64))


def _cloud_of_arrays(arrays: Mapping[str, np.ndarray]) -> PointCloud:
    for name, array in arrays.items():
        if name.lower() in _NAMES["coord"] and array.dtype.names:
            return cloud_from_columns({field: array[field] for field in array.dtype.names})
    triples = {role: _find_triple(names, arrays) for role, names in _NAMES.items()}
    coord = arrays.get(triples["coord"] or "")
    rows = len(coord) if coord is not None else _num_rows(arrays)
    columns = {
        name: array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
        for name, array in arrays.items()
        if name not in triples.values() and _is_column(array, rows) and name != "origin"
    }
    cloud = cloud_from_columns(columns, None if coord is None else coord.astype(np.float64))
    color, normal = arrays.get(triples["color"] or ""), arrays.get(triples["normal"] or "")
    if color is not None:
        cloud = replace(cloud, color=color_to_uint8(color))
    if normal is not None:
        cloud = replace(cloud, normal=normal.astype(np.float32))
    origin = arrays.get("origin")
    if origin is None or coord is None or origin.shape != (3,):
        return cloud
    if coord.dtype == np.float32:
        return replace(cloud, coord=coord, origin=origin.astype(np.float64))
    return replace(cloud, origin=cloud.origin + origin)


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
