"""`pctx report`: a page of a run."""

import base64
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from pctx.data.io.formats import write
from pctx.inference.predictor import Predictor
from tests.toy import LABELS, toy_checkpoint, toy_cloud

CONFIG = """
data:
  dataset:
    _target_: pctx.data.datasets.folder.FolderDataset
    root: {root}
    card: {root}/card.yaml
    splits: null
  note: <b>bold</b>
"""


@pytest.fixture
def run(tmp_path):
    """A run whose model is right at some share of each scan's points."""
    folder, scans = tmp_path / "run", tmp_path / "scans"
    scans.mkdir()
    (folder / ".hydra").mkdir(parents=True)
    toy_checkpoint().save(folder / "model.pt")
    predictor, rng = Predictor(folder / "model.pt"), np.random.default_rng(0)
    for name, share in (("good", 1.0), ("bad", 0.2), ("fair", 0.7)):
        cloud = toy_cloud(300)
        right = rng.random(300) < share
        label = np.where(right, predictor(cloud).raw, rng.choice([2, 4, 6], 300))
        write(scans / f"{name}.npz", replace(cloud, label=label))
    card = {"name": "toy", "splits": {"val": ["*.npz"]}, **LABELS.to_dict()}
    (scans / "card.yaml").write_text(json.dumps(card))
    (folder / ".hydra" / "config.yaml").write_text(CONFIG.format(root=scans))
    (folder / ".hydra" / "overrides.yaml").write_text("- data=folder\n")
    (folder / "metrics.csv").write_text("epoch,step,train/loss,val/miou\n0,1,2.5,\n0,2,1.5,0.4\n")
    return folder


def images(text):
    found = re.findall(r'<img alt="([^"]*)" src="data:image/png;base64,([^"]+)">', text)
    return {alt: Image.open(io.BytesIO(base64.b64decode(data))) for alt, data in found}


def test_a_page_tells_all_of_a_run_and_asks_nothing_of_the_network(pctx, run):
    code, _, err = pctx("report", run, "--worst", "2")
    assert code == 0, err
    text = (run / "report.html").read_text(encoding="utf-8")
    shown = images(text)
    assert list(shown) == [
        "loss and mIoU over the steps",
        "confusion matrix",
        "bad.npz",
        "fair.npz",
    ]
    assert shown["bad.npz"].size == (3 * 564 - 4, 520)
    for name in ("ground", "tree", "house"):
        assert f"</i>{name}</td>" in text
    assert "split val, 3 scans" in text and "<td>900</td>" in text
    assert "&lt;b&gt;bold" in text and "<b>bold" not in text
    for word in ("Overrides", "Configuration", "Environment", "torch", "PointTransformerV3"):
        assert word in text
    assert "http" not in text.replace("data:image", "")
    ious = [float(x) for x in re.findall(r"npz: mIoU ([\d.]+)", text)]
    assert ious == sorted(ious) and ious[0] < 0.7


def test_scans_are_few_or_none_on_demand_and_pages_are_kept(pctx, run, tmp_path):
    assert pctx("report", run, "--scans", "0", "-o", "a.html")[0] == 0
    text = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "no scans were scored" in text and list(images(text)) == ["loss and mIoU over the steps"]
    code, _, err = pctx("report", run, "-o", "a.html")
    assert code == 1 and "a.html: exists already" in err
    assert (
        pctx("report", run, "--scans", "1", "--worst", "0", "-o", "a.html", "--overwrite")[0] == 0
    )
    assert "split val, 1 scan," in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_a_run_without_configuration_says_what_is_missing(pctx, run, tmp_path):
    (run / ".hydra" / "config.yaml").unlink()
    assert pctx("report", run, "-o", "a.html")[0] == 0
    assert "which says where they lie" in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_what_is_no_run_is_refused(pctx, tmp_path):
    code, _, err = pctx("report", tmp_path)
    assert code == 2 and "neither model.pt nor metrics.csv" in err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("epoch,stop,train/loss,val/miou\n0,1,2.5,0.4\n", "not the metrics of a run"),
        ("epoch,step,train/loss,val/miou\n0,1,x,0.4\n", "not the metrics of a run"),
        ("epoch,train/loss,step\n0,2.5\n", "not the metrics of a run"),
    ],
)
def test_metrics_gone_wrong_are_one_sentence(pctx, run, text, says):
    (run / "metrics.csv").write_text(text)
    code, _, err = pctx("report", run, "--scans", "0", "-o", "a.html")
    assert code == 1 and says in err and "internal" not in err


def test_a_cache_that_is_no_folder_is_one_sentence(pctx, run):
    config = run / ".hydra" / "config.yaml"
    config.write_text(config.read_text().replace("  note:", "  cache: {a: b}\n  note:"))
    code, _, err = pctx("report", run, "-o", "a.html")
    assert code == 1 and "data.cache must be a folder, or null" in err
