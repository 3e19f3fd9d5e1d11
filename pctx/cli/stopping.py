"""A command that is told to end ends, wherever it was."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERRUPTED = 130
"""The exit code of a command stopped by Ctrl-C."""
TERMINATED = 128 + signal.SIGTERM
"""And of one that was told to end, as by `kill` or the scheduler of a cluster."""
HUNG_UP = 129
"""And of one whose terminal has gone."""
STOPPED = (INTERRUPTED, TERMINATED, HUNG_UP)

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
_ENDS = tuple(signal.Signals[name] for name in _NAMES if name in signal.Signals.__members__)
_AGAIN = 0.02
"""Seconds after which a stop that was lost is repeated: the place that lost it is left by then."""
_ONCE = 0.5
"""Seconds within which two signals are one: `timeout` sends each twice, people press twice, and the
second one would end the removal of what is half written."""


class _Stop:
    """What the signals of a command have said."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.last = -_ONCE

    def end(self, number: int, _: object) -> None:
        """End what runs, as the handler of a signal."""
        now = time.monotonic()
        if now - self.last < _ONCE:
            return
        self.number, self.last = number, now
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    def again(self) -> None:
        """Send the signal once more, as nothing ended by it."""
        number, self.last = self.number, -_ONCE
        assert number is not None

        def send() -> None:
            if os.name == "nt":  # where `kill` ends the process at once
                signal.raise_signal(number)
            else:
                os.kill(os.getpid(), number)

        timer = threading.Timer(_AGAIN, send)
        timer.daemon = True
        timer.start()


@contextmanager
def stoppable() -> Iterator[Callable[[], int | None]]:
    """Let SIGTERM and SIGHUP end what runs as Ctrl-C does, so that what is half written is removed.

    A signal may come while Python tidies up an object or in a callback of a library, where no
    error leaves; it is sent once more then. Signals that whoever started the command has had
    ignored, as `nohup` does, stay so. Gives a function that tells the exit code of the signal that
    has come; None where none has.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    stop, hook = _Stop(), sys.unraisablehook

    def lost(unraisable: sys.UnraisableHookArgs) -> None:
        stops = issubclass(unraisable.exc_type, SystemExit | KeyboardInterrupt)
        if stops and stop.number is not None:
            stop.again()
        else:
            hook(unraisable)

    handlers = {number: signal.getsignal(number) for number in _ENDS}
    before = {n: h for n, h in handlers.items() if h not in (None, signal.SIG_IGN)}
    sys.unraisablehook = lost
    try:
        for number in before:
            signal.signal(number, stop.end)
        yield lambda: None if stop.number is None else 128 + stop.number
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)
