"""Scores from the command line."""

import json
from dataclasses import replace

import numpy as np
import pytest

from pctx.checkpoint import load_checkpoint
from pctx.data.io.formats import read, write
from pctx.engine.metrics import Scores, confusion_matrix
from pctx.inference.predictor import Predictor
from tests.toy import LABELS, toy_checkpoint, toy_cloud


@pytest.fixture
def scans(tmp_path):
    """Two labelled scans, their card, and a model that is right at most points, and too sure."""
    (tmp_path / "scans").mkdir()
    model = toy_checkpoint()
    surer = {k: 12 * w if k.startswith("head.") else w for k, w in model.weights.items()}
    replace(model, weights=surer).save(tmp_path / "model.pt")
    predictor, rng = Predictor(tmp_path / "model.pt"), np.random.default_rng(0)
    for seed in range(2):
        cloud = toy_cloud(800, seed=seed)
        label = np.where(rng.random(800) < 0.6, predictor(cloud).raw, cloud.label)
        write(tmp_path / "scans" / f"{seed}.npz", replace(cloud, label=label))
    card = {"name": "toy", "splits": {"val": ["*.npz"]}, **LABELS.to_dict()}
    (tmp_path / "card.yaml").write_text(json.dumps(card))
    return ["data=folder", "data.root=scans", "data.card=card.yaml"]


@pytest.fixture
def evaluate(pctx, scans, tmp_path):
    def run(*overrides, folder="run", model="model.pt"):
        code, out, err = pctx(
            "evaluate", f"checkpoint={model}", *scans, f"hydra.run.dir={folder}", *overrides
        )
        assert code == 0, err
        return json.loads((tmp_path / folder / "metrics.json").read_text()), out

    return run


def test_parts_stand_in_the_table_and_in_the_file(evaluate, tmp_path):
    found, out = evaluate("boundary=0.5", "ranges=[5,10]", "densities=[2]")
    assert list(found["parts"]) == [
        "within 0.5 m of another class",
        "range below 5 m",
        "range 5 to 10 m",
        "range 10 and more m",
        "density below 2 points/m3",
        "density 2 and more points/m3",
    ]
    assert sum(found["parts"][f"range {b}"]["points"] for b in ("below 5 m", "5 to 10 m")) > 0
    assert "within 0.5 m" in out and "precision" in out
    for name in ("confusion.png", "reliability.png"):
        assert (tmp_path / "run" / name).stat().st_size > 1000
    assert found["calibration"]["points"] == found["points"]


def test_predicted_files_have_the_scores_that_evaluate_prints(evaluate, pctx, tmp_path):
    found, _ = evaluate()
    confusion = np.zeros((3, 4), dtype=np.int64)
    for seed in range(2):
        (tmp_path / "bare").mkdir(exist_ok=True)
        assert pctx("predict", "model.pt", f"scans/{seed}.npz", "-o", f"bare/{seed}.npz")[0] == 0
        truth, predicted = (
            LABELS.encode(read(tmp_path / folder / f"{seed}.npz").label)
            for folder in ("scans", "bare")
        )
        confusion += confusion_matrix(truth, predicted, 3)
    assert found["miou"] == Scores(confusion=confusion, labels=LABELS).miou
    assert found["confusion"] == confusion.tolist()


def test_a_calibrated_model_is_surer_of_nothing_else_and_stays_calibrated(evaluate, tmp_path):
    before, _ = evaluate("calibrate=true")
    temperature = load_checkpoint(tmp_path / "run" / "model.pt").temperature
    assert temperature == before["calibration"]["temperature"] > 1.2
    after, _ = evaluate("calibrate=true", folder="again", model="run/model.pt")
    assert after["confusion"] == before["confusion"]
    assert after["calibration"]["nll"] <= before["calibration"]["nll"]
    # What the second search finds is put on top of the first, and changes next to nothing.
    again = load_checkpoint(tmp_path / "again" / "model.pt").temperature
    assert again == pytest.approx(temperature, rel=0.02)
    assert load_checkpoint(tmp_path / "model.pt").temperature == 1


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("boundary=0", "boundary must be above 0 metres, found 0"),
        ("ranges=[20,10]", "must ascend, found [20.0, 10.0]"),
    ],
)
def test_parts_that_cannot_be_are_wrong_usage(pctx, scans, override, words):
    code, _, err = pctx("evaluate", "checkpoint=model.pt", *scans, override, "hydra.run.dir=run")
    assert code == 2
    assert words in err.splitlines()[-1]
