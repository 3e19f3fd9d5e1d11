"""Points in text: XYZ, TXT, CSV and PTS, one point a line, with or without a header.

n points.
"""

from __future__ import annotations

import csv
import logging
import re
from dataclasses import dataclass
from pathlib import Path

from pctx.data.io.columns import cloud_from_columns, columns_of, distinct, has_positions
from pctx.data.io.errors import ReadError
from pctx.data.io.labelled import Labelled
from pctx.data.io.numbers import Style, find_style, format_rows, read_rows
from pctx.data.io.unnamed import NARROWEST, WIDEST, name_columns
from pctx.geometry.points import PointCloud

log = logging.getLogger(__name__)

_SAMPLE = 1 << 16
"""Bytes at the beginning from which the layout is told."""
_STYLE_LINES = 20
_COMMENTS = ("#", "//", "%", "!")
_PTS = ("x", "y", "z", "intensity", "red", "green", "blue")
"""The columns of Leica's PTS, where it has seven."""
_WORD = re.compile(r"[-+]?(\d|\.\d|inf|nan|1\.#)", re.I)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a file of points is laid out.

    Attributes:
        style: what separates its numbers.
        names: of its columns, where it has a header.
        width: how many numbers its first point has.
        start: the byte at which the points begin.
        line: the number of the line at which they do.
        count: how many points its first line announces, where that is a number alone.
    """

    style: Style
    names: tuple[str, ...]
    width: int
    start: int
    line: int
    count: int | None = None


def read_text(path: Path) -> PointCloud:
    """Read one point a line; the numbers stand between blanks, tabs, commas, semicolons or bars.

    A header names the columns; a comment (#, //, %) just before the points does too where it names
    x, y and z. Without one, the numbers tell (see `unnamed`). The first line may announce the
    number of points. Numbers may have decimal commas where semicolons or blanks separate them.

    Raises:
        ReadError: it is no text of points, or a line holds a word or too few numbers.
    """
    with path.open("rb") as stream:
        layout = _find_layout(path, stream.read(_SAMPLE))
        stream.seek(layout.start)
        width = len(layout.names) or layout.width
        table = read_rows(path, stream, layout.style, width, line=layout.line)
    if layout.count is not None and len(table) != layout.count:
        raise ReadError(
            f"{path}: its first line says {layout.count} points, it holds {len(table)}: it is "
            "truncated"
        )
    if layout.names:
        return cloud_from_columns(dict(zip(layout.names, table.T, strict=True)))
    if path.suffix.lower() == ".pts" and width == len(_PTS):
        return cloud_from_columns(dict(zip(_PTS, table.T, strict=True)))
    return cloud_from_columns(name_columns(table), table[:, :3])


def write_text(path: Path, labelled: Labelled) -> None:
    """Write a header and one point a line, separated by commas in .csv and by blanks elsewhere.

    Every number can be read back exactly. Colours are 0..255.
    """
    cloud = labelled.whole
    xyz = cloud.xyz if cloud.origin.any() else cloud.coord
    columns = dict(zip("xyz", xyz.T, strict=True))
    if cloud.color is not None:
        columns |= dict(zip(("red", "green", "blue"), cloud.color.T, strict=True))
    for name, column in columns_of(cloud):
        word = re.sub(r"[\s,;|\"'#%!]+|//+", "_", name).strip("_") or "extra"
        columns[distinct(word, set(columns))] = column
    separator = "," if path.name.lower().endswith(".csv") else " "
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(separator.join(columns) + "\n")
        stream.writelines(format_rows(columns, separator))


def looks_like_points(path: Path) -> bool:
    """Tell from its first lines whether a text is one of points, and not prose or a list."""
    try:
        with path.open("rb") as stream:
            _find_layout(path, stream.read(_SAMPLE))
    except (ReadError, OSError):
        return False
    return True


def has_header(first: bytes) -> bool:
    """Whether the first bytes of a file are text whose header names x, y and z."""
    try:
        return bool(_find_layout(Path(), first).names)
    except ReadError:
        return False


def _find_layout(path: Path, sample: bytes) -> Layout:
    if sample[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ReadError(f"{path}: this text is in UTF-16; save it in UTF-8")
    if b"\0" in sample:
        raise ReadError(f"{path}: this is no text, it holds bytes of value 0")
    bom = 3 if sample.startswith(b"\xef\xbb\xbf") else 0
    header, count, at = "", None, bom
    lines = re.split(rb"(\r\n|\r|\n)", sample[bom:])
    for number, index in enumerate(range(0, len(lines), 2), start=1):
        line = lines[index].decode("utf-8", "replace").strip()
        plain = _uncommented(line)
        if plain and _is_numbers(plain):
            alone = index + 1 < len(lines) and re.fullmatch(r"\d{1,18}", plain)
            if count is not None or not alone:
                following = [_uncommented(b.decode("utf-8", "replace")) for b in lines[index::2]]
                rows = [row for row in following[:-1] or following if _is_numbers(row)]
                return _layout(path, header, rows[:_STYLE_LINES], at, number, count)
            count = int(plain)
        elif line and (not header or header.startswith(_COMMENTS)):
            header = line
        elif plain:
            raise ReadError(f"{path}: line {number} is {line[:40]!r}, where numbers should be")
        at += sum(map(len, lines[index : index + 2]))
    if count is None and not _is_header(header) and (not header or header.startswith(_COMMENTS)):
        raise ReadError(f"{path}: this is no text of points, it holds no numbers")
    return _layout(path, header, [], len(sample), 1, count)


def _uncommented(line: str) -> str:
    """Give what of a line may be numbers, without quotes."""
    return re.split("#|//|%|!", line)[0].replace('"', "").strip()


def _is_header(line: str) -> bool:
    return has_positions(_names(line))


def _is_numbers(line: str) -> bool:
    """Whether every word of a line begins as a number does."""
    words = re.split(r"[\s,;|]+", line.strip(" \t,;|"))
    return bool(line) and all(map(_WORD.match, words))


def _layout(
    path: Path, header: str, rows: list[str], start: int, line: int, count: int | None
) -> Layout:
    style = find_style(rows)
    width = 0
    if rows:
        mark = style.separator
        width = len(rows[0].split() if mark == " " else rows[0].split(mark))
    names = _names(header)
    comment = header.startswith(_COMMENTS)
    if not _is_header(header):
        if header and not comment:
            raise ReadError(f"{path}: its header {header[:60]!r} does not name x, y and z")
        names = ()
    if comment and width and len(names) != width:
        names = ()
    if names and width < len(names) and rows:
        raise ReadError(
            f"{path}: its header names {len(names)} columns, line {line} holds {width} numbers"
        )
    if names and width > len(names):
        log.warning("%s: columns beyond the %d named ones are passed over", path, len(names))
    if not names and not NARROWEST <= width <= WIDEST:
        raise ReadError(
            f"{path}: line {line} holds {width} numbers; a point has {NARROWEST} to {WIDEST}"
        )
    return Layout(style=style, names=names, width=width, start=start, line=line, count=count)


def _names(header: str) -> tuple[str, ...]:
    """Give the words of a header, without quotes, units in brackets, and marks of a comment."""
    line = re.sub(r"\[[^\]]*\]|\([^)]*\)", "", header.lstrip("#/%! \t"))
    separator = next((mark for mark in ",;|\t" if mark in line), None)
    if separator is None:
        words = re.findall(r"\"[^\"]*\"|'[^']*'|\S+", line)
    else:
        words = next(csv.reader([line], delimiter=separator), [])
    names: list[str] = []
    for word in words:
        names.append(distinct(word.strip(" \t\"'") or f"column_{len(names) + 1}", set(names)))
    return tuple(names)
