"""A process that has loaded everything once, and runs each command in a fork under limits.

It says `ready`; asked by a line of JSON (`arguments`, `folder`, `seconds`, `room`, and `largest`
where writing shall fail, `kill`, a signal after some seconds, `environment`, variables that are set
or, with null, taken away, `user`, a number, `closed`, streams that are) it answers by one: `code`,
negative where a signal ended the command, `spent`, seconds of a processor, `out` and `err`, what
the command said. A third number of `kill` are seconds until the signal comes again; both then go to
all processes of the command, as from a terminal or from `timeout`.
"""

import fcntl
import gc
import importlib
import json
import os
import pkgutil
import resource
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

SAID = 1 << 20
"""Bytes that a command may say before somebody listens."""
ENDS = (signal.SIGTERM, signal.SIGINT)
"""Signals that wait while a fork is made ready."""
PATIENCE = 12
"""A command that waits for this many times its limit hangs, whatever it does."""
TYPICAL = (["info", "none"], ["check", "data=folder", "data.root=none"])
"""Lines whose libraries are loaded beforehand."""


def main():
    # Signals end commands, also where whoever starts this has them ignored, as `nohup` does.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    load()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        answer = run(**json.loads(line))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def load():
    """Import what commands import; not while measured, and once."""
    import matplotlib.pyplot  # noqa: F401
    import pytorch_lightning  # noqa: F401
    import scipy.spatial  # noqa: F401
    import torch
    import torch.utils.tensorboard

    import pctx

    torch.set_num_threads(1)
    for module in pkgutil.walk_packages(pctx.__path__, "pctx."):
        with suppress(ImportError):  # of an extra that is not here
            importlib.import_module(module.name)
    for words in TYPICAL:
        for name in imported_by(words):
            with suppress(ImportError):
                importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what a fork looks through is copied


def imported_by(words):
    """Give the modules that a command loads beyond those that are here."""
    read, write = os.pipe()
    before = set(sys.modules)
    if os.fork() == 0:
        with suppress(BaseException):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            sys.argv = ["pctx", *words]
            os.chdir("/")
            sys.modules["pctx.cli.main"].main()
        os.write(write, " ".join(name for name in sys.modules if name not in before).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        names = stream.read().split()
    os.wait()
    return names


def run(arguments, folder, seconds, room, largest=None, kill=None, **around):
    pipes = [os.pipe() for _ in range(2)]
    for read, _ in pipes:
        fcntl.fcntl(read, fcntl.F_SETPIPE_SZ, SAID)
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
    child = os.fork()
    if child != 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
    if child == 0:
        set_up(Path(folder), seconds, room, largest, [write for _, write in pipes])
        surround(**around)
        obey(arguments)
    for _, write in pipes:
        os.close(write)
    ended = os.pidfd_open(child)
    begin = time.monotonic()
    if kill is None or not select.select([ended], [], [], kill[1])[0]:
        if kill is not None:
            strike(child, *kill)
        left = begin + seconds * PATIENCE - time.monotonic()
        if not select.select([ended], [], [], max(left, 0))[0]:
            os.kill(child, 9)
    os.close(ended)
    _, status, used = os.wait4(child, 0)
    said = [heard(read) for read, _ in pipes]
    code, spent = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
    return {"code": code, "spent": spent, "out": said[0], "err": said[1]}


def strike(child, number, _, again=None):
    """Send a signal; a second one goes, as the first, to all processes of the command."""
    if again is None:
        os.kill(child, number)
        return
    for pause in (0, again):
        time.sleep(pause)
        with suppress(ProcessLookupError):
            os.killpg(child, number)


def heard(read):
    """Empty a pipe whose writers are gone."""
    os.set_blocking(read, False)  # a child of the command may live on for a moment
    with os.fdopen(read, "rb") as stream:
        return (stream.read() or b"").decode(errors="replace")


def set_up(folder, seconds, room, largest, writes):
    """Enter a folder, give away what is said, and take up the limits."""
    os.setpgid(0, 0)
    os.chdir(folder)
    for number, write in zip((1, 2), writes, strict=True):
        os.dup2(write, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit(resource.RLIMIT_AS, pages * resource.getpagesize() + room)
    limit(resource.RLIMIT_CPU, seconds)
    limit(resource.RLIMIT_CORE, 0)
    if largest is not None:
        limit(resource.RLIMIT_FSIZE, largest)


def surround(environment=None, user=None, closed=()):
    """Become what another shell would have started."""
    for name, value in (environment or {}).items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    encoding = os.environ.get("PYTHONIOENCODING", "utf-8")
    for number in closed:
        os.close(number)
    # As Python does: no stream where there is none, and what a terminal cannot show is told of.
    sys.stdout = None if 1 in closed else os.fdopen(1, "w", encoding=encoding)
    sys.stderr = (
        None if 2 in closed else os.fdopen(2, "w", encoding=encoding, errors="backslashreplace")
    )
    sys.stdin = None if 0 in closed else os.fdopen(0, closefd=False)
    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)


def obey(arguments):
    """Run a command as a console does, and end the process."""
    sys.argv = ["pctx", *arguments]
    from pctx.cli.main import main as command

    code = 0
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
        command()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except KeyboardInterrupt:  # before the command had begun
        code = 130
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 70
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


def limit(what, value):
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (value, hard))


if __name__ == "__main__":
    main()
