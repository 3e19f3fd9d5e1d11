"""Everything that may go wrong, at length: ./run robust. Prints a table, and puts it into the docs.

    ./run robust                         (10,000 files a format, 500 lines a command; hours)
    ./run robust --readers 500 --commands 20

A row is a kind: inputs tried, faults put in, how many of them all survived, how many were lost.
"""

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.conftest import SHARED
from tests.robust import fuzz_commands, fuzz_readers
from tests.robust.command_cases import COMMANDS, World
from tests.robust.seeds import FORMATS

PAGE = fuzz_commands.REPOSITORY / "docs/robustness.md"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
HEAD = "| what | inputs tried | faults injected | survived | lost |\n|---|---:|---:|---:|---:|\n"
SLOW_PART = 10
"""Of the lines of a quick command, one in so many is tried of `train` and `export`."""
SUITES = {
    "kills, full disks, changing inputs, two at once": "tests/robust/test_kills.py",
    "hostile files": "tests/robust/test_security.py",
    "degenerate clouds: transforms, windows, commands": "tests/robust/test_degenerate.py",
    "degenerate clouds: models": "tests/models/test_degenerate.py",
    "kinds of fault": "tests/robust/test_faults.py",
    "training killed and resumed": "tests/engine/test_resume.py",
}


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


def readers(cases):
    """Give a row a format; a file that went wrong is an input and a fault in one."""
    worker = fuzz_readers.Worker()
    for kind in FORMATS:
        found = fuzz_readers.fuzz(SHARED / "data" / "real", kind, cases, worker)
        yield Row(f"read {kind}", sum(found.counts.values()), 0, len(found.lost)), found.lost
    worker.stop()


def commands(cases):
    """Give a row a command; the faults are full disks."""
    worker = fuzz_commands.Worker()
    with tempfile.TemporaryDirectory() as models:
        world = World(models)
        for command in COMMANDS:
            slow = command in ("train", "export")
            number = max(cases // SLOW_PART, 1) if slow else cases
            found = fuzz_commands.fuzz(command, number, worker, world)
            row = Row(f"pctx {command}", number - found.full, found.full, len(found.lost))
            yield row, found.lost
    worker.stop()


def suites():
    """Give a row a file of tests, each of whose cases is a fault that is put in."""
    for what, path in SUITES.items():
        with tempfile.NamedTemporaryFile(suffix=".xml") as report:
            command = [sys.executable, "-m", "pytest", "-q", path, f"--junitxml={report.name}"]
            subprocess.run(command, cwd=fuzz_commands.REPOSITORY, stdout=subprocess.DEVNULL)
            cases = list(ElementTree.parse(report.name).iter("testcase"))
        lost = [
            c.get("name")
            for c in cases
            if c.find("failure") is not None or c.find("error") is not None
        ]
        skipped = sum(case.find("skipped") is not None for case in cases)
        yield Row(what, 0, len(cases) - skipped, len(lost)), lost


def write(rows, page=PAGE):
    """Put the table between the marks of the page."""
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    table = HEAD + "".join(f"{row}\n" for row in rows)
    page.write_text(f"{before}{BEGIN}\n{table}{END}{after}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readers", type=int, default=10_000, help="files a format")
    parser.add_argument("--commands", type=int, default=500, help="lines a command")
    args = parser.parse_args()
    if not (SHARED / "data" / "real").is_dir():
        parser.error(f"the real scans are not beside the checkout ({SHARED / 'data' / 'real'})")
    rows = []
    print(HEAD, end="")
    for part in (readers(args.readers), commands(args.commands), suites()):
        for row, lost in part:
            rows.append(row)
            print(row, *lost, sep="\n  ", flush=True)
    total = Row(
        "**all**", *(sum(getattr(r, n) for r in rows) for n in ("tried", "injected", "lost"))
    )
    print(total)
    write([*rows, total], Path(PAGE))
    sys.exit(total.lost > 0)


if __name__ == "__main__":
    main()
