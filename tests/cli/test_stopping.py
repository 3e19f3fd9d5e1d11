"""A signal that comes where no error leaves still ends the command."""

import signal
import subprocess
import sys
import time

import pytest

from pctx.cli.stopping import INTERRUPTED, TERMINATED, stoppable

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


@pytest.mark.parametrize(("number", "code"), [(15, TERMINATED), (2, INTERRUPTED)])
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
    with stoppable() as told:
        Wrong()
    assert shown == ["of an object"] and not told()


def test_handlers_are_as_before_afterwards():
    before = signal.getsignal(signal.SIGTERM), sys.unraisablehook
    with stoppable():
        assert signal.getsignal(signal.SIGTERM) is not before[0]
    assert (signal.getsignal(signal.SIGTERM), sys.unraisablehook) == before
