"""replacing: a file is written beside its name, then renamed: a kill leaves no half file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Give a path to write, with the same suffix; rename it to `path` when the block ends well.

    Raises:
        FileExistsError: `path` exists and may not be overwritten.
    """
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path}: exists already; --overwrite replaces it")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield beside
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
