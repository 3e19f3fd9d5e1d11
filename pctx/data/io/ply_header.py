"""The header of a PLY file: the elements it holds, with their columns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pctx.data.io.errors import ReadError

_TYPES = {
    **{"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4"},
    **{"float": "f4", "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2"},
    **{"int32": "i4", "uint32": "u4", "int64": "i8", "uint64": "u8", "float32": "f4"},
    "float64": "f8",
    **{kind: kind for kind in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")},
}
_ORDERS = {"ascii": None, "binary_little_endian": "<", "binary_big_endian": ">"}
_LONGEST_HEADER = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Property:
    """A column of an element.

    Attributes:
        kind: the type of its values in NumPy's letters, without an order of bytes.
        length: the type of the count that stands before each row's values, where it is a list.
    """

    name: str
    kind: str
    length: str | None = None


@dataclass(frozen=True, kw_only=True)
class Element:
    """A table of a file, such as the vertices."""

    name: str
    count: int
    properties: tuple[Property, ...] = ()

    @property
    def has_lists(self) -> bool:
        """Whether rows differ in length."""
        return any(p.length for p in self.properties)

    @property
    def single(self) -> tuple[Property, ...]:
        """The columns that are no lists."""
        return tuple(p for p in self.properties if not p.length)

    @property
    def is_cloud(self) -> bool:
        """Whether it has positions."""
        return {"x", "y", "z"} <= {p.name.lower() for p in self.single}


def read_header(path: Path, data: bytes) -> tuple[str | None, list[Element], int]:
    """Give the order of bytes ("<", ">", None for text), the elements, and where they begin.

    Raises:
        ReadError: it is no PLY header.
    """
    first = re.match(rb"ply[ \t]*(\r\n|\n|\r)", data)
    if first is None:
        raise ReadError(f"{path}: this is no PLY file, it begins with {data[:8]!r}")
    newline = first[1]
    end = re.search(rb"(?:\r\n|\n|\r)end_header[ \t]*" + newline, data[:_LONGEST_HEADER])
    if end is None:
        raise ReadError(f"{path}: its header has no end")
    orders: list[str] = []
    elements: list[Element] = []
    for line in data[first.end() : end.start()].decode("latin-1").split(newline.decode()):
        words = line.split()
        match words:
            case [] | ["comment" | "obj_info", *_]:
                pass
            case ["format", order, *_] if order in _ORDERS:
                orders.append(order)
            case ["element", name, count] if count.isascii() and count.isdigit():
                elements.append(Element(name=name, count=int(count)))
            case ["property", "list", length, kind, name] if (
                elements and kind in _TYPES and _TYPES.get(length, "f")[0] in "iu"
            ):
                new = Property(name=name, kind=_TYPES[kind], length=_TYPES[length])
                elements[-1] = _with(elements[-1], new)
            case ["property", kind, *name] if elements and name and kind in _TYPES:
                new = Property(name=" ".join(name), kind=_TYPES[kind])
                elements[-1] = _with(elements[-1], new)
            case _:
                raise ReadError(
                    f"{path}: its header has the line {line.strip()!r}, which is no PLY"
                )
    if not orders:
        raise ReadError(f"{path}: its header does not say whether text or bytes follow")
    return _ORDERS[orders[0]], elements, end.end()


def _with(element: Element, new: Property) -> Element:
    properties = (*element.properties, new)
    return Element(name=element.name, count=element.count, properties=properties)
