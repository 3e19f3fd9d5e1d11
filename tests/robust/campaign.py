"""Everything that may go wrong, at length: ./run robust. Prints a table, and puts it into the docs.

    ./run robust                         (10,000 files a format, 500 lines a command; hours)
    ./run robust --readers 500 --commands 20 --kills 2
    ./run robust --only kills            (the rows of the others stay as they are)
    ./run robust --workers 2             (two formats, commands or kills at a time)

A row is a kind: inputs tried, faults put in, how many of them all survived, how many were lost.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from queue import SimpleQueue
from xml.etree import ElementTree

from tests.conftest import SHARED
from tests.robust import fuzz_commands, fuzz_kills, fuzz_readers
from tests.robust.command_cases import COMMANDS, World
from tests.robust.seeds import FORMATS

PAGE = fuzz_commands.REPOSITORY / "docs/robustness.md"
ALL = "**all**"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
HEAD = "| what | inputs tried | faults injected | survived | lost |\n|---|---:|---:|---:|---:|\n"
SUITES = {
    "tests/robust/test_kills.py": "files half written",
    "tests/robust/test_security.py": "hostile files: pickles, targets, archives",
    "tests/robust/test_degenerate.py": "degenerate clouds",
    "tests/models/test_degenerate.py": "degenerate clouds: models",
    "tests/robust/test_surroundings.py": "odd names, links, users, terminals, streams",
    "tests/robust/test_faults.py": "kinds of fault of the field",
    "tests/engine/test_resume.py": "training killed, resumed, of full disks",
}
"""Files of tests, and what their faults are."""
KINDS = {
    "kills by tests": r"test_a_command_killed|test_a_conversion_killed",
    "full and sealed disks": r"disk.*(half_file|no_file)",
    "inputs that change while they are read": r"that_changes",
    "two at once": r"two_runs|second_run",
    "degenerate clouds: transforms": r"every_transform",
    "degenerate clouds: windows": r"kind_of_window",
    "degenerate clouds: commands": r"every_command_takes",
}
"""Faults of some tests of those files, by their names."""


@dataclass
class Row:
    """A kind, and what became of it."""

    what: str
    tried: int
    injected: int
    lost: int

    def __str__(self):
        numbers = (self.tried, self.injected, self.tried + self.injected - self.lost, self.lost)
        return f"| {self.what} | " + " | ".join(f"{number:,}" for number in numbers) + " |"


def shared(start, workers, task, kinds):
    """Give task(worker, kind) for each kind as soon as it is done, from several at a time.

    Args:
        start: makes a worker, a process that tries things.
        workers: how many there are.
    """
    made = [start() for _ in range(workers)]
    free = SimpleQueue()
    for worker in made:
        free.put(worker)

    def one(kind):
        worker = free.get()
        try:
            return task(worker, kind)
        finally:
            free.put(worker)

    with ThreadPoolExecutor(workers) as pool:
        for done in as_completed([pool.submit(one, kind) for kind in kinds]):
            yield done.result()
    for worker in made:
        worker.stop()


def readers(cases, workers):
    """Give a row a format; a file that went wrong is an input and a fault in one."""

    def row(worker, kind):
        found = fuzz_readers.fuzz(SHARED / "data" / "real", kind, cases, worker)
        return Row(f"read {kind}", sum(found.counts.values()), 0, len(found.lost)), found.lost

    yield from shared(fuzz_readers.Worker, workers, row, FORMATS)


def commands(cases, twins, workers):
    """Give a row a command; the faults are full disks."""
    with tempfile.TemporaryDirectory() as models:
        world = World(models)

        def row(worker, command):
            found = fuzz_commands.fuzz(command, cases, worker, world, twins=twins)
            counts = cases - found.full, found.full, len(found.lost)
            return Row(f"pctx {command}", *counts), found.lost

        yield from shared(fuzz_commands.Worker, workers, row, COMMANDS)


def kills(times, workers):
    """Give a row a command and signal, which ends it at random moments."""

    def rows(worker, command):
        return [
            (Row(f"pctx {command}, {name}", 0, times, len(lost)), lost)
            for _, name, lost in fuzz_kills.campaign(times, worker, [command])
        ]

    for found in shared(fuzz_commands.Worker, workers, rows, fuzz_kills.COMMANDS):
        yield from found


def suites():
    """Give a row a kind of tests, each of whose cases is a fault that is put in."""
    injected, lost = Counter(), {}
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        command = [sys.executable, "-m", "pytest", "-q", *SUITES, f"--junitxml={report.name}"]
        subprocess.run(command, cwd=fuzz_commands.REPOSITORY, stdout=subprocess.DEVNULL)
        for case in ElementTree.parse(report.name).iter("testcase"):
            name = case.get("name")
            file = case.get("classname").replace(".", "/") + ".py"
            what = next((k for k, v in KINDS.items() if re.search(v, name)), SUITES[file])
            failed = case.find("failure") is not None or case.find("error") is not None
            injected[what] += case.find("skipped") is None
            lost.setdefault(what, []).extend([name] if failed else [])
    for what, number in injected.items():
        yield Row(what, 0, number, len(lost[what])), lost[what]


def read_rows(page=PAGE):
    """Read the rows of the page."""
    table = page.read_text().partition(BEGIN)[2].partition(END)[0]
    for line in table.splitlines()[3:]:
        what, tried, injected, _, lost = (cell.strip() for cell in line.strip("| \n").split("|"))
        if what != ALL:
            yield Row(what, *(int(cell.replace(",", "")) for cell in (tried, injected, lost)))


def write(rows, page=PAGE):
    """Put rows between the marks of the page, and the sum below; those of other kinds stay."""
    merged = {row.what: row for row in (*read_rows(page), *rows)}.values()
    sums = (sum(getattr(row, name) for row in merged) for name in ("tried", "injected", "lost"))
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    table = HEAD + "".join(f"{row}\n" for row in (*merged, Row(ALL, *sums)))
    page.write_text(f"{before}{BEGIN}\n{table}{END}{after}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readers", type=int, default=10_000, help="files a format")
    parser.add_argument("--commands", type=int, default=500, help="lines a command")
    parser.add_argument("--twins", type=int, default=2, help="of those, true processes")
    parser.add_argument("--kills", type=int, default=20, help="of a command by a signal")
    parser.add_argument("--workers", type=int, default=1, help="that many at a time")
    parser.add_argument("--only", choices=("readers", "commands", "kills", "suites"))
    args = parser.parse_args()
    if not (SHARED / "data" / "real").is_dir():
        parser.error(f"the real scans are not beside the checkout ({SHARED / 'data' / 'real'})")
    parts = {
        "readers": lambda: readers(args.readers, args.workers),
        "commands": lambda: commands(args.commands, args.twins, args.workers),
        "kills": lambda: kills(args.kills, args.workers),
        "suites": suites,
    }
    failed = False
    print(HEAD, end="")
    for name in parts if args.only is None else [args.only]:
        for row, lost in parts[name]():
            print(row, *lost, sep="\n  ", flush=True)
            write([row])
            failed |= row.lost > 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
