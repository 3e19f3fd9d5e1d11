"""A signal that comes where no error leaves still ends the command."""

import os
import signal
import subprocess
import sys
import time

import pytest

from pctx.cli.stopping import HUNG_UP, INTERRUPTED, TERMINATED, stoppable

ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TIDYING = """
import os, sys, time
from pctx.cli.stopping import stoppable

class Tidied:
    def __del__(self):
        os.kill(os.getpid(), {number})
        time.sleep(5)

with stoppable():
    Tidied()
    time.sleep(20)
"""


@pytest.mark.parametrize(("number", "code"), [(15, TERMINATED), (2, INTERRUPTED), (1, HUNG_UP)])
def test_a_signal_that_is_lost_while_an_object_is_tidied_up_comes_again(number, code):
    begin = time.monotonic()
    program = TIDYING.format(number=number)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode in (code, -number) and time.monotonic() - begin < 15
    assert "Exception ignored" not in ran.stderr


def test_other_errors_where_none_leaves_are_shown(monkeypatch):
    class Wrong:
        def __del__(self):
            raise ValueError("of an object")

    shown = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: shown.append(str(found.exc_value)))
    with stoppable() as code:
        Wrong()
    assert shown == ["of an object"] and code() is None


def test_handlers_are_as_before_afterwards():
    def state():
        return [sys.unraisablehook, *map(signal.getsignal, ENDS)]

    before = state()
    with stoppable():
        assert not set(before) & set(state())
    assert state() == before


@pytest.mark.parametrize("number", ENDS, ids=lambda s: s.name)
def test_a_signal_that_comes_twice_does_not_end_the_tidying(number):
    tidied = []
    with pytest.raises((SystemExit, KeyboardInterrupt)), stoppable() as code:
        try:
            os.kill(os.getpid(), number)
            time.sleep(5)
        finally:
            os.kill(os.getpid(), number)
            time.sleep(0.01)
            tidied.append(code())
    assert tidied == [128 + number]


def test_signals_that_are_ignored_stay_so():
    """As `nohup` and a shell's `&` have it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stoppable() as code:
            os.kill(os.getpid(), signal.SIGHUP)
        assert code() is None
    finally:
        signal.signal(signal.SIGHUP, before)
