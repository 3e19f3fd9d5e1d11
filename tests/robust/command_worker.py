"""A process that has loaded everything once, and runs each command in a fork under limits.

It says `ready`; asked by a line of JSON (`arguments`, `folder`, `seconds`, `room`, and `largest`
where writing shall fail, `kill`, a signal after some seconds) it answers by one: `code`, negative
where a signal ended the command,
`spent`, seconds of a processor, `out` and `err`, what the command said.
"""

import fcntl
import json
import os
import resource
import sys
import time
from pathlib import Path

SAID = 1 << 20
"""Bytes that a command may say before somebody listens."""
PATIENCE = 12
"""A command that waits for this many times its limit hangs, whatever it does."""


def main():
    load()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        answer = run(**json.loads(line))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def load():
    """Import what commands import; not while measured, and once."""
    import hydra  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    import pytorch_lightning  # noqa: F401
    import scipy.spatial  # noqa: F401
    import torch

    import pctx.cli.main
    import pctx.convert
    import pctx.engine.datamodule
    import pctx.engine.segmentation
    import pctx.inference.attention_maps
    import pctx.inference.predictor
    import pctx.vis.html
    import pctx.vis.render  # noqa: F401

    torch.set_num_threads(1)


def run(arguments, folder, seconds, room, largest=None, kill=None):
    pipes = [os.pipe() for _ in range(2)]
    for read, _ in pipes:
        fcntl.fcntl(read, fcntl.F_SETPIPE_SZ, SAID)
    child = os.fork()
    if child == 0:
        obey(arguments, Path(folder), seconds, room, largest, [write for _, write in pipes])
    for _, write in pipes:
        os.close(write)
    begin = time.monotonic()
    while True:
        pid, status, used = os.wait4(child, os.WNOHANG)
        if pid:
            said = [heard(read) for read, _ in pipes]
            code, spent = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
            return {"code": code, "spent": spent, "out": said[0], "err": said[1]}
        if kill is not None and time.monotonic() - begin > kill[1]:
            os.kill(child, kill[0])
            kill = None
        if time.monotonic() - begin > seconds * PATIENCE:
            os.kill(child, 9)
        time.sleep(0.005)


def heard(read):
    """Empty a pipe whose writers are gone."""
    os.set_blocking(read, False)  # a child of the command may live on for a moment
    with os.fdopen(read, "rb") as stream:
        return (stream.read() or b"").decode(errors="replace")


def obey(arguments, folder, seconds, room, largest, writes):
    """Run a command as a console does, and end the process."""
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
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", encoding="utf-8", errors="replace") for number in (1, 2)
    )
    sys.argv = ["pctx", *arguments]
    from pctx.cli.main import main as command

    code = 0
    try:
        command()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 70
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def limit(what, value):
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (value, hard))


if __name__ == "__main__":
    main()
