"""A run that is stopped anywhere and resumed is the run that was not."""

import csv
import errno
import os
import random
import shutil
import signal
import time

import pytest
import torch

from pctx.checkpoint import Checkpoint, load_checkpoint
from pctx.cli.lock import run_lock
from pctx.engine.checkpoints import LAST, PREVIOUS, Checkpoints
from tests.engine.children import end, run, start
from tests.toy import ARGUMENTS

TOY = [
    "data.dataset.num_train=6",
    "data.dataset.num_val=2",
    "data.dataset.sensors=[vlp16]",
    "data.num_workers=0",
    "data.grid_size=0.6",
    "data.max_points=800",
    *(f"model.{name}={value}" for name, value in ARGUMENTS.items()),
    "model.drop_path=0.2",
    "trainer.accelerator=cpu",
    "trainer.log_every_n_steps=1",
    "trainer.max_epochs=3",
    "save_every.steps=1",
]


class Killed(BaseException):
    """What no code catches."""


@pytest.fixture
def folder(tmp_path, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def scans(folder):
    return f"data.dataset.cache={folder / 'scans'}"


def last(folder):
    return torch.load(folder / "checkpoints" / LAST, weights_only=True)


def rows(folder):
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def assert_same_run(one, two):
    a, b = last(one), last(two)
    assert a["global_step"] == b["global_step"]
    assert all(torch.equal(a["state_dict"][k], b["state_dict"][k]) for k in a["state_dict"])
    a, b = load_checkpoint(one / "model.pt"), load_checkpoint(two / "model.pt")
    assert a.metrics == b.metrics
    assert all(torch.equal(a.weights[k], b.weights[k]) for k in a.weights)
    assert rows(one) == rows(two)


def kill_after(saves, monkeypatch, *arguments):
    """Train until so many states are saved; say whether the run was killed there."""
    done = []

    def save(self, trainer, real=Checkpoints.save):
        real(self, trainer)
        done.append(trainer.global_step)
        if len(done) == saves:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", save)
        try:
            run(*arguments)
        except Killed:
            return True
    return False


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    assert run(*TOY, scans(folder), f"hydra.run.dir={folder / 'run'}") == 0
    return folder


@pytest.mark.parametrize("saves", [2, 3, 4], ids=["in an epoch", "before a score", "between"])
def test_a_run_killed_after_a_save_ends_as_the_one_that_was_not(saves, whole, folder, monkeypatch):
    assert kill_after(saves, monkeypatch, *TOY, scans(whole), "hydra.run.dir=part")
    assert run("resume=part") == 0
    assert_same_run(folder / "part", whole / "run")


@pytest.mark.slow
def test_the_mean_of_the_weights_and_an_early_end_resume_too(whole, folder, monkeypatch):
    toy = [*TOY, scans(whole), "average=0.9", "patience=1"]
    assert run(*toy, "hydra.run.dir=whole") == 0
    mean = last(folder / "whole")["callbacks"]["Averaging"]["mean"]
    own = last(folder / "whole")["state_dict"]
    assert not torch.equal(mean["head.weight"], own["model.head.weight"])
    for saves in (3, 5):
        part = folder / f"part{saves}"
        assert kill_after(saves, monkeypatch, *toy, f"hydra.run.dir={part.name}")
        assert run(f"resume={part.name}") == 0
        assert_same_run(part, folder / "whole")


def test_a_damaged_checkpoint_gives_way_to_the_one_before(whole, folder, monkeypatch):
    assert kill_after(5, monkeypatch, *TOY, scans(whole), "hydra.run.dir=part")
    path = folder / "part" / "checkpoints" / LAST
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    half = path.with_name(".last.123.part.ckpt")  # of which the kill left this much
    half.write_bytes(content[:100])
    assert run("resume=part") == 0
    assert not half.exists()
    assert_same_run(folder / "part", whole / "run")


@pytest.mark.slow
def test_a_run_killed_between_two_renames_has_the_one_before(whole, folder, monkeypatch):
    assert kill_after(5, monkeypatch, *TOY, scans(whole), "hydra.run.dir=part")
    (folder / "part" / "checkpoints" / LAST).unlink()
    assert run("resume=part") == 0
    assert_same_run(folder / "part", whole / "run")


@pytest.mark.slow
def test_a_run_killed_before_its_first_checkpoint_starts_anew(whole, folder, monkeypatch):
    assert kill_after(1, monkeypatch, *TOY, scans(whole), "hydra.run.dir=part")
    for name in (LAST, PREVIOUS):
        (folder / "part" / "checkpoints" / name).unlink(missing_ok=True)
    assert run("resume=part") == 0
    assert_same_run(folder / "part", whole / "run")


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_ends_in_one_line(which, whole, folder, monkeypatch, capsys):
    def signalled(self, *_, real=Checkpoints.on_train_batch_end):
        os.kill(os.getpid(), which)
        real(self, *_)

    before = signal.getsignal(which)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "on_train_batch_end", signalled)
        assert run(*TOY, scans(whole), "save_every.steps=null", "hydra.run.dir=part") == 128 + which
    assert signal.getsignal(which) is before
    assert capsys.readouterr().err == "pctx: stopped; what was finished is kept\n"
    assert last(folder / "part")["global_step"] == 1
    assert run("resume=part") == 0
    assert_same_run(folder / "part", whole / "run")


def test_a_second_run_in_a_folder_is_refused(whole, folder, capsys):
    with run_lock(folder / "part"):
        assert run(*TOY, scans(whole), "hydra.run.dir=part") == 1
        assert f"part: process {os.getpid()} trains here" in capsys.readouterr().err
        assert [path.name for path in (folder / "part").iterdir()] == [".lock"]
    assert run(*TOY, scans(whole), "trainer.max_epochs=1", "hydra.run.dir=part") == 0


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_told_before_training(whole, folder, monkeypatch, capsys):
    usage = shutil.disk_usage(folder)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    assert run(*TOY, scans(whole), "hydra.run.dir=part") == 1
    assert "0 MB are free, and the checkpoints of this model take" in capsys.readouterr().err


@pytest.mark.slow
def test_a_disk_that_fills_up_stops_no_training_and_loses_no_model(
    whole, folder, monkeypatch, capsys
):
    toy = [*TOY, scans(whole), "trainer.max_epochs=2"]
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full_disk)
        patch.setattr(
            Checkpoint,
            "save",
            lambda self, path, real=Checkpoint.save: (
                full_disk() if path.parent.name == "part" else patch.undo() or real(self, path)
            ),
        )
        assert run(*toy, "hydra.run.dir=part") == 1
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert "model.pt cannot be written" in sentence and "No space left" in sentence
    model = load_checkpoint(sentence.split("the model is in ")[1])
    assert run(*toy, "hydra.run.dir=other") == 0
    assert model.metrics == load_checkpoint(folder / "other" / "model.pt").metrics


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_run_killed_at_random_moments_ends_as_the_one_that_was_not(whole, folder):
    seed, kills = int(os.environ.get("PCTX_SEED", "0")), int(os.environ.get("PCTX_KILLS", "3"))
    begin = time.monotonic()
    assert end(start(*TOY, scans(whole), "hydra.run.dir=alone")) == 0
    length = time.monotonic() - begin
    assert_same_run(folder / "alone", whole / "run")
    rng, reached = random.Random(seed), []
    arguments = [*TOY, scans(whole), "hydra.run.dir=part"]
    while len(reached) < kills:
        code = end(start(*arguments), rng.uniform(0, 1.5 * length / kills))
        assert code in (-signal.SIGKILL, 0, 2)
        if code != -signal.SIGKILL:
            break  # it was done before
        if (folder / "part" / ".hydra" / "overrides.yaml").is_file():
            arguments = ["resume=part"]
        reached.append(rows(folder / "part")[-1:] if (folder / "part/metrics.csv").is_file() else 0)
    assert reached
    assert end(start(*arguments)) in (0, 2)
    assert_same_run(folder / "part", whole / "run")


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_run_killed_after_any_of_its_saves_ends_as_the_one_that_was_not(
    accumulate, folder, monkeypatch
):
    toy = [*TOY, scans(folder), f"trainer.accumulate_grad_batches={accumulate}"]
    assert run(*toy, "hydra.run.dir=whole") == 0
    saves = 1
    while kill_after(saves, monkeypatch, *toy, f"hydra.run.dir=part{saves}"):
        part = folder / f"part{saves}"
        code = run(f"resume={part.name}")
        loops = last(part)["loops"]["fit_loop"]
        assert code == 0 or loops["epoch_progress"]["current"]["processed"] == 3
        assert_same_run(part, folder / "whole")
        saves += 1
    assert saves > 7


def test_a_run_killed_twice_before_a_score_is_scored(whole, folder, monkeypatch):
    assert kill_after(3, monkeypatch, *TOY, scans(whole), "hydra.run.dir=part")
    assert kill_after(1, monkeypatch, "resume=part")
    assert run("resume=part") == 0
    assert_same_run(folder / "part", whole / "run")


def test_a_fine_tuned_run_goes_on_without_the_model_that_it_started_from(
    whole, folder, monkeypatch
):
    shutil.copy(whole / "run" / "model.pt", folder / "first.pt")
    toy = [*TOY, scans(whole), "trainer.max_epochs=2", "init_from=first.pt"]
    assert kill_after(2, monkeypatch, *toy, "hydra.run.dir=part")
    (folder / "first.pt").unlink()
    assert run("resume=part") == 0
