"""Kills, full disks, read-only folders and changing inputs: no file is lost, none is half."""

import dataclasses
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from pctx.checkpoint import load_checkpoint
from pctx.data.io.atomic import replacing
from pctx.data.io.formats import read, write
from pctx.data.io.unchanged import unchanged
from pctx.inference import streaming
from pctx.inference.predictor import Predictor
from pctx.inference.streaming import label_las
from tests.robust.fuzz_commands import Worker
from tests.robust.fuzz_kills import (
    COMMANDS,
    SCANS,
    SIGNALS,
    TWICE,
    broken,
    killed,
    lay_out,
    undisturbed,
)
from tests.toy import toy_checkpoint, toy_cloud

QUICK = ("predict", "prepare", "convert")


@pytest.fixture
def here(tmp_path):
    """A model, a folder of scans with a card, and published weights."""
    return lay_out(tmp_path)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda s: s.name)
@pytest.mark.parametrize("command", QUICK)
def test_a_command_killed_at_any_moment_leaves_whole_files_and_goes_on(
    command, number, here, worker
):
    victim, rng = undisturbed(command, here, worker), random.Random(f"{command}{number}")
    for twice in (False, True) if number in TWICE else (False,):
        assert not killed(victim, number, worker, rng, twice)


def test_kills_that_lose_something_are_seen(here, worker):
    victim, rng = undisturbed("prepare", here, worker), random.Random(0)
    wrong = dataclasses.replace(victim, expected={})
    assert "something else" in killed(wrong, signal.SIGTERM, worker, rng)
    wrong = dataclasses.replace(victim, inputs={})
    assert "input was changed" in killed(wrong, signal.SIGTERM, worker, rng)
    (here / "half.laz").write_bytes((here / "scans/0.laz").read_bytes()[:999])
    assert "not whole" in broken(here / "half.laz")


def whole(path):
    assert not broken(path)


@pytest.mark.parametrize("largest", [0, 1000, 30_000])
@pytest.mark.parametrize("command", QUICK)
def test_a_disk_that_fills_up_is_a_sentence_and_leaves_no_file(command, largest, here, worker):
    """Files of a process that may be no larger: the write fails as on a full disk."""
    code, _, _, err = worker.run(COMMANDS[command], here, largest=largest)
    # Of the files, some are small enough for the largest.
    assert code == 1 or largest == 30_000, err
    assert "Traceback" not in err and "internal error" not in err
    for path in (here / "out").rglob("*") if (here / "out").exists() else ():
        assert path.is_dir() or not path.name.startswith("."), path
        if path.is_file():
            whole(path)
    if command != "convert":
        assert worker.run([*COMMANDS[command]], here)[0] in (0, 1)
        assert len(list((here / "out").iterdir())) == SCANS


def test_a_graph_for_which_there_is_no_room_is_a_sentence(here, worker):
    code, _, _, err = worker.run(["export", "model.pt", "-o", "out/net.pt2"], here, largest=4096)
    assert code == 1 and "pctx: " in err and "terminate called" not in err, err
    assert not list((here / "out").iterdir())


@pytest.fixture
def disk(tmp_path):
    """A file system of 8 kB, and one that cannot be written to."""
    made = []
    for name, options in (("small", "size=8k"), ("sealed", "size=8k,ro")):
        folder = tmp_path / name
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("file systems can be mounted by root alone")
        made.append(folder)
    yield made
    for folder in made:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_real_full_disk_and_a_sealed_one_are_told_and_keep_no_half_file(disk, here, worker):
    small, sealed = disk
    for place, says in ((small, "No space left"), (sealed, "Read-only|cannot be written")):
        for command in QUICK:
            arguments = [a.replace("out/weights.pth", f"{place}/w.pth") for a in COMMANDS[command]]
            arguments = [a.replace("=out", f"={place}/cache") for a in arguments]
            arguments = [f"{place}/labels" if a == "out" else a for a in arguments]
            code, _, _, err = worker.run(arguments, here)
            assert code == 1 and re.search(says, err), (command, err)
            assert "Traceback" not in err and "internal error" not in err
            assert not list(place.rglob("*.part*"))
            for path in place.rglob("*"):
                if path.is_file():
                    whole(path)
                    path.unlink()


def test_an_input_that_changes_while_it_is_read_is_told(tmp_path):
    path = tmp_path / "a.las"
    path.write_bytes(b"half")
    with pytest.raises(ValueError, match=r"a\.las: changed while it was read"), unchanged(path):
        path.write_bytes(b"half and more")
    with pytest.raises(ValueError, match="changed while it was read"), unchanged(path):
        path.write_bytes(b"less")
        raise IndexError
    with pytest.raises(IndexError), unchanged(path):
        raise IndexError
    with unchanged(path):
        pass


def test_a_file_that_changes_while_it_is_labelled_has_no_labels(tmp_path, monkeypatch):
    cloud, source = toy_cloud(2000), tmp_path / "a.las"
    write(source, cloud)
    boxes = streaming._boxes

    def meanwhile(*arguments):
        write(source, toy_cloud(1000, seed=5), overwrite=True)
        return boxes(*arguments)

    monkeypatch.setattr(streaming, "_boxes", meanwhile)
    with pytest.raises(ValueError, match="changed while it was read"):
        label_las(Predictor(toy_checkpoint()), source, tmp_path / "out.las")
    assert not (tmp_path / "out.las").exists()
    monkeypatch.undo()
    assert label_las(Predictor(toy_checkpoint()), source, tmp_path / "out.las") == 1000


def test_a_second_run_at_a_file_that_is_being_labelled_is_refused_and_the_first_ends_well(
    tmp_path, monkeypatch
):
    source, target = tmp_path / "a.las", tmp_path / "out.las"
    write(source, toy_cloud(2000))
    boxes, refused = streaming._boxes, []

    def meanwhile(*arguments):
        monkeypatch.setattr(streaming, "_boxes", boxes)
        with pytest.raises(FileExistsError, match="another run works in it") as found:
            label_las(Predictor(toy_checkpoint()), source, target)
        refused.append(found)
        return boxes(*arguments)

    monkeypatch.setattr(streaming, "_boxes", meanwhile)
    assert label_las(Predictor(toy_checkpoint()), source, target) == 2000
    assert refused and len(read(target)) == 2000
    assert not list(tmp_path.glob(".*"))


def test_of_two_runs_that_write_a_file_the_first_to_end_keeps_it(tmp_path):
    path = tmp_path / "a.txt"
    told = pytest.raises(FileExistsError, match="exists already")
    with told, replacing(path, overwrite=False) as beside:
        beside.write_text("second")
        path.write_text("first")
    assert path.read_text() == "first" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("command", ["predict", "prepare"])
def test_two_runs_in_one_folder_both_end_and_every_file_is_right(command, here, worker):
    assert worker.run(COMMANDS[command], here)[0] == 0
    expected = {p.name: p.read_bytes() for p in (here / "out").iterdir()}
    shutil.rmtree(here / "out")
    other, answers = Worker(), []
    try:
        thread = threading.Thread(target=lambda: answers.append(other.run(COMMANDS[command], here)))
        thread.start()
        answers.append(worker.run(COMMANDS[command], here))
        thread.join()
    finally:
        other.stop()
    for code, _, _, err in answers:
        # Who comes second at a file says so, and goes on.
        assert code == 0 or (command == "predict" and "exists already" in err), err
    assert {p.name: p.read_bytes() for p in (here / "out").iterdir()} == expected


def test_a_model_file_is_whole_or_the_one_before(tmp_path, monkeypatch):
    path = tmp_path / "model.pt"
    toy_checkpoint(seed=0).save(path)
    before, save = path.read_bytes(), torch.save

    def fails(content, beside):
        save(content, beside)
        with Path(beside).open("r+b") as stream:
            stream.truncate(100)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", fails)
    with pytest.raises(OSError, match="No space left"):
        toy_checkpoint(seed=1).save(path)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1
    load_checkpoint(path)


def test_the_same_seed_gives_the_same_labels_in_another_process(here, tmp_path):
    code = "import sys; from pctx.cli.main import main; main()"
    for name in ("one.npz", "two.npz"):
        arguments = ["predict", "model.pt", "scans/0.laz", "-o", name, "--device", "cpu"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(
            [sys.executable, "-c", code, *arguments, "--probabilities"],
            cwd=here,
            env=environment,
            check=True,
            capture_output=True,
        )
    assert (here / "one.npz").read_bytes() == (here / "two.npz").read_bytes()
    assert np.isfinite(read(here / "one.npz").coord).all()
