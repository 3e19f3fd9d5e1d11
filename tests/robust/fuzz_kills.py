"""Commands killed at random moments: no file is half, no input is touched, the next run goes on.

    python -m tests.robust.fuzz_kills --times 20

prints a row a command and signal. A kill is lost where the command ends otherwise than by the
signal or well, where a file of its name is not whole, where anything half written is left (but by
SIGKILL, which nobody can answer), where an input is changed, or where the next run does not come to
what an undisturbed one comes to: the same bytes, of training the same weights.
"""

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from pctx.checkpoint import load_checkpoint
from pctx.data.io.formats import read, write
from tests.robust.command_cases import CARD, QUICK
from tests.robust.fuzz_commands import Worker, state
from tests.toy import toy_checkpoint, toy_cloud

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
TWICE = (signal.SIGTERM, signal.SIGINT)
"""Signals that come twice too, to all processes of a command: from `timeout`, or of impatience."""
SCANS, POINTS = 4, 600
DATA = ["data=folder", "data.root=scans"]
COMMANDS = {
    "predict": ["predict", "model.pt", "scans", "-o", "out", "--device", "cpu"],
    "prepare": ["prepare", *DATA, "data.cache=out", "workers=0"],
    "convert": ["convert", "model.pt", "-o", "out/weights.pth", "--to", "pointcept"],
    "train": ["train", *DATA, *QUICK, "trainer.max_epochs=2", "hydra.run.dir=out/run"],
}


@dataclass
class Victim:
    """A command, the folder it runs in, how long it takes and what an undisturbed run leaves."""

    command: str
    here: Path
    takes: float
    inputs: dict
    expected: dict


def lay_out(folder):
    """Make a model, a folder of scans with a card, and give the place."""
    here = folder / "here"
    (here / "scans").mkdir(parents=True)
    toy_checkpoint().save(here / "model.pt")
    (here / "scans/card.yaml").write_text(CARD)
    for i in range(SCANS):
        write(here / f"scans/{i}.laz", toy_cloud(POINTS, seed=i))
    return here


def undisturbed(command, here, worker):
    """Run a command once, for what it comes to."""
    inputs = state(here / "scans")
    (here / "out").mkdir(exist_ok=True)
    began = time.monotonic()
    code, _, _, err = worker.run(COMMANDS[command], here, seconds=120)
    if code:
        raise RuntimeError(f"{command} does not run: {err}")
    return Victim(command, here, time.monotonic() - began, inputs, results(command, here))


def killed(victim, number, worker, rng, twice=False):
    """Kill a run at a random moment, and let another go on; say what is wrong."""
    out = victim.here / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    arguments = COMMANDS[victim.command]
    kill = [int(number), rng.random() * victim.takes]
    kill += [rng.random() * 0.1] if twice else []
    code, _, _, err = worker.run(arguments, victim.here, seconds=120, kill=kill)
    if code not in (0, -number, 128 + number) or "Traceback" in err:
        return f"ended with {code}: {err[-300:]!r}"
    for path in out.rglob("*"):
        if path.is_file() and not path.name.startswith(".") and (wrong := broken(path)):
            return wrong
    if number != signal.SIGKILL and (half := [p.name for p in out.rglob("*.part*")]):
        return f"half a file is left: {half}"
    if victim.command == "train":
        saved = (out / "run/checkpoints/last.ckpt").is_file()
        arguments = ["train", "resume=out/run"] if saved else arguments
    elif (out / "weights.pth").exists():
        (out / "weights.pth").unlink()
    code, _, _, err = worker.run(arguments, victim.here, seconds=120)
    # `predict` names files that exist already, and does the others; a training may be done.
    said = {"predict": "exists already", "train": "epochs are done"}.get(victim.command, err + ".")
    if code and said not in err:
        return f"the next run ended with {code}: {err[-300:]!r}"
    if results(victim.command, victim.here) != victim.expected:
        return "the next run comes to something else"
    return "an input was changed" if state(victim.here / "scans") != victim.inputs else ""


def broken(path):
    """Say why a file that a command has written is not whole."""
    try:
        if path.suffix in (".pth", ".ckpt"):
            torch.load(path, weights_only=True)
        elif path.suffix == ".pt":
            load_checkpoint(path)
        elif path.suffix == ".laz":
            assert len(read(path)) == POINTS
        elif path.suffix == ".scan":
            head = path.read_bytes()
            length = int.from_bytes(head[8:16], "little")
            header = json.loads(head[16 : 16 + length])
            assert len(head) == -(-(16 + length) // 64) * 64 + header["size"]
    except Exception as error:
        return f"{path.name} is not whole: {error!r}"
    return ""


def results(command, here):
    """What a command has left: bytes of files; of a training the weights, of weights themselves."""
    out = here / "out"
    if command == "train":
        weights = load_checkpoint(out / "run/model.pt").weights
        return {name: tensor.numpy().tobytes() for name, tensor in weights.items()}
    if command == "convert":
        weights = torch.load(out / "weights.pth", weights_only=True)["state_dict"]
        return {name: tensor.numpy().tobytes() for name, tensor in weights.items()}
    return {p.name: p.read_bytes() for p in out.iterdir() if not p.name.startswith(".")}


def campaign(times, worker, commands=tuple(COMMANDS), seed=0):
    """Give for each command and signal how often it was killed, and what was lost."""
    for command in commands:
        with tempfile.TemporaryDirectory(prefix="kill") as place:
            victim = undisturbed(command, lay_out(Path(place)), worker)
            kinds = [(s, False) for s in SIGNALS] + [(s, True) for s in TWICE]
            for number, twice in kinds:
                name = f"{number.name} twice" if twice else number.name
                rng = random.Random(f"{seed}/{command}/{number}/{twice}")
                ends = (killed(victim, number, worker, rng, twice) for _ in range(times))
                lost = [f"{command} {name} {i}: {end}" for i, end in enumerate(ends) if end]
                yield command, name, lost


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--command", choices=COMMANDS, action="append")
    args = parser.parse_args()
    worker, failed = Worker(), False
    for command, name, lost in campaign(args.times, worker, args.command or tuple(COMMANDS)):
        print(f"{command:10}{name:15}{args.times:6}{len(lost):6}", *lost, sep="\n  ", flush=True)
        failed |= bool(lost)
    worker.stop()
    sys.exit(failed)


if __name__ == "__main__":
    main()
