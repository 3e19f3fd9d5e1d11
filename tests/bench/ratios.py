"""./run bench: a short set of ratios, compared with those in `ratios.csv` of this processor.

A ratio is what a plain way takes over what ours takes, in turns in one process, on one thread, in
time of the process. One that is more than 15 % below the table is measured once more; if it is
then too, the run fails. `--write` puts what is measured in the table.
"""

import csv
import sys
from pathlib import Path
from statistics import median

import torch

from pctx.cli.records import facts
from pctx.geometry.curves import CURVES, encode_curves
from pctx.geometry.windows import serial_windows
from pctx.inference import baseline, plain_ptv3
from pctx.inference.drive import drive_voxels
from pctx.inference.forward import measure_forward
from pctx.inference.timing import Clock
from pctx.inference.vector import measure_vector
from pctx.nn.attention import WindowAttention
from pctx.nn.mlp import MLP

TABLE = Path(__file__).with_name("ratios.csv")
COLUMNS = ("cpu", "name", "ratio")
MOST_LOST = 0.15
REPEATS = 5


def measure(repeats=REPEATS):
    """Give ratios by name."""
    clock = Clock(repeats=repeats, device=torch.device("cpu"), process=True)
    found = {}

    def compare(name, ours, plain):
        found[name] = clock.compare(name, 0, ours, plain=plain).ratio("plain")

    cells = drive_voxels(50_000)
    depth = int(cells.amax()).bit_length()
    compare(
        "curve codes",
        lambda: encode_curves(cells, depth, CURVES),
        lambda: baseline.encode_plainly(cells, depth, CURVES, baseline.hilbert_by_levels),
    )
    generator = torch.Generator().manual_seed(0)
    feat = torch.randn(8192, 64, generator=generator)
    windows = serial_windows(torch.arange(8192), torch.tensor([0, 8192]), 1024)
    ours, plain = WindowAttention(64, 4), WindowAttention(64, 4, backend="plain")
    for name, run in (("forward", _rows), ("with backward", _gradients)):
        compare(
            f"window attention, {name}",
            lambda run=run: run(ours, feat, windows),
            lambda run=run: run(plain, feat, windows),
        )
    mlp = MLP(64, 256)
    compare(
        "MLP, forward",
        lambda: _rows(mlp, feat),
        lambda: _rows(lambda rows: mlp.fc2(torch.nn.functional.gelu(mlp.fc1(rows))), feat),
    )
    for run in measure_vector(
        drive_voxels(20_000), channels=64, neighbors=16, repeats=repeats
    ).work:
        found[f"vector attention {run.name}"] = run.ratio("plain")
    plain_ptv3.spconv_is_installed = lambda: False  # it takes long to import
    for run in measure_forward(drive_voxels(6000), repeats=max(1, repeats // 2)).work:
        found[f"ptv3_base, {run.name}"] = run.ratio("plain")
    return found


def lost(found, known):
    """Name the ratios that are too far below the table."""
    return [name for name, ratio in known.items() if found[name] < (1 - MOST_LOST) * ratio]


def read_table(path, cpu):
    """Give the ratios of a processor by name."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {
            row["name"]: float(row["ratio"]) for row in csv.DictReader(file) if row["cpu"] == cpu
        }


def write_table(path, cpu, found):
    """Put the ratios of a processor in the table, in place of those it had."""
    rows = []
    if path.exists():
        with path.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["cpu"] != cpu]
    rows += [{"cpu": cpu, "name": name, "ratio": f"{ratio:.2f}"} for name, ratio in found.items()]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main(arguments):
    """Measure, compare and say; the exit code is 1 where something is lost."""
    torch.set_num_threads(1)
    cpu = facts("cpu")["cpu"]
    known = read_table(TABLE, cpu)
    found = measure()
    if "--write" in arguments:
        write_table(TABLE, cpu, found)
        known = {}
    worse = lost(found, known)
    if worse:
        again = measure()
        found = {name: max(found[name], again[name]) for name in found}
        worse = lost(found, known)
    for name, ratio in found.items():
        before = f"{known[name]:.2f}" if name in known else ""
        print(f"{name:32}{ratio:8.2f}{before:>8}{'  ✗' if name in worse else ''}")
    if not known:
        print(f"{TABLE.name} had no ratios of {cpu}; ./run bench --write puts these there")
    else:
        print(f"median change {median(found[n] / known[n] for n in known) - 1:+.0%}")
    return 1 if worse else 0


def _rows(module, *inputs):
    with torch.no_grad():
        return module(*inputs)


def _gradients(module, *inputs):
    return torch.autograd.grad(module(*inputs).sum(), list(module.parameters()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
