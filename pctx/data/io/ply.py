"""PLY, in text or bytes of either order: the vertices of a file, and clouds written as such.

n points. After G. Turk's description of the format (1994).
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Collection
from pathlib import Path

import numpy as np

from pctx.data.io.columns import cloud_from_columns, columns_of, distinct, keep_integers, narrow
from pctx.data.io.errors import ReadError
from pctx.data.io.labelled import Labelled
from pctx.data.io.ply_header import Element, read_header
from pctx.geometry.points import PointCloud

MAGIC = b"ply"

_NAMES = {"i1": "char", "u1": "uchar", "i2": "short", "u2": "ushort", "i4": "int", "u4": "uint"} | {
    "f4": "float",
    "f8": "double",
}
_CODES = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I"} | {
    "i8": "q",
    "u8": "Q",
    "f4": "f",
    "f8": "d",
}


def read_ply(path: Path) -> PointCloud:
    """Read the vertices: the element `vertex`, or else the first one with x, y and z.

    Columns go by their usual names (see `columns`); lists and other elements are passed over.

    Raises:
        ReadError: it is no PLY file, holds no positions, or less than its header says.
    """
    data = path.read_bytes()
    order, elements, start = read_header(path, data)
    wanted = next(
        (e for e in elements if e.name == "vertex"), next((e for e in elements if e.is_cloud), None)
    )
    if wanted is None:
        names = ", ".join(e.name for e in elements) or "none"
        raise ReadError(f"{path}: it has no vertices; its elements are {names}")
    try:
        if order is None:
            columns = _read_text(path, data[start:], elements, wanted)
        else:
            columns = _read_bytes(path, data, start, order, elements, wanted)
        return cloud_from_columns(columns)
    except ReadError:
        raise
    except ValueError as error:
        raise ReadError(f"{path}: {error}") from error


def write_ply(path: Path, labelled: Labelled) -> None:
    """Write little-endian bytes: x, y, z (double where the origin is not 0) and all other columns.

    Points with a prediction get the colours of its classes, in place of their own.
    """
    cloud = labelled.whole
    double = bool(cloud.origin.any())
    fields: dict[str, np.ndarray] = {}
    xyz = cloud.xyz if double else cloud.coord
    for name, column in zip("xyz", xyz.T, strict=True):
        fields[name] = column
    color = cloud.color if labelled.label_color is None else labelled.label_color
    if color is not None:
        for name, column in zip(("red", "green", "blue"), color.T, strict=True):
            fields[name] = column
    for name, column in columns_of(cloud):
        fields[_word(name, fields)] = _storable(column)
    table = np.empty(len(cloud), [(n, c.dtype.newbyteorder("<")) for n, c in fields.items()])
    for name, column in fields.items():
        table[name] = column
    properties = [f"property {_NAMES[c.dtype.str[1:]]} {n}" for n, c in fields.items()]
    head = ["ply", "format binary_little_endian 1.0", "comment written by pctx"]
    head += [f"element vertex {len(cloud)}", *properties, "end_header", ""]
    with path.open("wb") as stream:
        stream.write("\n".join(head).encode())
        table.tofile(stream)


def _read_text(
    path: Path, text: bytes, elements: list[Element], wanted: Element
) -> dict[str, np.ndarray]:
    numbers: np.ndarray = np.zeros(0)
    at = 0
    if text.strip():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                numbers = np.fromstring(text, dtype=np.float64, sep=" ")
            except (ValueError, DeprecationWarning) as error:
                raise ReadError(f"{path}: behind its header stands what is no number") from error
    for element in elements[: elements.index(wanted)]:
        _, at = _text_rows(path, numbers, at, element)
    rows, _ = _text_rows(path, numbers, at, wanted)
    return {
        p.name: keep_integers(rows[:, i], np.dtype(p.kind)) for i, p in enumerate(wanted.single)
    }


def _text_rows(
    path: Path, numbers: np.ndarray, at: int, element: Element
) -> tuple[np.ndarray, int]:
    """Give the single values of the rows (n, columns), and where the next element begins."""
    width = len(element.single)
    if not element.has_lists:
        end = at + element.count * width
        if end > len(numbers):
            raise _cut_short(path, element, (len(numbers) - at) // width)
        return numbers[at:end].reshape(element.count, width), end
    kept = []
    for row in range(element.count):
        for p in element.properties:
            if at >= len(numbers) or (p.length and not 0 <= numbers[at] <= len(numbers)):
                raise _cut_short(path, element, row)
            if p.length:
                at += int(numbers[at])
            else:
                kept.append(numbers[at])
            at += 1
        if at > len(numbers):
            raise _cut_short(path, element, row)
    return np.array(kept, dtype=np.float64).reshape(element.count, width), at


def _read_bytes(
    path: Path, data: bytes, at: int, order: str, elements: list[Element], wanted: Element
) -> dict[str, np.ndarray]:
    for element in elements[: elements.index(wanted)]:
        _, at = _byte_rows(path, data, at, order, element)
    rows, _ = _byte_rows(path, data, at, order, wanted)
    # In the machine's own order of bytes, each column by itself.
    columns = [rows[name] for name in rows.dtype.names or ()]
    columns = [column.astype(column.dtype.newbyteorder("=")) for column in columns]
    return dict(zip((p.name for p in wanted.single), columns, strict=True))


def _byte_rows(
    path: Path, data: bytes, at: int, order: str, element: Element
) -> tuple[np.ndarray, int]:
    """Give the single values of the rows (n,), and where the next element begins."""
    single = np.dtype([(f"{i}", order + p.kind) for i, p in enumerate(element.single)])
    if element.count == 0:
        return np.zeros(0, single), at
    if not element.has_lists:
        end = at + element.count * single.itemsize
        if end > len(data):
            raise _cut_short(path, element, (len(data) - at) // single.itemsize)
        return np.frombuffer(data, single, element.count, at), end
    table = _uniform_rows(data, at, order, element)
    if table is not None:
        return table[list(single.names or ())], at + table.nbytes
    heads = [struct.Struct(order + _CODES[p.length or p.kind]) for p in element.properties]
    rows = []
    for row in range(element.count):
        kept = []
        for p, head in zip(element.properties, heads, strict=True):
            if at + head.size > len(data):
                raise _cut_short(path, element, row)
            value = head.unpack_from(data, at)[0]
            at += head.size
            if p.length and value < 0:
                raise ReadError(f"{path}: row {row} of {element.name} has a list of {value} values")
            if p.length:
                at += value * np.dtype(p.kind).itemsize
            else:
                kept.append(value)
        rows.append(tuple(kept))
    if at > len(data):
        raise _cut_short(path, element, element.count - 1)
    return np.array(rows, single), at


def _uniform_rows(data: bytes, at: int, order: str, element: Element) -> np.ndarray | None:
    """Give all rows if their lists are as long as those of the first, as with triangles."""
    layout: list[tuple[str, str, tuple[int, ...]]] = []
    begin, single = at, 0
    for i, p in enumerate(element.properties):
        if not p.length:
            layout.append((f"{single}", order + p.kind, ()))
            single += 1
        else:
            head = np.dtype(order + p.length)
            if at + head.itemsize > len(data):
                return None
            size = int(np.frombuffer(data, head, 1, at)[0])
            if not 0 <= size <= len(data):
                return None
            layout += [(f"length {i}", head.str, ()), (f"list {i}", order + p.kind, (size,))]
        at = begin + np.dtype(layout).itemsize
    row = np.dtype(layout)
    if begin + element.count * row.itemsize > len(data):
        return None
    table = np.frombuffer(data, row, element.count, begin)
    lengths = [table[name] for name in row.names or () if name.startswith("length")]
    return table if all((column == column[0]).all() for column in lengths) else None


def _cut_short(path: Path, element: Element, found: int) -> ReadError:
    return ReadError(
        f"{path}: the header says {element.count} rows of {element.name}, the file holds {found}: "
        "it is truncated"
    )


def _word(name: str, taken: Collection[str]) -> str:
    """Give a name without blanks, as a header needs it, that is not taken."""
    return distinct("_".join(name.split()) or "extra", set(taken))


def _storable(column: np.ndarray) -> np.ndarray:
    """Give a column in one of the eight types of PLY; integers too large for them as double."""
    column = narrow(column)
    whole = column.dtype.kind != "f" and column.dtype.itemsize == 8
    return column.astype(np.float64) if whole else column
