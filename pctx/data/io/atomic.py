"""replacing: a file is written beside its name, then renamed: a kill leaves no half file."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_BESIDE = re.compile(r"\..*\.\d+\.part(\.[^.]+)?")
_STALE = 3600.0
"""Seconds after which a file that is being written is not any more."""


@contextmanager
def replacing(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Give a path to write, with the same suffix; rename it to `path` when the block ends well.

    Raises:
        FileExistsError: `path` exists, before or after the block, and may not be overwritten.
    """
    _check_free(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield beside
        _check_free(path, overwrite)  # another run may have been faster
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove what runs that were killed an hour ago or earlier had not finished writing here."""
    for path in folder.glob(".*.part*"):
        with suppress(FileNotFoundError):  # another run sweeps too
            old = _BESIDE.fullmatch(path.name) and time.time() - path.stat().st_mtime > _STALE
            if old and path.is_file():
                path.unlink()


def _check_free(path: Path, overwrite: bool) -> None:
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path}: exists already; --overwrite replaces it")
