"""E57 (ASTM E2807), by pye57: every scan of a file, moved to where its pose says. n points."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pctx.data.io.columns import cloud_from_columns
from pctx.data.io.errors import ReadError
from pctx.geometry.points import PointCloud

MAGIC = b"ASTM-E57"
_CARTESIAN = ("cartesianX", "cartesianY", "cartesianZ")
_SPHERICAL = ("sphericalRange", "sphericalAzimuth", "sphericalElevation")
_INVALID = ("cartesianInvalidState", "sphericalInvalidState")
_COLORS = ("colorRed", "colorGreen", "colorBlue")
_FIELDS = {
    **dict(zip(_COLORS, ("red", "green", "blue"), strict=True)),
    **{"intensity": "intensity", "nor:normalX": "nx", "nor:normalY": "ny", "nor:normalZ": "nz"},
    **{"rowIndex": "row", "columnIndex": "column", "timeStamp": "time"},
    **{"returnIndex": "return_number", "returnCount": "number_of_returns"},
}
"""What is read besides positions, and the names of it here."""
_FEWEST_BITS = 1
"""Bits of a point that no file goes below, so that a count that lies is not believed."""


def read_e57(path: Path) -> PointCloud:
    """Read the points of all scans, one after another; `scan` numbers them where there are many.

    A point that is marked as invalid is a row of NaN. Intensity and colours are brought to 0..1 and
    0..255 from the limits that a scan states. A field is kept where every scan has it.

    Raises:
        ReadError: it is no E57 file, or a page of it is corrupt.
        ImportError: pye57 is not installed.
    """
    try:
        from pye57 import libe57
    except ImportError as error:
        raise ReadError(f"{path}: E57 files need pye57: pip install 'pctx[e57]'") from error
    with _faults(path, libe57.E57Exception):
        file = libe57.ImageFile(str(path), "r")
        try:
            scans = file.root()["data3D"]
            found = [_scan(path, file, scans[i]) for i in range(len(scans))]
        finally:
            file.close()
    found = [columns for columns in found if len(columns["x"])] or found[:1]
    if not found:
        return PointCloud.from_xyz(np.zeros((0, 3)))
    names = [name for name in found[0] if all(name in columns for columns in found)]
    columns = {name: np.concatenate([part[name] for part in found]) for name in names}
    if len(found) > 1:
        columns["scan"] = np.repeat(np.arange(len(found)), [len(part["x"]) for part in found])
    return cloud_from_columns(columns)


def _scan(path: Path, file: Any, scan: Any) -> dict[str, np.ndarray]:
    """Give the columns of a scan by the names of `columns`."""
    from pye57 import libe57
    from pye57.utils import get_fields

    points = scan["points"]
    there = get_fields(libe57.StructureNode(points.prototype()))
    frame = next((f for f in (_CARTESIAN, _SPHERICAL) if set(f) <= set(there)), None)
    if frame is None:
        raise ReadError(f"{path}: a scan has no positions; its fields are {', '.join(there)}")
    count = points.childCount()
    if count * _FEWEST_BITS > 8 * path.stat().st_size:
        raise ReadError(f"{path}: a scan says that it has {count} points, more than the file holds")
    wanted = [f for f in (*frame, *_FIELDS, *_INVALID) if f in there]
    raw = {name: np.empty(count, np.float64) for name in wanted}
    if count:
        buffers = libe57.VectorSourceDestBuffer()
        for name, column in raw.items():
            buffers.append(libe57.SourceDestBuffer(file, name, column, count, True, True))
        reader = points.reader(buffers)
        read = reader.read()
        reader.close()
        if read != count:
            raise ReadError(f"{path}: a scan says that it has {count} points, it holds {read}")
    xyz = _positions(scan, np.stack([raw[name] for name in frame], axis=1), frame is _SPHERICAL)
    for name in _INVALID:
        if name in raw:
            xyz[raw[name] != 0] = np.nan
    columns = dict(zip("xyz", xyz.T, strict=True))
    for name in (name for name in wanted if name in _FIELDS):
        limits = _limits(scan, name)
        columns[_FIELDS[name]] = raw[name] if limits is None else _scaled(raw[name], limits, name)
    return columns


def _positions(scan: Any, points: np.ndarray, spherical: bool) -> np.ndarray:
    """Give (n, 3) in the frame of the file."""
    if spherical:
        distance, azimuth, elevation = points.T
        flat = distance * np.cos(elevation)
        columns = (flat * np.cos(azimuth), flat * np.sin(azimuth), distance * np.sin(elevation))
        points = np.stack(columns, axis=1)
    if not scan.isDefined("pose"):
        return points
    pose = scan["pose"]
    if pose.isDefined("rotation"):
        w, x, y, z = (pose["rotation"][axis].value() for axis in "wxyz")
        points = points @ _rotation(w, x, y, z).T
    if pose.isDefined("translation"):
        points = points + np.array([pose["translation"][axis].value() for axis in "xyz"])
    return points


def _rotation(w: float, x: float, y: float, z: float) -> np.ndarray:
    """Give the matrix (3, 3) of a quaternion of any length but 0."""
    length = np.sqrt(w * w + x * x + y * y + z * z)
    if not (np.isfinite(length) and length > 0):
        return np.eye(3)
    w, x, y, z = w / length, x / length, y / length, z / length
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def _limits(scan: Any, name: str) -> tuple[float, float] | None:
    """Give the smallest and the largest value that a scan states for intensity or a colour."""
    group = "intensityLimits" if name == "intensity" else "colorLimits"
    keys = f"{name}Minimum", f"{name}Maximum"
    if name not in ("intensity", *_COLORS) or not scan.isDefined(group):
        return None
    if not all(scan[group].isDefined(key) for key in keys):
        return None
    low, high = (float(scan[group][key].value()) for key in keys)
    return (low, high) if low < high else None


def _scaled(column: np.ndarray, limits: tuple[float, float], name: str) -> np.ndarray:
    part = (column - limits[0]) / (limits[1] - limits[0])
    if name == "intensity":
        return part
    return np.rint(np.clip(np.nan_to_num(part), 0, 1) * 255).astype(np.uint8)


@contextmanager
def _faults(path: Path, fault: type[Exception]) -> Iterator[None]:
    try:
        yield
    except fault as error:
        lines = str(error).strip().splitlines() or ["it is corrupt"]
        raise ReadError(f"{path}: {lines[0]}") from error
    except (RuntimeError, TypeError, ValueError, KeyError, MemoryError) as error:
        if isinstance(error, ReadError):
            raise
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ReadError(f"{path}: it cannot be read as E57 ({reason})") from error
