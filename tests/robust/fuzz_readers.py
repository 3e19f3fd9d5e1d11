"""Real files gone wrong, thousands of each format: readers read them or refuse them, nothing else.

    python -m tests.robust.fuzz_readers --cases 10000

prints a row a format. A case is lost where the reader ends in anything but a sentence that names
the file, takes more than 10 s, takes more memory than twice the file and 1 GiB, or ends the
interpreter. The same seed gives the same cases; `--keep DIR` keeps the lost ones.
"""

import argparse
import os
import random
import select
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

    def ask(self, path):
        if self.process is None:
            self.start()
        try:
            self.process.stdin.write(f"{path}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            return self.ended()
        ready, _, _ = select.select([self.process.stdout], [], [], SECONDS)
        if not ready:
            self.stop()
            return f"lost hang: more than {SECONDS} s"
        answer = self.process.stdout.readline().decode().strip()
        return answer or self.ended()

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.robust.worker"],
            cwd=REPOSITORY,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

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


def fuzz(root, kind, cases, *, seed=0, keep=None):
    """Read `cases` files of a format gone wrong."""
    outcome, sound, worker = Outcome(kind), seeds(root, kind), Worker()
    with tempfile.TemporaryDirectory(prefix="fuzz") as place:
        try:
            for index in range(cases):
                path = lay_out(Path(place), sound, kind, random.Random(f"{seed}/{kind}/{index}"))
                start = time.monotonic()
                answer = worker.ask(path)
                if index:  # the first one waits for the imports
                    outcome.slowest = max(outcome.slowest, time.monotonic() - start)
                outcome.counts[answer.split()[0]] += 1
                if answer.startswith("lost"):
                    outcome.lost.append(f"{kind} case {index} ({path.name}): {answer}")
                    if keep is not None:
                        kept = keep / f"{kind}_{index}"
                        kept.mkdir(parents=True, exist_ok=True)
                        for file in sorted(path.parent.rglob("*")):
                            if file.is_file():
                                file.rename(kept / file.name)
        finally:
            worker.stop()
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
    failed = False
    for kind in args.format or FORMATS:
        found = fuzz(SHARED / "data" / "real", kind, args.cases, seed=args.seed, keep=args.keep)
        read, refused, lost = (found.counts[word] for word in ("read", "refused", "lost"))
        print(
            f"{kind:10}{args.cases:8}{read:8}{refused:9}{lost:6}{found.slowest:11.2f}", flush=True
        )
        for line in found.lost[:20]:
            print("  ", line, flush=True)
        failed |= lost > 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
