"""Commands with files gone wrong and odd arguments: each ends well, or in a sentence.

    python -m tests.robust.fuzz_commands --cases 500

prints a row a command. A case is lost where a command ends with another code than 0, 1 and 2, shows
a traceback or an internal error, fails without a sentence, takes too long or too much memory, ends
the interpreter, changes an input, or leaves a file half written or anything outside `out`. In one
case of ten, files cannot grow beyond a few bytes, as on a full disk. The same seed gives the same
cases; `--keep DIR` keeps the lost ones.
"""

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.robust.command_cases import COMMANDS, World, make

REPOSITORY = Path(__file__).resolve().parents[2]
GIB = 1 << 30
FULL = (0, 100, 4096)
"""Bytes that a file can hold on a disk that is full."""


@dataclass
class Outcome:
    """What became of the cases of a command."""

    command: str
    codes: Counter = field(default_factory=Counter)
    lost: list = field(default_factory=list)
    full: int = 0
    twins: int = 0
    slowest: float = 0.0
    spent: float = 0.0


class Worker:
    """The process that runs commands in forks of itself."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.robust.command_worker"],
            cwd=REPOSITORY,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        if self.process.stdout.readline() != b"ready\n":
            raise RuntimeError("the process that runs commands does not start; run it to see why")

    def run(self, arguments, folder, seconds=60, room=4 * GIB, **more):
        """Run a command in a folder; give code, seconds, and what it said.

        More: `largest`, `kill`, `environment`, `user` and `closed`, as the worker takes them.
        """
        asked = {"arguments": arguments, "folder": str(folder), "seconds": seconds, "room": room}
        asked |= more
        self.process.stdin.write(json.dumps(asked).encode() + b"\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return tuple(answer[name] for name in ("code", "spent", "out", "err"))

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def fuzz(command, cases, worker, world, *, seed=0, keep=None, twins=0):
    """Run `cases` lines of a command, and `twins` of them as processes of their own too."""
    outcome = Outcome(command)
    for index in range(cases):
        rng = random.Random(f"{seed}/{command}/{index}")
        with tempfile.TemporaryDirectory(prefix="fuzz") as place:
            folder = Path(place) / "here"
            case = make(world, command, folder, rng)
            largest = rng.choice(FULL) if rng.random() < 0.1 else None
            outcome.full += largest is not None
            before = state(folder / "in")
            room = GIB + 2 * sum(size for size, _ in before.values())
            answer = worker.run(case.arguments, folder, case.seconds, room, largest=largest)
            code, spent, _, err = answer
            outcome.codes[code] += 1
            outcome.slowest, outcome.spent = max(outcome.slowest, spent), outcome.spent + spent
            wrong = judge(case, folder, code, err, before, largest)
            if not wrong and largest is None and outcome.twins < twins:
                outcome.twins += 1
                wrong = twin(command, index, world, answer, seed=seed)
            if wrong:
                outcome.lost.append(f"{command} {index}: {wrong}; {case.arguments}")
                if keep is not None:
                    shutil.copytree(place, keep / f"{command}_{index}", dirs_exist_ok=True)
    return outcome


def twin(command, index, world, answer, *, seed=0):
    """Run a case as a process of its own; say in what it ends otherwise than a fork.

    Forks of one process are a hundred times cheaper; this is what they stand for.
    """
    rng = random.Random(f"{seed}/{command}/{index}")
    with tempfile.TemporaryDirectory(prefix="twin") as place:
        folder = Path(place) / "here"
        case = make(world, command, folder, rng)
        ran = subprocess.run(
            [sys.executable, "-c", "from pctx.cli.main import main; main()", *case.arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=case.seconds * 12,
        )
    code, _, _, err = answer
    sentences = [re.findall(r"^pctx: .*", text, re.M) for text in (err, ran.stderr.decode())]
    if (code, sentences[0]) != (ran.returncode, sentences[1]):
        return f"a fork ended with {code}, a process with {ran.returncode}: {sentences}"
    return ""


def judge(case, folder, code, err, before, largest):
    """Say what is wrong with how a command ended; nothing where all is well."""
    if code not in (0, 1, 2):
        return f"ended with {code}: {err[-300:]!r}"
    if "Traceback" in err or "internal error" in err:
        return f"no sentence: {err[-300:]!r}"
    if code == 1 and not re.search(r"^pctx: .", err, re.MULTILINE):
        return f"failed without a sentence: {err[-300:]!r}"
    if code == 2 and not re.search(r"^pctx: .|Usage:", err, re.MULTILINE):
        return f"wrong usage without a sentence: {err[-300:]!r}"
    if re.search(r"cannot allocate|can't allocate|MemoryError|Unable to allocate", err):
        return f"too much memory: {err[-300:]!r}"
    # `card` writes into the folder it is given, `prepare` beside it.
    after = {k: v for k, v in state(folder / "in").items() if k in before}
    if after != before:
        return "an input was changed"
    half = [p.name for p in folder.rglob("*") if ".part" in p.name or p.name.endswith(".tmp")]
    if half:
        return f"half a file is left: {half}"
    strange = {path.name for path in folder.iterdir()} - {"in", "out"}
    strange -= set(re.findall(r"drawn instead: (.+)", err))
    told = " ".join(case.arguments)
    strange = {name for name in strange if name not in told and name not in ("runs", "cache")}
    if strange:
        return f"written elsewhere: {sorted(strange)}"
    written = [folder / name for name in case.outputs if (folder / name).is_file()]
    if code and written and case.arguments[0] != "view":  # which shows the files that can be read
        return f"failed, and left {written[0].name}"
    if largest is not None and any(path.stat().st_size == largest for path in written):
        return "a file cut short by a full disk is left"
    return ""


def state(folder):
    """What the files of a folder hold."""
    return {
        path: (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in folder.rglob("*")
        if path.is_file()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--command", choices=COMMANDS, action="append")
    parser.add_argument("--twins", type=int, default=2, help="true processes a command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    counts = "".join(f"{word:>8}" for word in ("cases", "done", "exit 1", "exit 2", "lost"))
    print(f"{'command':10}{counts}{'slowest s':>11}{'all s':>8}")
    worker, failed = Worker(), False
    with tempfile.TemporaryDirectory() as models:
        world = World(models)
        for command in args.command or COMMANDS:
            found = fuzz(
                *(command, args.cases, worker, world),
                **{"seed": args.seed, "keep": args.keep, "twins": args.twins},
            )
            done, one, two = (found.codes[code] for code in (0, 1, 2))
            lost = len(found.lost)
            times = f"{found.slowest:11.1f}{found.spent:8.0f}"
            print(f"{command:10}{args.cases:8}{done:8}{one:8}{two:8}{lost:8}{times}", flush=True)
            for line in found.lost[:20]:
                print("  ", line, flush=True)
            failed |= lost > 0
    worker.stop()
    sys.exit(failed)


if __name__ == "__main__":
    main()
