"""run_lock: one process writes into the folder of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = ".lock"

_RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID")
"""Where launchers tell a process its number."""


@contextmanager
def run_lock(run: Path) -> Iterator[None]:
    """Keep other runs out of a folder, which is made; a killed process keeps nobody out.

    Of the processes of one run the first holds the lock for all.

    Raises:
        BlockingIOError: another run is in it.
        OSError: the folder cannot be written to.
    """
    if process_rank() != 0:
        yield
        return
    try:
        import fcntl
    except ImportError:  # Windows has no such locks
        yield
        return
    run.mkdir(parents=True, exist_ok=True)
    with (run / NAME).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise BlockingIOError(
                f"{run}: process {file.read().strip() or 'unknown'} trains here; wait for it, or "
                "choose another hydra.run.dir"
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # loaders that were forked have the file open, too


def process_rank() -> int:
    """Give this process's number among those of a run, as launchers tell it."""
    return next((int(os.environ[name]) for name in _RANKS if name in os.environ), 0)
