"""Real files gone wrong, thousands of each format: readers read them or refuse them, nothing else.

    python -m tests.robust.fuzz_readers --cases 10000

prints a row a format. A case is lost where the reader ends in anything but a sentence that names
the file, takes more than 10 s of a processor, takes more memory than twice the file and 1 GiB,
or ends the interpreter. The same seed gives the same cases; `--keep DIR` keeps the lost ones.
"""

import argparse
import os
import random
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import SHARED
from tests.robust.mutations import mutate
from tests.robust.seeds import FORMATS, seeds
from tests.robust.worker import SECONDS

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE = 12
"""A process that waits for this many times the limit hangs, whatever it does."""
COMMAND = ("-m", "tests.robust.worker")


@dataclass
class Outcome:
    """What became of the cases of a format."""

    kind: str
    counts: Counter = field(default_factory=Counter)
    lost: list = field(default_factory=list)
    slowest: float = 0.0


class Worker:
    """A process that reads files; a new one takes its place where it ends or hangs."""

    def __init__(self):
        self.process = None
        self.slowest = 0.0

    def ask(self, path):
        if self.process is None:
            self.start()
        try:
            self.process.stdin.write(f"{path}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            return self.ended()
        begin, spent = time.monotonic(), self.spent()
        while not select.select([self.process.stdout], [], [], SECONDS / 20)[0]:
            # Others may have the processor: what counts is what the reader had of it.
            idle = time.monotonic() - begin > SECONDS * PATIENCE
            if idle or self.spent() - spent > SECONDS:
                self.stop()
                return f"lost hang: more than {SECONDS} s"
        answer = self.process.stdout.readline().decode().strip()
        if answer:
            self.slowest = max(self.slowest, self.spent() - spent)
        return answer or self.ended()

    def spent(self):
        """Seconds of a processor that the process has had."""
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, *COMMAND],
            cwd=REPOSITORY,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        if self.process.stdout.readline() != b"ready\n":
            raise RuntimeError("the reading process does not start; run it to see why")

    def ended(self):
        code = self.process.wait()
        self.stop()
        return f"lost crash: the interpreter ended with {code}"

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None


def fuzz(root, kind, cases, worker, *, seed=0, keep=None):
    """Read `cases` files of a format gone wrong."""
    outcome, sound, worker.slowest = Outcome(kind), seeds(root, kind), 0.0
    with tempfile.TemporaryDirectory(prefix="fuzz") as place:
        for index in range(cases):
            path = lay_out(Path(place), sound, kind, random.Random(f"{seed}/{kind}/{index}"))
            answer = worker.ask(path)
            outcome.counts[answer.split()[0]] += 1
            if answer.startswith("lost"):
                outcome.lost.append(f"{kind} case {index} ({path.name}): {answer}")
                if keep is not None:
                    shutil.copytree(place, keep / f"{kind}_{index}", dirs_exist_ok=True)
    outcome.slowest = worker.slowest
    return outcome


def lay_out(place, sound, kind, rng):
    """Write the files of a case, one of them gone wrong, and give the one to read."""
    for file in sorted(place.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    files, other = dict(rng.choice(sound)), rng.choice(sound)
    name = rng.choice(list(files))
    files[name] = mutate(files[name], rng.choice(list(other.values())), kind, rng)
    for file, data in files.items():
        (place / file).parent.mkdir(exist_ok=True)
        (place / file).write_bytes(data)
    first = place / next(iter(files))
    return first.parent if kind == "folder" else first


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--format", choices=FORMATS, action="append")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    print(f"{'format':10}{'cases':>8}{'read':>8}{'refused':>9}{'lost':>6}{'slowest s':>11}")
    failed, worker = False, Worker()
    for kind in args.format or FORMATS:
        found = fuzz(
            SHARED / "data" / "real", kind, args.cases, worker, seed=args.seed, keep=args.keep
        )
        read, refused, lost = (found.counts[word] for word in ("read", "refused", "lost"))
        print(
            f"{kind:10}{args.cases:8}{read:8}{refused:9}{lost:6}{found.slowest:11.2f}", flush=True
        )
        for line in found.lost[:20]:
            print("  ", line, flush=True)
        failed |= lost > 0
    worker.stop()
    sys.exit(failed)


if __name__ == "__main__":
    main()
