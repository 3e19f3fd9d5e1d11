"""A training from the command line, at toy size."""

import csv
import json
import time

import pytest
import torch

from pctx.checkpoint import Checkpoint, build_model, load_checkpoint
from pctx.data.cards import card
from pctx.data.features import FeatureSpec
from pctx.engine.progress import Lines
from tests.toy import ARGUMENTS, BACKBONE

TOY = [
    "data.dataset.num_train=3",
    "data.dataset.num_val=1",
    "data.dataset.sensors=[vlp16]",
    "data.dataset.cache=scans",
    "data.num_workers=0",
    "data.grid_size=0.6",
    "data.max_points=1500",
    *(f"model.{name}={value}" for name, value in ARGUMENTS.items()),
    "model.drop_path=0.2",
    "trainer.accelerator=cpu",
    "trainer.log_every_n_steps=1",
]


def losses(folder):
    with (folder / "metrics.csv").open() as file:
        return [float(row["train/loss"]) for row in csv.DictReader(file) if row["train/loss"]]


@pytest.fixture
def train(pctx):
    def run(*overrides):
        code, _, err = pctx("train", *TOY, *overrides)
        assert code == 0, err

    return run


def test_a_run_leaves_what_it_promises(train, pctx, tmp_path):
    train("trainer.max_epochs=1", "hydra.run.dir=run")
    run = tmp_path / "run"
    for name in (
        ".hydra/config.yaml",
        "checkpoints/best.ckpt",
        "checkpoints/last.ckpt",
        "checkpoints/previous.ckpt",
        "environment.json",
        "model.pt",
        "metrics.csv",
        "confusion.png",
        "curves.png",
    ):
        assert (run / name).is_file(), name
    checkpoint = load_checkpoint(run / "model.pt")
    assert checkpoint.grid_size == 0.6
    assert len(checkpoint.labels) == 10
    code, out, err = pctx("evaluate", f"checkpoint={run / 'model.pt'}", "hydra.run.dir=scores")
    assert code == 0, err
    assert "road" in out
    scores = json.loads((tmp_path / "scores" / "metrics.json").read_text())
    # Validation in training and evaluation from the file are the same number.
    assert scores["miou"] == pytest.approx(checkpoint.metrics["miou"], abs=1e-9)


def test_the_same_seed_trains_the_same(train, tmp_path):
    train("trainer.max_epochs=1", "hydra.run.dir=one")
    train("trainer.max_epochs=1", "hydra.run.dir=two")
    assert losses(tmp_path / "one") == losses(tmp_path / "two")
    one, two = (load_checkpoint(tmp_path / n / "model.pt").weights for n in ("one", "two"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(
    train,
    pctx,
    tmp_path,
    monkeypatch,
):
    train("trainer.max_epochs=3", "hydra.run.dir=whole")

    def stop(self, trainer, pl_module):
        if trainer.current_epoch == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Lines, "on_train_epoch_end", stop)
        code, _, err = pctx("train", *TOY, "trainer.max_epochs=3", "hydra.run.dir=parts")
    assert code == 130
    assert "stopped" in err
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")[:4]
    code, _, err = pctx("train", "resume=parts")
    assert code == 0, err
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    parts, whole = (load_checkpoint(tmp_path / n / "model.pt").weights for n in ("parts", "whole"))
    assert all(torch.equal(parts[name], whole[name]) for name in whole)


def test_a_finished_run_is_not_resumed_and_no_run_is_written_over(train, pctx, tmp_path):
    train("trainer.max_epochs=2", "hydra.run.dir='a run=[1]'")
    run = tmp_path / "a run=[1]"
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    code, _, err = pctx("train", *TOY, "hydra.run.dir='a run=[1]'")
    assert code == 2
    assert "holds a run already" in err
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    code, _, err = pctx("train", "resume='a run=[1]'")
    assert code == 2
    assert "its 2 epochs are done; a new run starts from its model: init_from=" in err
    code, _, err = pctx("train", "resume='a run=[1]'", "trainer.max_epochs=9")
    assert code == 2
    assert "its learning rate ends after 2 epochs" in err
    code, _, err = pctx("train", "resume='a run=[1]'", "optim.lr=0.1")
    assert code == 2
    assert "with its own model and optimiser, so optim.lr cannot change; a new run" in err
    for path in ("model.pt", "metrics.csv"):
        assert (run / path).read_bytes() == before[run / path]
    for name in ("last.ckpt", "previous.ckpt"):
        (run / "checkpoints" / name).write_bytes(b"x")
    code, _, err = pctx("train", "resume='a run=[1]'")
    assert code == 1
    assert "last.ckpt: a damaged checkpoint" in err
    # The data of the run, not the default of `evaluate`.
    code, out, err = pctx("evaluate", "checkpoint='a run=[1]/model.pt'")
    assert code == 0, err
    assert "split val, 1 scan," in out


def test_a_training_without_a_validation_says_that_it_left_no_model(pctx):
    code, _, err = pctx("train", *TOY, "trainer.max_epochs=0", "hydra.run.dir=run")
    assert code == 1
    assert "ended before a validation" in err.splitlines()[-1]


def test_flags_of_hydra_may_stand_between_overrides(pctx, tmp_path):
    code, out, err = pctx("train", "seed=7", "--cfg", "job", "name=x")
    assert code == 0, err
    assert "seed: 7" in out and "name: x" in out
    code, _, err = pctx("train", *TOY, "-m", "seed=1,2", "trainer.max_epochs=1")
    assert code == 0, err
    models = tmp_path.glob("runs/ptv3_tiny-street/*/*/model.pt")
    assert sorted(path.parent.name for path in models) == ["0", "1"]


def test_fine_tuning_starts_from_a_model(train, tmp_path):
    train("trainer.max_epochs=1", "hydra.run.dir=first")
    train("trainer.max_epochs=1", "hydra.run.dir=second", "init_from=first/model.pt")
    assert losses(tmp_path / "second")[0] < losses(tmp_path / "first")[0]


def test_a_batch_larger_than_the_set_trains_with_a_notice(train, tmp_path):
    train("trainer.max_epochs=1", "data.batch_size=8", "hydra.run.dir=run")
    assert (tmp_path / "run" / "model.pt").is_file()


@pytest.fixture
def street_model(tmp_path):
    """A model file for simulated streets, not trained."""
    features = FeatureSpec(fields=("height", "intensity", "range", "shape"))
    labels = card("street").labels
    arguments = {**ARGUMENTS, "mlp_ratio": 2.0}  # as ptv3_tiny has it
    torch.manual_seed(5)
    checkpoint = Checkpoint(
        backbone=BACKBONE,
        arguments=arguments,
        labels=labels,
        features=features,
        grid_size=0.6,
        weights=build_model(BACKBONE, arguments, features, labels).state_dict(),
    )
    checkpoint.save(tmp_path / "first.pt")
    return checkpoint


def test_a_linear_probe_leaves_the_backbone_as_it_is_to_the_byte(train, street_model, tmp_path):
    train("trainer.max_epochs=1", "init_from=first.pt", "freeze=backbone", "hydra.run.dir=probe")
    before, after = street_model.weights, load_checkpoint(tmp_path / "probe" / "model.pt").weights
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"head.weight", "head.bias"}


def test_fine_tuning_with_other_channels_lists_what_is_new(train, street_model, tmp_path):
    train(
        "trainer.max_epochs=1",
        "hydra.run.dir=second",
        "init_from=first.pt",
        "data.features.fields=[height,intensity]",
        "optim.layer_decay=0.8",
    )
    log = (tmp_path / "second" / "train.log").read_text()
    assert "weights from first.pt; 1 of 83 are new:" in log
    stem = "backbone.stem.conv.weight (8, 5, 5, 5, 8) for (8, 5, 5, 5, 2)"
    assert f"of another shape: {stem}" in log
    fields = "'data.features.fields=[height,intensity,range,shape]'"
    assert f"by other settings than this run's: {fields} data.features.scales.height=1 " in log


@pytest.mark.parametrize(
    ("overrides", "code", "words"),
    [
        (["model.strides=[2,2,2]"], 2, "PointTransformerV3: strides must have 1 entries"),
        (["+model.bogus=1"], 2, "PointTransformerV3: "),
        (["freeze=bone"], 2, "freeze=bone: the model has no such part"),
        (["init_from=first.pt", "model.channels=[16,32]"], 1, "init_from=first.pt: only"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(pctx, street_model, overrides, code, words):
    found, _, err = pctx("train", *TOY, *overrides)
    assert found == code
    assert err.splitlines()[-1].startswith(f"pctx: {words}")


def test_a_run_ends_with_its_time_and_has_a_model_of_its_end(pctx, tmp_path):
    start = time.monotonic()
    code, _, err = pctx(
        "train", *TOY, "trainer.max_time=00:00:00:04", "trainer.max_epochs=-1", "hydra.run.dir=run"
    )
    assert code == 0, err
    assert time.monotonic() - start < 60
    assert "time is up after" in (tmp_path / "run" / "train.log").read_text()
    state = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert max(state["lr_schedulers"][0]["_last_lr"]) < 0.0001  # of 0.006
    assert load_checkpoint(tmp_path / "run" / "model.pt").metrics["miou"] > 0
    code, _, err = pctx("train", *TOY, "trainer.max_time=soon")
    assert code == 2
    assert "trainer.max_time=soon is not days:hours:minutes:seconds" in err
    code, _, err = pctx("train", *TOY, "threads=-1")
    assert code == 2
    assert "threads must be a whole number from 1 on, found -1" in err
