"""A process that reads files one after another under limits, and says how each reading ended.

It says `ready`; asked by a line `PATH` it answers by a line: `read`, `refused`, or `lost WHY`.
"""

import resource
import sys
from pathlib import Path

from pctx.data.io.formats import read

GIB = 1 << 30
FACTOR = 2
"""A reader may take this many times the file, and a gibibyte."""
SECONDS = 10
"""And this long, of a processor of its own."""


def main():
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    say("ready")
    for line in sys.stdin:
        path = Path(line.rstrip("\n"))
        room = FACTOR * size_of(path) + GIB
        resource.setrlimit(resource.RLIMIT_AS, (memory() + room, hard))
        answer = attempt(path)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        if peak > room:  # of the largest child so far
            answer = f"lost memory: a child took {peak} bytes"
        say(answer)


def say(word):
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def attempt(path):
    """Read a file; only an error of one sentence that names it is a refusal."""
    try:
        read(path)
    except (ValueError, OSError) as error:
        text = str(error)
        # The file, or that of its labels in a folder beside.
        if "\n" in text or str(path.parent.parent) not in text:
            return f"lost {type(error).__name__} of more than a sentence: {text!r}"
        if reserved_too_much(error):
            return f"lost memory: {text!r}"
        return "refused"
    except BaseException as error:  # a panic of Rust is one
        return f"lost {type(error).__name__}: {str(error)[:200]!r}"
    return "read"


def reserved_too_much(error):
    """Whether an error came of the limit on memory, which a person's machine does not have."""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def size_of(path):
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def memory():
    """Bytes of address space in use."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    main()
