"""Numbers in text: lines of them to a table, in pieces of a few megabytes, and back to lines.

n rows, c columns.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from pctx.data.io.errors import ReadError

_PIECE = 1 << 23
"""Bytes of text that are turned into numbers at a time."""
_LINES = 1 << 16
"""Lines that are written at a time."""
_COMMENT = re.compile(rb"(?:#|//|%|!).*")
_NOT_A_NUMBER = re.compile(rb"[-+]?1\.#[A-Z]+\d*")
"""As the C library of Windows writes nan and infinity."""
_WITH_COMMA = re.compile(r"[-+]?\d+(,\d+)?([eE][-+]?\d+)?")
_NUMBER = re.compile(
    rb"[-+]?(\d+\.?\d*([eE][-+]?\d+)?|\.\d+([eE][-+]?\d+)?|inf|infinity|nan(\(\w*\))?)", re.I
)


@dataclass(frozen=True, kw_only=True)
class Style:
    """How the numbers of a line stand beside each other.

    Attributes:
        separator: what stands between them besides blanks, or a blank.
        decimal_comma: whether 1,5 means one and a half.
    """

    separator: str = " "
    decimal_comma: bool = False


def find_style(lines: list[str]) -> Style:
    """Tell from some lines of numbers what separates them."""
    text = "\n".join(lines)
    for separator in ";|":
        if separator in text:
            return Style(separator=separator, decimal_comma="," in text and "." not in text)
    if "," not in text:
        return Style()
    # 1,5 2,5 3,5: commas within numbers only, and blanks between these.
    words = [line.split() for line in lines]
    blanks = all(len(line) >= 3 and all(map(_WITH_COMMA.fullmatch, line)) for line in words)
    return Style(decimal_comma=True) if blanks else Style(separator=",")


def read_rows(
    path: Path, stream: BinaryIO, style: Style, columns: int, *, line: int = 1
) -> np.ndarray:
    """Read lines of numbers up to the end of a file: (n, c) float64.

    Blank lines and comments (#, //, %, !) are passed over, and so are the numbers of a line beyond
    the first c. Between two separators with nothing between them lies NaN.

    Args:
        path: to name the file in errors.
        stream: stands where the lines begin.
        style: how numbers are separated.
        columns: c, how many numbers of each line are wanted.
        line: the number of the first line, for errors.

    Raises:
        ReadError: a word is no number, or a line holds too few.
    """
    parts = [np.zeros((0, columns))]
    rest = b""
    while piece := stream.read(_PIECE):
        text = (rest + piece).replace(b"\r\n", b"\n")
        if text.endswith(b"\r"):  # its \n may follow in the next piece
            text, rest = text[:-1], b"\r"
        else:
            rest = b""
        text = text.replace(b"\r", b"\n")
        cut = text.rfind(b"\n") + 1
        text, rest = text[:cut], text[cut:] + rest
        if len(rest) > _PIECE:
            raise ReadError(f"{path}: line {line} has no end: this is no text of numbers")
        parts.append(_rows(path, text, style, columns, line))
        line += text.count(b"\n")
    parts.append(_rows(path, rest, style, columns, line))
    return np.concatenate(parts)


def format_rows(columns: Mapping[str, np.ndarray], separator: str) -> Iterator[str]:
    """Give the lines of columns (n,), many at a time; each number can be read back exactly."""
    num_rows = len(next(iter(columns.values())))
    for at in range(0, num_rows, _LINES):
        words = [_words(column[at : at + _LINES]) for column in columns.values()]
        yield "\n".join(map(separator.join, zip(*words, strict=True))) + "\n"


def _rows(path: Path, text: bytes, style: Style, columns: int, line: int) -> np.ndarray:
    text = _plain(text, style)
    counts, starts = _words_a_line(text)
    numbers = _numbers(path, text, int(counts.sum()), line)
    short = np.flatnonzero((counts > 0) & (counts < columns))
    if len(short):
        raise ReadError(
            f"{path}: line {line + short[0]} holds {counts[short[0]]} numbers, where each point "
            f"has {columns}"
        )
    if (counts > columns).any():
        place = np.arange(len(numbers)) - np.repeat(starts, counts)
        numbers = numbers[place < columns]
    return numbers.reshape(-1, columns)


def _plain(text: bytes, style: Style) -> bytes:
    """Give the same lines with blanks between the numbers, and points in them."""
    if b"#" in text:
        text = _NOT_A_NUMBER.sub(b"nan", text)
    if any(mark in text for mark in (b"#", b"//", b"%", b"!")):
        text = _COMMENT.sub(b"", text)
    text = text.replace(b'"', b"")
    if style.decimal_comma:
        text = text.replace(b",", b".")
    if style.separator != " ":
        mark = re.escape(style.separator.encode())
        empty = re.compile(rb"(?m)(?<=%b)[ \t]*(?=%b|$)|^[ \t]*(?=%b)" % (mark, mark, mark))
        text = empty.sub(b" nan ", text).replace(style.separator.encode(), b" ")
    return text


def _words_a_line(text: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Give the number of words in each line, and of those before it."""
    byte = np.frombuffer(text, np.uint8)
    inside = byte > 32
    begins = inside.copy()
    begins[1:] &= ~inside[:-1]
    ends = np.flatnonzero(byte == 10)
    before = np.concatenate([[0], np.cumsum(begins, dtype=np.int64)[ends]])
    counts = np.diff(before, append=np.count_nonzero(begins))
    return counts, before


def _numbers(path: Path, text: bytes, count: int, line: int) -> np.ndarray:
    if count == 0:
        return np.zeros(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            numbers = np.fromstring(text, dtype=np.float64, sep=" ")
        except (ValueError, DeprecationWarning):
            numbers = np.zeros(0)
    if len(numbers) == count:
        return numbers
    for number, words in enumerate(text.split(b"\n"), start=line):
        for word in words.split():
            if not _NUMBER.fullmatch(word):
                shown = word[:40].decode("utf-8", "replace")
                raise ReadError(f"{path}: line {number} holds {shown!r}, which is no number")
    raise ReadError(f"{path}: a line after line {line} holds what is no number")


def _words(column: np.ndarray) -> list[str]:
    if column.dtype.kind == "b":
        column = column.astype(np.uint8)
    if column.dtype.kind == "f" and column.dtype.itemsize < 8:
        return list(column.astype(np.float32).astype(str).tolist())
    return list(map(repr, column.tolist()))
