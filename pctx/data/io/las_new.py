"""A LAS 1.4 file made of a cloud that has no LAS file as its source. n points."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np

from pctx.data.io import las_flags, las_points
from pctx.data.io.columns import columns_of
from pctx.data.io.las_file import LAS_MAGIC, LasFile
from pctx.geometry.points import PointCloud

NEW_FORMAT = 6
"""The point format without colours; 7 adds them, and 8 near infrared."""

_HEADER = struct.Struct("<4sHH16xBB32s32sHHHIIBHI20x3d3d6dQQIQ15Q")
_SIZE = 375
_WKT_BIT = 0x10
"""Set in the global encoding of formats 6 to 10, whose CRS is always given as WKT."""
_WITHHELD = 0x04
_STEP, _FINE_STEP = 1e-3, 1e-5
"""Metres a unit of a new file, and of one of less than 100 m."""
_FINE_EXTENT = 100.0
_LARGEST = 2**31 - 1
_OWN = las_flags.NAMES | {
    *("return_number", "number_of_returns", "scan_angle", "point_source_id", "gps_time", "nir")
}
"""The extra columns for which a point has a place of its own."""


def new_las_file(cloud: PointCloud) -> LasFile:
    """Make an uncompressed file of every field of a cloud; what has no place gets extra bytes."""
    step = _step(cloud)
    points = _points(cloud, step)
    form = _format(cloud)
    header = _header(cloud, points, form, step)
    file = LasFile(
        header=header,
        records=(),
        gap=b"",
        points=points.view(np.uint8).reshape(len(points), points.dtype.itemsize),
    )
    extra = {name: column for name, column in cloud.extra.items() if name not in _OWN}
    rest = replace(cloud, intensity=None, label=None, extra=extra)
    file = las_points.with_extra(file, dict(columns_of(rest)))
    return las_points.with_unit_intensity(file) if _unit_intensity(cloud) else file


def _format(cloud: PointCloud) -> int:
    return 8 if "nir" in cloud.extra else 7 if cloud.color is not None else NEW_FORMAT


def _step(cloud: PointCloud) -> float:
    extent = float(np.abs(cloud.coord[cloud.finite]).max(initial=0))
    step = _FINE_STEP if extent < _FINE_EXTENT else _STEP
    while extent / step > _LARGEST:
        step *= 10
    return step


def _points(cloud: PointCloud, step: float) -> np.ndarray:
    points = np.zeros(len(cloud), las_points.point_dtype(_format(cloud)))
    finite = cloud.finite[:, None]
    whole = np.rint(np.where(finite, cloud.coord, 0).astype(np.float64) / step)
    for i, axis in enumerate("XYZ"):
        points[axis] = whole[:, i]
    las_flags.set_flags(points, cloud.extra)
    points["flags"] |= np.where(cloud.finite, 0, _WITHHELD).astype(np.uint8)
    if cloud.label is not None:
        points["class"] = cloud.label
    if cloud.intensity is not None:
        unit = las_points.UNIT_INTENSITY if _unit_intensity(cloud) else 1
        _fill(points, "intensity", cloud.intensity, unit)
    if cloud.color is not None:
        for name, column in zip(("red", "green", "blue"), cloud.color.T, strict=True):
            points[name] = column.astype(np.uint16) * 257
    one = np.ones(len(cloud), np.uint8)
    number = np.clip(cloud.extra.get("return_number", one), 0, 15).astype(np.uint8)
    count = np.clip(cloud.extra.get("number_of_returns", one), 0, 15).astype(np.uint8)
    points["returns"] = number | count << 4
    for field, name, factor in (
        ("angle", "scan_angle", 1 / las_points.ANGLE_STEP),
        ("source", "point_source_id", 1),
        ("time", "gps_time", 1),
        ("nir", "nir", 1),
    ):
        if name in cloud.extra:
            _fill(points, field, cloud.extra[name], factor)
    return points


def _unit_intensity(cloud: PointCloud) -> bool:
    """Tell whether intensities are fractions, which whole numbers have to be scaled for."""
    if cloud.intensity is None:
        return False
    known = np.nan_to_num(cloud.intensity, posinf=0, neginf=0)
    return bool(known.max(initial=0) <= 1 and (known % 1).any())


def _fill(points: np.ndarray, field: str, column: np.ndarray, factor: float) -> None:
    """Put numbers into a field, rounded and cut to its range; NaN and infinity become 0."""
    if points.dtype[field].kind == "f":
        points[field] = column
        return
    limits = np.iinfo(points.dtype[field])
    whole = np.rint(np.nan_to_num(column.astype(np.float64), posinf=0, neginf=0) * factor)
    points[field] = np.clip(whole, limits.min, limits.max)


def _header(cloud: PointCloud, points: np.ndarray, form: int, step: float) -> bytes:
    raw = np.stack([points[axis] for axis in "XYZ"], axis=1).astype(np.float64)
    low, high = (raw.min(axis=0), raw.max(axis=0)) if len(raw) else (np.zeros(3), np.zeros(3))
    bounds = np.stack([high, low], axis=1) * step + cloud.origin[:, None]  # (3, 2)
    by_return = np.bincount(points["returns"] & 15, minlength=16)[1:16]
    length = points.dtype.itemsize
    return _HEADER.pack(
        *(LAS_MAGIC, 0, _WKT_BIT, 1, 4, b"", b"pctx", 0, 0, _SIZE, _SIZE, 0, form, length, 0),
        *(step, step, step, *cloud.origin, *bounds.reshape(6), 0, 0, 0),
        *(len(cloud), *by_return.tolist()),
    )
