"""Unchanged: whether files are still what they were when somebody began to read them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pctx.data.io.errors import ReadError


@contextmanager
def unchanged(path: Path) -> Iterator[None]:
    """Hold a block to end with a file, or the files of a folder, as they were at its start.

    Raises:
        ReadError: a size or a time of change is another.
    """
    before = _state(path)
    changed = ReadError(f"{path}: changed while it was read; start again when it is whole")
    try:
        yield
    except Exception as error:
        if _state(path) != before:
            raise changed from error
        raise
    if _state(path) != before:
        raise changed


def _state(path: Path) -> list[tuple[str, int, int]]:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    stats = [(file.name, file.stat()) for file in files if file.is_file()]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
