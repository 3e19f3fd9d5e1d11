"""PTX, Leica's text of scans: each a grid of points in the scanner's frame, and its place.

n points.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from pctx.data.io.columns import cloud_from_columns
from pctx.data.io.errors import ReadError
from pctx.data.io.numbers import Style, read_rows
from pctx.geometry.points import PointCloud

_HEAD_ROWS = 10
"""Lines before the points: columns, rows, four of the scanner's pose, four of the matrix."""
_HEAD_WORDS = 2 + 4 * 3 + 4 * 4
_NAMES = ("x", "y", "z", "intensity", "red", "green", "blue")
_WIDTHS = (3, 4, 7)
"""How many of these a file may have."""


def read_ptx(path: Path) -> PointCloud:
    """Read every scan of a file, moved to where its matrix says; `scan` numbers them if many.

    Pixels without a return are rows too, at the scanner's own place.

    Raises:
        ReadError: it is no such file, or a scan holds less than its head says.
    """
    data = path.read_bytes()
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    starts = np.concatenate([[0], ends, [len(data)]] if data[-1:] != b"\n" else [[0], ends])
    tables: list[np.ndarray] = []
    line = 0
    while line < len(starts) - 1 and data[starts[line] :].strip():
        head = data[starts[line] : starts[min(line + _HEAD_ROWS, len(starts) - 1)]].split()
        size, matrix = _read_head(path, head, line)
        line += _HEAD_ROWS
        if line + size > len(starts) - 1:
            raise ReadError(
                f"{path}: a scan says that it has {size} points, the file holds "
                f"{len(starts) - 1 - line}: it is truncated"
            )
        if size == 0:
            continue
        width = len(data[starts[line] : starts[line + 1]].split())
        if width not in _WIDTHS:
            raise ReadError(f"{path}: line {line + 1} holds {width} numbers; a point has 3, 4 or 7")
        block = io.BytesIO(data[starts[line] : starts[line + size]])
        table = read_rows(path, block, Style(), width, line=line + 1)
        if len(table) != size:
            raise ReadError(f"{path}: a scan says that it has {size} points, it has {len(table)}")
        table[:, :3] = table[:, :3] @ matrix[:3, :3] + matrix[3, :3]
        tables.append(table)
        line += size
    width = min((table.shape[1] for table in tables), default=_WIDTHS[0])
    whole = np.concatenate([np.zeros((0, width)), *(table[:, :width] for table in tables)])
    columns = dict(zip(_NAMES[:width], whole.T, strict=True))
    if len(tables) > 1:
        columns["scan"] = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    return cloud_from_columns(columns)


def _read_head(path: Path, words: list[bytes], line: int) -> tuple[int, np.ndarray]:
    """Give the number of points of a scan, and its matrix (4, 4)."""
    try:
        if len(words) != _HEAD_WORDS:
            raise ValueError
        num_columns, num_rows = int(words[0]), int(words[1])
        matrix = np.array([float(word) for word in words[-16:]]).reshape(4, 4)
    except ValueError:
        raise ReadError(
            f"{path}: line {line + 1} begins no scan of PTX, which has 2 whole numbers, 4 lines of "
            "3 and 4 of 4 numbers"
        ) from None
    if num_columns < 0 or num_rows < 0 or not np.isfinite(matrix).all():
        raise ReadError(f"{path}: line {line + 1} begins a scan of {num_columns} x {num_rows}")
    return num_columns * num_rows, matrix
