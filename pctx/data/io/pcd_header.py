"""The header of a PCD file: its fields, how many points it has, and how they are written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pctx.data.io.columns import distinct
from pctx.data.io.errors import ReadError

ENCODINGS = ("ascii", "binary", "binary_compressed")
_LONGEST_HEADER = 1 << 16
_KEYS = (
    *("VERSION", "FIELDS", "SIZE", "TYPE", "COUNT"),
    *("WIDTH", "HEIGHT", "VIEWPOINT", "POINTS", "DATA"),
)
_FIRST = re.compile(rb"(#[^\n]*\n|\s+)*(VERSION|FIELDS|COLUMNS)\s")
"""How a file without the usual first comment begins."""
_MOST = 1 << 16
"""Numbers of one field."""
_KINDS = {
    **{("I", 2**i): f"<i{2**i}" for i in range(4)},
    **{("U", 2**i): f"<u{2**i}" for i in range(4)},
    **{("F", 4): "<f4", ("F", 8): "<f8"},
}


@dataclass(frozen=True, kw_only=True)
class Header:
    """What the header of a file says.

    Attributes:
        fields: the numbers of a point, by name; (k,) where it has k of a field.
        padding: the names of fields that mean nothing.
        num_points: n.
        encoding: one of `ENCODINGS`.
        start: the byte at which the points begin.
    """

    fields: np.dtype
    padding: frozenset[str]
    num_points: int
    encoding: str
    start: int


def is_pcd(first: bytes) -> bool:
    """Whether the first bytes of a file are those of a PCD header."""
    return first.startswith(b"# .PCD") or _FIRST.match(first) is not None


def read_header(path: Path) -> Header:
    """Read a header of version 0.5 to 0.7.

    Raises:
        ReadError: it is none, or its numbers do not agree.
    """
    with path.open("rb") as stream:
        head = stream.read(_LONGEST_HEADER)
    end = re.search(rb"^DATA[ \t]+(\w+)[ \t]*\r?(\n|\Z)", head, re.MULTILINE)
    if not is_pcd(head) or end is None:
        raise ReadError(f"{path}: it has no header of PCD, which ends with a line DATA")
    entries: dict[str, list[str]] = {}
    for line in head[: end.end()].decode("latin-1").splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        key = "FIELDS" if words[0] == "COLUMNS" else words[0]
        if key not in _KEYS or key in entries:
            raise ReadError(f"{path}: its header has the line {line[:60]!r}, which is no PCD")
        entries[key] = words[1:]
    encoding = entries["DATA"][0]
    if encoding not in ENCODINGS:
        raise ReadError(f"{path}: its points are {encoding!r}; {', '.join(ENCODINGS)} are read")
    fields, padding = _fields(path, entries)
    return Header(
        fields=fields,
        padding=padding,
        num_points=_num_points(path, entries),
        encoding=encoding,
        start=end.end(),
    )


def _fields(path: Path, entries: dict[str, list[str]]) -> tuple[np.dtype, frozenset[str]]:
    names = entries.get("FIELDS", [])
    kinds, sizes = entries.get("TYPE", []), _whole(path, "SIZE", entries.get("SIZE", []))
    counts = _whole(path, "COUNT", entries.get("COUNT", ["1"] * len(names)))
    if not names or not len(names) == len(kinds) == len(sizes) == len(counts):
        raise ReadError(
            f"{path}: its header has {len(names)} FIELDS, {len(kinds)} of TYPE, {len(sizes)} of "
            f"SIZE and {len(counts)} of COUNT"
        )
    layout: list[tuple[str, str, tuple[int, ...]]] = []
    padding = set()
    for name, kind, size, count in zip(names, kinds, sizes, counts, strict=True):
        if (kind, size) not in _KINDS:
            raise ReadError(f"{path}: field {name} of TYPE {kind} and SIZE {size} is not known")
        if count == 0 or count > _MOST:
            raise ReadError(f"{path}: field {name} has a COUNT of {count}")
        taken = {other[0] for other in layout}
        if name == "_":
            padding.add(distinct(name, taken))
        layout.append((distinct(name, taken), _KINDS[kind, size], (count,) if count > 1 else ()))
    return np.dtype(layout), frozenset(padding)


def _num_points(path: Path, entries: dict[str, list[str]]) -> int:
    width, height, points = (
        next(iter(_whole(path, key, entries.get(key, [])[:1])), None)
        for key in ("WIDTH", "HEIGHT", "POINTS")
    )
    area = None if width is None else width * (1 if height is None else height)
    if area is None and points is None:
        raise ReadError(f"{path}: its header has neither POINTS nor WIDTH")
    if None not in (area, points) and area != points:
        raise ReadError(f"{path}: its header says {points} POINTS, WIDTH x HEIGHT is {area}")
    found = points if area is None else area
    assert found is not None
    return found


def _whole(path: Path, key: str, words: list[str]) -> list[int]:
    if not all(word.isascii() and word.isdigit() and len(word) < 19 for word in words):
        raise ReadError(f"{path}: its header says {key} {' '.join(words)[:60]}")
    return [int(word) for word in words]
