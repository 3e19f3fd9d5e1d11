"""The fields of a LAS point: those of its format, and the extra ones that a record describes.

n points. Tables 7 to 17 (points) and 24, 25 (extra bytes) of the LAS 1.4 R15 specification.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pctx.data.io.columns import color_to_uint8, distinct
from pctx.data.io.las_file import LasFile
from pctx.data.io.las_flags import flag_columns
from pctx.data.io.las_record import Record

_OLD = [
    *(("X", "<i4"), ("Y", "<i4"), ("Z", "<i4"), ("intensity", "<u2"), ("returns", "u1")),
    *(("class", "u1"), ("angle", "i1"), ("user", "u1"), ("source", "<u2")),
]
_NEW = [
    *(("X", "<i4"), ("Y", "<i4"), ("Z", "<i4"), ("intensity", "<u2"), ("returns", "u1")),
    *(("flags", "u1"), ("class", "u1"), ("user", "u1"), ("angle", "<i2"), ("source", "<u2")),
    ("time", "<f8"),
]
_TIME, _NIR, _WAVE = [("time", "<f8")], [("nir", "<u2")], [("wave", "V29")]
_RGB = [("red", "<u2"), ("green", "<u2"), ("blue", "<u2")]
_FORMATS = tuple(
    np.dtype(fields)
    for fields in (
        *(_OLD, _OLD + _TIME, _OLD + _RGB, _OLD + _TIME + _RGB),
        *(_OLD + _TIME + _WAVE, _OLD + _TIME + _RGB + _WAVE),
        *(_NEW, _NEW + _RGB, _NEW + _RGB + _NIR),
        *(_NEW + _WAVE, _NEW + _RGB + _NIR + _WAVE),
    )
)
FIRST_NEW_FORMAT = 6
"""From this point format on a class has 8 bits and an angle 16."""
_OLD_CLASS_BITS = 0x1F
ANGLE_STEP = 0.006
"""Degrees a unit of the scan angle in the formats from 6 on."""
UNIT_INTENSITY = 65535
"""What intensities of 0 to 1 are stored times, in files of our own that say so."""
_UNIT_RECORD = ("pctx", 1)

_EXTRA_USER, _EXTRA_RECORD, _EXTRA_SIZE = "LASF_Spec", 4, 192
_NAME_SIZE = 32
_EXTRA = struct.Struct("<2xBB32s4x24x24x24x3d3d32s")
_TYPES = ("u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f4", "<f8")
_HAS_SCALE, _HAS_OFFSET = 0x08, 0x10


@dataclass(frozen=True, kw_only=True)
class ExtraField:
    """A field of the extra bytes.

    Attributes:
        start: its first byte in a point.
        dtype: its numbers, with their shape; bytes of no stated meaning are u1.
        scale: value = number * scale + offset; None where the file states none.
        offset: likewise.
    """

    name: str
    start: int
    dtype: np.dtype
    scale: np.ndarray | None = None
    offset: np.ndarray | None = None


def point_dtype(point_format: int) -> np.dtype:
    """Give the fields of a point format, packed as in a file."""
    return _FORMATS[point_format]


def extra_fields(file: LasFile) -> tuple[ExtraField, ...]:
    """Give the described fields of the extra bytes, as far as the points have room for them."""
    start = _FORMATS[file.point_format].itemsize
    fields: list[ExtraField] = []
    taken: set[str] = set()
    for record in _extra_records(file):
        for at in range(0, len(record.data) - _EXTRA_SIZE + 1, _EXTRA_SIZE):
            kind, options, raw, *numbers, _ = _EXTRA.unpack_from(record.data, at)
            if kind > 30:
                return tuple(fields)
            if kind == 0:
                dtype = np.dtype(("u1", (options,)))
            else:
                count = (kind - 1) // 10 + 1
                base = np.dtype(_TYPES[(kind - 1) % 10])
                dtype = base if count == 1 else np.dtype((base, (count,)))
            if start + dtype.itemsize > file.points.shape[1]:
                return tuple(fields)
            name = raw.split(b"\0")[0].decode("utf-8", "replace").strip() or "extra"
            taken.add(name := distinct(name, taken))
            width = int(np.prod(dtype.shape))
            fields.append(
                ExtraField(
                    name=name,
                    start=start,
                    dtype=dtype,
                    scale=np.array(numbers[:width]) if kind and options & _HAS_SCALE else None,
                    offset=np.array(numbers[3 : 3 + width])
                    if kind and options & _HAS_OFFSET
                    else None,
                )
            )
            start += dtype.itemsize
    return tuple(fields)


def positions(file: LasFile) -> np.ndarray:
    """Give (n, 3) float64 in the units of the file."""
    scales, offsets = file.scales_and_offsets
    raw = _view(file)
    return np.stack([raw[a] * scales[i] + offsets[i] for i, a in enumerate("XYZ")], axis=1)


def integers(file: LasFile, axis: str) -> np.ndarray:
    """Give (n,) int32: the stored coordinates of the axis X, Y or Z."""
    values: np.ndarray = _view(file)[axis]
    return values


def keep_largest(file: LasFile, point: np.ndarray, names: Collection[str]) -> None:
    """Raise the named fields of one point (1, r), in place, to the largest that the file has."""
    if not len(file.points):
        return
    known, largest = _view(file), _view(replace(file, points=point))
    for name in set(names) & set(known.dtype.names or ()):
        largest[name] = np.maximum(largest[name], known[name].max())


def columns(file: LasFile, only: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """Give every field but the position by name; what may lack is left out where it is all 0.

    The names are intensity, classification, red, green, blue, return_number, number_of_returns,
    scan_angle (degrees), point_source_id, gps_time (where the format has it), and, where
    any is not 0, colours, nir and the fields of `las_flags`; and those of the extra fields, with a
    number where they repeat one of these.

    Args:
        file: with its points.
        only: names of the fields of its format that are given; None gives all. Extra fields are.
    """
    raw = _view(file)
    names = raw.dtype.names or ()
    new = file.point_format >= FIRST_NEW_FORMAT
    bits = 4 if new else 3
    found = {
        "intensity": raw["intensity"].astype(np.float32) / _intensity_scale(file),
        "classification": classes(file),
        "return_number": raw["returns"] & (2**bits - 1),
        "number_of_returns": raw["returns"] >> bits & (2**bits - 1),
        "scan_angle": raw["angle"].astype(np.float32) * np.float32(ANGLE_STEP if new else 1),
        "point_source_id": raw["source"].copy(),
    }
    if "time" in names:
        found["gps_time"] = raw["time"].copy()
    if "red" in names:
        color = np.stack([raw["red"], raw["green"], raw["blue"]], axis=1)
        if color.any():
            found |= dict(zip(("red", "green", "blue"), color_to_uint8(color).T, strict=True))
    if "nir" in names and raw["nir"].any():
        found["nir"] = raw["nir"].copy()
    found |= flag_columns(raw)
    if only is not None:
        found = {name: column for name, column in found.items() if name in only}
    for field in extra_fields(file):
        found[distinct(field.name, set(found))] = extra_column(file, field)
    return found


def with_unit_intensity(file: LasFile) -> LasFile:
    """Say in a record that intensities are those of 0 to 1 times `UNIT_INTENSITY`."""
    said = f"intensity is stored times {UNIT_INTENSITY}"
    return file.with_records((*file.records, Record.new(*_UNIT_RECORD, b"", said)))


def _intensity_scale(file: LasFile) -> np.float32:
    unit = any((r.user_id, r.record_id) == _UNIT_RECORD for r in file.records)
    return np.float32(UNIT_INTENSITY if unit else 1)


def extra_column(file: LasFile, field: ExtraField) -> np.ndarray:
    """Give the values (n, ...) of an extra field, scaled where the file says so."""
    part = file.points[:, field.start : field.start + field.dtype.itemsize]
    base = field.dtype.base
    values = np.ascontiguousarray(part).view(base).reshape(len(part), *field.dtype.shape)
    if field.scale is not None:
        values = values * field.scale.reshape(field.dtype.shape)
    if field.offset is not None:
        values = values + field.offset.reshape(field.dtype.shape)
    return values.astype(values.dtype.newbyteorder("="))


def classes(file: LasFile) -> np.ndarray:
    """Give (n,) uint8 class codes."""
    code = _view(file)["class"]
    return code.copy() if file.point_format >= FIRST_NEW_FORMAT else code & _OLD_CLASS_BITS


def largest_class(point_format: int) -> int:
    """Give the largest class code that a point format holds."""
    return 255 if point_format >= FIRST_NEW_FORMAT else _OLD_CLASS_BITS


def with_classes(file: LasFile, label: np.ndarray) -> LasFile:
    """Change the class of every point, and in formats 0 to 5 not the flags in its byte."""
    points = file.points.copy()
    dtype = _FORMATS[file.point_format]
    byte = points[:, dtype.fields["class"][1]]  # type: ignore[index]
    kept = 0 if file.point_format >= FIRST_NEW_FORMAT else byte & ~np.uint8(_OLD_CLASS_BITS)
    byte[:] = kept | label.astype(np.uint8)
    return file.with_points(points)


def with_extra(file: LasFile, new: Mapping[str, np.ndarray]) -> LasFile:
    """Write columns (n,) to extra fields: into one of that name and type, or into a new one.

    Raises:
        ValueError: the file describes its extra bytes wrongly, so that none can follow.
    """
    fields = extra_fields(file)
    if len(fields) < sum(len(r.data) // _EXTRA_SIZE for r in _extra_records(file)):
        raise ValueError("its extra bytes are described wrongly, so that no column can be added")
    points, taken = file.points.copy(), {f.name for f in fields}
    free = {f.name: f for f in fields if f.scale is None and f.offset is None}
    described, added = [], []
    described_size = sum(f.dtype.itemsize for f in fields)
    for size in _pieces(file.extra_size - described_size):
        taken.add(name := distinct("unnamed", taken))
        described.append(_description(name, 0, size))
    for full, column in new.items():
        column = _storable(column)
        raw = np.ascontiguousarray(column).view(np.uint8).reshape(len(points), column.itemsize)
        old = free.pop(_cut(full, _NAME_SIZE), None)
        if old is not None and old.dtype == column.dtype:
            points[:, old.start : old.start + raw.shape[1]] = raw
            continue
        name = _cut(full, _NAME_SIZE)
        taken.add(name := distinct(_cut(full, _NAME_SIZE - 4) if name in taken else name, taken))
        described.append(
            _description(name, _TYPES.index(column.dtype.str.lstrip("|")) + 1, 0, full)
        )
        added.append(raw)
    if not added:
        return file.with_points(points)
    file = file.with_points(np.concatenate([points, *added], axis=1))
    return _with_descriptions(file, b"".join(described))


def _view(file: LasFile) -> np.ndarray:
    dtype = _FORMATS[file.point_format]
    fields: Mapping[str, Any] = dtype.fields or {}
    wide = np.dtype(
        {
            "names": list(fields),
            "formats": [part[0] for part in fields.values()],
            "offsets": [part[1] for part in fields.values()],
            "itemsize": file.points.shape[1],
        }
    )
    return file.points.reshape(-1).view(wide)


def _extra_records(file: LasFile) -> Iterator[Record]:
    for record in file.records:
        if (record.user_id, record.record_id) == (_EXTRA_USER, _EXTRA_RECORD):
            yield record


def _pieces(size: int) -> Iterator[int]:
    """Cut bytes that no record describes into pieces that one description can name."""
    while size > 0:
        yield min(size, 255)
        size -= 255


def _storable(column: np.ndarray) -> np.ndarray:
    kind = column.dtype.kind
    if kind == "b" or (kind == "f" and column.dtype.itemsize not in (4, 8)):
        column = column.astype("u1" if kind == "b" else "<f4")
    return column.astype(column.dtype.newbyteorder("<"))


def _cut(name: str, size: int) -> str:
    return name.encode()[:size].decode(errors="ignore")


def _description(name: str, kind: int, options: int, text: str = "") -> bytes:
    zeros = (0.0,) * 6
    return _EXTRA.pack(kind, options, name.encode(), *zeros, _cut(text, _NAME_SIZE).encode())


def _with_descriptions(file: LasFile, data: bytes) -> LasFile:
    last = list(_extra_records(file))[-1:]
    if last and len(last[0].data) % _EXTRA_SIZE == 0 and len(last[0].data + data) < 2**16:
        grown = last[0].with_data(last[0].data + data)
        return file.with_records(tuple(grown if r is last[0] else r for r in file.records))
    record = Record.new(_EXTRA_USER, _EXTRA_RECORD, data, "Extra bytes")
    return file.with_records((*file.records, record))
