"""replacing: a file is written beside its name, then renamed: a kill leaves no half file."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_BESIDE = re.compile(r"\..*\.\d+\.part(\.[^.]+)?")
STALE = 3600.0
"""Seconds after which a file that is being written is not any more."""
_LONGEST = 255
"""Bytes of a name, in the file systems that are common."""


@contextmanager
def replacing(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Give a path to write, with the same suffix; rename it to `path` when the block ends well.

    Raises:
        FileExistsError: `path` exists, before or after the block, and may not be overwritten.
    """
    _check_free(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(_name_beside(path))
    try:
        yield beside
        _check_free(path, overwrite)  # another run may have been faster
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def sweep(folder: Path, age: float = STALE) -> None:
    """Remove what runs that were killed `age` seconds ago or earlier had not finished writing here.

    Where no other run can be writing an age of 0 removes all.
    """
    for path in folder.glob(".*.part*"):
        with suppress(FileNotFoundError):  # another run sweeps too
            old = _BESIDE.fullmatch(path.name) and time.time() - path.stat().st_mtime >= age
            if old and path.is_file():
                path.unlink()


def _name_beside(path: Path) -> str:
    stem = path.stem
    while len(os.fsencode(name := f".{stem}.{os.getpid()}.part{path.suffix}")) > _LONGEST and stem:
        stem = stem[:-1]
    return name


def _check_free(path: Path, overwrite: bool) -> None:
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path}: exists already; --overwrite replaces it")
