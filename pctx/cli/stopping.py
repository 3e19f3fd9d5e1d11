"""A command that is told to end ends, wherever it was."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERRUPTED = 130
"""The exit code of a command stopped by Ctrl-C."""
TERMINATED = 128 + signal.SIGTERM
"""And of one that was told to end, as by `kill` or the scheduler of a cluster."""
_AGAIN = 0.02
"""Seconds after which a stop that was lost is repeated: the place that lost it is left by then."""


@contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """Let SIGTERM end what runs as Ctrl-C does, so that what is half written is removed.

    A signal may come while Python tidies up an object or in a callback of a library, where no
    error leaves; it is sent once more then. Gives a function that says whether SIGTERM has come.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    told: list[int] = []

    def end(number: int, _: object) -> None:
        told.append(number)
        raise SystemExit(TERMINATED)

    def lost(unraisable: sys.UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, SystemExit) and told:
            _later(signal.SIGTERM)
        elif issubclass(unraisable.exc_type, KeyboardInterrupt):
            _later(signal.SIGINT)
        else:
            hook(unraisable)

    handler, hook = signal.signal(signal.SIGTERM, end), sys.unraisablehook
    sys.unraisablehook = lost
    try:
        yield lambda: bool(told)
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, handler)


def _later(number: int) -> None:
    def again() -> None:
        if os.name == "nt":  # where `kill` ends the process at once
            signal.raise_signal(number)
        else:
            os.kill(os.getpid(), number)

    timer = threading.Timer(_AGAIN, again)
    timer.daemon = True
    timer.start()
