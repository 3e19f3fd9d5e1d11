"""PCD, the format of the Point Cloud Library, in text, in bytes and compressed. n points.

After its description of version 0.7.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pctx.data.io import lzf
from pctx.data.io.columns import (
    cloud_from_columns,
    color_to_uint8,
    columns_of,
    distinct,
    keep_integers,
    narrow,
)
from pctx.data.io.errors import ReadError
from pctx.data.io.labelled import Labelled
from pctx.data.io.numbers import find_style, format_rows, read_rows
from pctx.data.io.pcd_header import Header, is_pcd, read_header
from pctx.geometry.points import PointCloud

_PACKED = ("rgb", "rgba")
_LETTERS = {"f": "F", "i": "I", "u": "U"}
_BINARY = "binary"


def read_pcd(path: Path) -> PointCloud:
    """Read all points, those that are NaN too, in the frame in which they are stored.

    Fields go by their usual names (see `columns`). `rgb` and `rgba` hold 0xAARRGGBB as a whole
    number or as the bits of a float; in text a float from 1 on is the whole number itself. Fields
    `_` are padding. The VIEWPOINT is not applied, and rows of an organised cloud follow each other.

    Raises:
        ReadError: it is no PCD file, or holds less than its header says.
    """
    header = read_header(path)
    read = {"ascii": _read_text, _BINARY: _read_bytes}.get(header.encoding, _read_compressed)
    columns = read(path, header)
    plain = {name: column for name, column in columns.items() if name not in header.padding}
    try:
        return cloud_from_columns(_with_colors(plain))
    except ValueError as error:
        raise ReadError(f"{path}: {error}") from error


def write_pcd(path: Path, labelled: Labelled, *, encoding: str | None = None) -> None:
    """Write x, y, z (double where the origin is not 0), packed colours, and all other columns.

    Args:
        path: the file.
        labelled: points with a prediction get the colours of its classes, in place of their own.
        encoding: ascii, binary or binary_compressed; None is that of the source where this is PCD,
            and else binary.
    """
    source = labelled.source
    if encoding is None:
        encoding = read_header(source).encoding if _is_pcd(source) and source else _BINARY
    fields = _fields(labelled)
    dtype = np.dtype([(name, column.dtype.newbyteorder("<")) for name, column in fields.items()])
    kinds = [dtype[name] for name in fields]
    n = len(labelled.cloud)
    lines = ["# .PCD v0.7 - Point Cloud Data file format", "VERSION 0.7"]
    lines += [" ".join(["FIELDS", *fields])]
    lines += [" ".join(["SIZE", *(str(kind.itemsize) for kind in kinds)])]
    lines += [" ".join(["TYPE", *(_LETTERS[kind.kind] for kind in kinds)])]
    lines += [" ".join(["COUNT", *("1" for _ in kinds)])]
    lines += [f"WIDTH {n}", "HEIGHT 1", "VIEWPOINT 0 0 0 1 0 0 0", f"POINTS {n}"]
    lines += [f"DATA {encoding}", ""]
    with path.open("wb") as stream:
        stream.write("\n".join(lines).encode())
        if encoding == "ascii":
            for text in format_rows(fields, " "):
                stream.write(text.encode())
        elif encoding == _BINARY:
            table = np.empty(n, dtype)
            for name, column in fields.items():
                table[name] = column
            table.tofile(stream)
        else:
            data = b"".join(c.astype(c.dtype.newbyteorder("<")).tobytes() for c in fields.values())
            block = lzf.compress(data)
            stream.write(struct.pack("<II", len(block), len(data)) + block)


def _fields(labelled: Labelled) -> dict[str, np.ndarray]:
    cloud = labelled.whole
    xyz = cloud.xyz if cloud.origin.any() else cloud.coord
    fields = dict(zip("xyz", xyz.T, strict=True))
    color = cloud.color if labelled.label_color is None else labelled.label_color
    if color is not None:
        red, green, blue = color.T.astype(np.uint32)
        fields["rgb"] = red << 16 | green << 8 | blue
    for name, column in columns_of(cloud):
        word = "_".join(name.split()).replace("#", "_") or "extra"
        fields[distinct("extra" if word == "_" else word, set(fields))] = narrow(column)
    return fields


def _is_pcd(path: Path | None) -> bool:
    if path is None or not path.is_file():
        return False
    with path.open("rb") as stream:
        return is_pcd(stream.read(4096))


def _read_text(path: Path, header: Header) -> dict[str, np.ndarray]:
    width = sum(int(np.prod(header.fields[name].shape)) for name in header.fields.names or ())
    with path.open("rb") as stream:
        line = stream.read(header.start).count(b"\n") + 1
        sample = stream.read(4096).decode("latin-1").splitlines()[:8]
        stream.seek(header.start)
        style = find_style([line for line in sample[:-1] or sample if line.strip()])
        table = read_rows(path, stream, style, width, line=line)
    if len(table) < header.num_points:
        raise _cut_short(path, header, len(table))
    columns, at = {}, 0
    for name in header.fields.names or ():
        shape = header.fields[name].shape
        size = int(np.prod(shape))
        part = table[: header.num_points, at : at + size].reshape(-1, *shape)
        columns[name] = keep_integers(part, header.fields[name].base)
        at += size
    return columns


def _read_bytes(path: Path, header: Header) -> dict[str, np.ndarray]:
    found = (path.stat().st_size - header.start) // header.fields.itemsize
    if found < header.num_points:
        raise _cut_short(path, header, found)
    table = np.fromfile(path, header.fields, header.num_points, offset=header.start)
    return {name: np.ascontiguousarray(table[name]) for name in header.fields.names or ()}


def _read_compressed(path: Path, header: Header) -> dict[str, np.ndarray]:
    with path.open("rb") as stream:
        stream.seek(header.start)
        head = stream.read(8)
        packed, size = struct.unpack("<II", head) if len(head) == 8 else (0, 0)
        left = path.stat().st_size - stream.tell()
        block = stream.read(min(packed, left))  # a size that lies would reserve what it states
    wanted = header.num_points * header.fields.itemsize
    if len(head) < 8 or len(block) < packed:
        raise ReadError(f"{path}: its compressed points are cut short: it is truncated")
    if size != wanted or wanted > len(block) * lzf.LARGEST_RATIO:
        raise ReadError(
            f"{path}: the header says {header.num_points} points of {header.fields.itemsize} "
            f"bytes, {size} are compressed in {packed}"
        )
    try:
        data = lzf.decompress(block, size)
    except ValueError as error:
        raise ReadError(f"{path}: {error}") from error
    columns, at = {}, 0
    for name in header.fields.names or ():
        kind = header.fields[name]
        count = header.num_points * int(np.prod(kind.shape))
        part = np.frombuffer(data, kind.base, count, at)
        columns[name] = part.reshape(-1, *kind.shape).copy()
        at += part.nbytes
    return columns


def _cut_short(path: Path, header: Header, found: int) -> ReadError:
    return ReadError(
        f"{path}: the header says {header.num_points} points, the file holds {found}: it is "
        "truncated"
    )


def _with_colors(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Put red, green and blue in the place of the first packed colour."""
    name = next((name for name in columns if name.lower() in _PACKED), None)
    if name is None or (columns[name].ndim != 1 and columns[name].shape[1:] not in ((3,), (4,))):
        return dict(columns)
    rest = {other: column for other, column in columns.items() if other != name}
    packed = columns[name]
    rgb = _unpack(packed) if packed.ndim == 1 else color_to_uint8(packed[:, :3])
    return rest | dict(zip(("red", "green", "blue"), rgb.T, strict=True))


def _unpack(packed: np.ndarray) -> np.ndarray:
    """Give (n, 3) uint8 of whole numbers 0xAARRGGBB or of floats with these bits."""
    if packed.dtype.kind == "f":
        finite = packed[np.isfinite(packed)]
        # Bits of colours make floats below 1e-37, or with opacity, beyond 1e38 or NaN.
        if len(finite) and 1 <= np.abs(finite).max() < 2**32:
            bits = np.nan_to_num(packed, nan=0, posinf=0, neginf=0).astype(np.int64)
        else:
            bits = packed.astype("<f4").view("<u4")
    else:
        bits = packed
    return np.stack([bits >> shift & 255 for shift in (16, 8, 0)], axis=1).astype(np.uint8)
