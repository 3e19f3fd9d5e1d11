"""How far a file is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

log = logging.getLogger(__name__)

_SECONDS = 30.0
"""Between two lines of a plain log."""


@dataclass(frozen=True)
class Task:
    """What goes on, and whether nothing is to be said of it."""

    title: str
    quiet: bool


@contextmanager
def points_progress(task: Task) -> Iterator[Callable[[int, int], None] | None]:
    """Give what is called with points done and points in all, first before anything is done."""
    if task.quiet:
        yield None
    elif sys.stderr.isatty():
        with _bar(task.title) as tell:
            yield tell
    else:
        yield _lines(task.title)


@contextmanager
def _bar(title: str) -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %  {task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    pace: list[Pace] = []
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None, rate="")

        def tell(done: int, total: int) -> None:
            pace[:] = pace or [Pace(done, time.monotonic())]
            rate = pace[0].rate(done)
            text = f"{rate:,.0f} points/s" if rate else ""
            bar.update(task, completed=done, total=total, rate=text)

        yield tell


def _lines(title: str) -> Callable[[int, int], None]:
    pace: list[Pace] = []
    last = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        pace[:] = pace or [Pace(done, now)]
        rate = pace[0].rate(done)
        if now - last < _SECONDS or not rate:
            return
        last = now
        left = (total - done) / rate
        log.info(
            "%s: %.0f %%, %s points/s, %s left",
            title,
            100 * done / max(total, 1),
            f"{rate:,.0f}",
            f"{left // 60:.0f} min {left % 60:.0f} s" if left >= 60 else f"{left:.0f} s",
        )

    return tell


@dataclass(frozen=True)
class Pace:
    """Where and when it began."""

    done: int
    start: float

    def rate(self, done: int) -> float:
        """Give points a second since then; 0 at first."""
        seconds = time.monotonic() - self.start
        return (done - self.done) / seconds if seconds > 0 else 0.0
