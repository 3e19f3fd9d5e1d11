"""Commands in processes of their own, forked: all that is imported already is there at once."""

import os
import signal
import sys
import time

from pctx.cli.main import main


def run(*arguments):
    """Run `pctx train` here; give its exit code."""
    sys.argv = ["pctx", "train", *arguments]
    try:
        main()
    except SystemExit as stop:
        return stop.code or 0
    return 0


def start(*arguments, **environment):
    """Run `pctx train` in a child; give its process number."""
    pid = os.fork()
    if pid == 0:
        os.environ.update(environment)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 3
        try:
            code = run(*arguments)
        finally:
            os._exit(code)
    return pid


def end(pid, seconds=600.0):
    """Wait for a child, and kill it when time is up; give its exit code."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
