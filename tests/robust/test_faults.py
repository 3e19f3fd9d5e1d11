"""Kinds of fault that users of such tools have met, beside those that other tests hold.

docs/robustness.md lists them all, and which test holds which.
"""

import logging
import re

import numpy as np
import pytest
import torch

from pctx.cli.config import overrides_of
from pctx.cli.feeding import data_of
from pctx.data.dataset import ScanDataset
from pctx.data.io.formats import write
from pctx.data.labels import Card, LabelSet
from pctx.data.pipeline import Pipeline
from pctx.data.prepare import crop, prepare
from pctx.engine.datamodule import ScanDataModule
from pctx.geometry.points import PointBatch, PointCloud
from pctx.inference.predictor import Predictor
from tests.toy import LABELS, toy_checkpoint, toy_cloud


@pytest.fixture(scope="module")
def predictor():
    return Predictor(toy_checkpoint(), overlap=2.0)


def test_two_points_1400_metres_apart_are_encoded_at_two_centimetres():
    coord = np.array([[0, 0, 0], [1400, 0, 0]], np.float32)
    features = toy_checkpoint().features
    sample = prepare(PointCloud(coord=coord), grid_size=0.02, features=features)
    assert sample.points.grid_coord[:, 0].tolist() == [0, 70_000]


def test_an_extent_beyond_21_bits_names_extent_grid_and_the_smallest_that_works():
    coord = np.array([[0, 0, 0], [1e6, 0, 0]], np.float32)
    with pytest.raises(ValueError, match=r"1e\+06 m at grid_size 0\.02 m .* at least 0\.477 m"):
        prepare(PointCloud(coord=coord), grid_size=0.02, features=toy_checkpoint().features)


def test_a_padded_batch_is_told_the_packed_form():
    with pytest.raises(ValueError, match=r"must be packed \(n, channels\), found \(8, 1024, 3\)"):
        PointBatch(
            coord=torch.zeros(8192, 3),
            grid_coord=torch.zeros(8192, 3, dtype=torch.long),
            feat=torch.zeros(8, 1024, 3),
            offsets=torch.tensor([0, 8192]),
        )


@pytest.mark.parametrize("grid", [0.0, -1.0])
def test_a_grid_of_nothing_is_refused(grid):
    with pytest.raises(ValueError, match="grid_size must be one number above 0 metres"):
        prepare(toy_cloud(10), grid_size=grid, features=toy_checkpoint().features)


class Cubes(ScanDataset):
    """Scans of a metre, as of a cloud that is not in metres."""

    card = Card(name="cubes", labels=LABELS)

    def scans(self, split):
        return [split]

    def read(self, scan):
        return toy_cloud(3000, extent=1.0)


def test_a_grid_that_leaves_next_to_nothing_is_told_before_training_and_with_a_prediction(
    worker, tmp_path, caplog
):
    toy = toy_checkpoint()
    with caplog.at_level(logging.WARNING):
        for grid_size in (0.1, 2.0):
            pipeline = Pipeline(dataset=Cubes(), grid_size=grid_size, features=toy.features)
            ScanDataModule(pipeline).train_dataloader()
    assert len(caplog.messages) == 1
    assert re.match(r"train: its 3,000 points lie in \d+ voxels of 2 m, ", caplog.messages[0])
    toy.save(tmp_path / "model.pt")
    write(tmp_path / "a.ply", PointCloud(coord=toy_cloud(3000, extent=1.0).coord / 5))
    code, _, _, err = worker.run(["predict", "model.pt", "a.ply", "-o", "b.ply"], tmp_path)
    assert code == 0 and "a.ply: its 3,000 points lie in " in err and " voxels of 0.5 m" in err


def test_a_crop_never_empties_a_cloud():
    """Crops take the nearest points, however few; nothing is left out for being small."""
    points = prepare(toy_cloud(50), grid_size=0.5, features=toy_checkpoint().features).points
    for most in (1, 10, 10**6):
        found = crop(points, most, np.random.default_rng(0))
        assert len(found) == min(most, len(points))


def test_one_class_is_refused_with_advice():
    with pytest.raises(ValueError, match="at least 2 classes"):
        LabelSet(names=("all",), colors=((0, 0, 0),), raw=((1,),))


def test_one_point_has_a_label_and_one_to_be_dropped_keeps_its_code():
    cloud = PointCloud(coord=np.ones((1, 3), np.float32), label=np.array([7]))
    prediction = Predictor(toy_checkpoint())(cloud)
    assert len(prediction) == 1 and prediction.label[0] >= 0
    kept = Predictor(toy_checkpoint(), skip=[7])(cloud)
    assert kept.raw.tolist() == [7]


def test_one_pass_a_tile_unless_more_are_asked_for(predictor, monkeypatch):
    cloud, passes = toy_cloud(4000, extent=40), []
    features = predictor.model.features

    def counted(points, hierarchy):
        passes.append(len(points))
        return features(points, hierarchy)

    monkeypatch.setattr(predictor.model, "features", counted)
    predictor(cloud)
    assert len(passes) == 1
    tiled = Predictor(predictor.checkpoint, tile=20.0, overlap=2.0)
    monkeypatch.setattr(tiled, "model", predictor.model)
    tiled(cloud)
    assert len(passes) == 1 + 4


def test_every_code_of_a_gapped_set_comes_back_in_the_file(worker, tmp_path):
    """Codes 1, 2, 5 and 6 of three classes: numbers 0 to 2 inside, codes outside."""
    labels = LABELS
    number = np.arange(-1, 3)
    raw = labels.decode(number)
    assert raw.tolist() == [1, 2, 5, 6]
    assert labels.encode(np.array([2, 4, 5, 6, 7])).tolist() == [0, 1, 1, 2, -1]
    with pytest.raises(ValueError, match="65"):
        labels.encode(np.array([2, 65]))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train", "data=stret"], "stret"),
        (["train", "modle=ptv3_tiny"], "modle"),
        (["train", "model=ptv9"], "ptv9"),
        (["trian"], "trian"),
        (["train", "criterion.class_weights=[1]"], "no key 'criterion.class_weights' in the conf"),
        (["train", "criterion.class_weights=[1]"], "mean 'criterion.terms.cross_entropy.class_w"),
        (["train", "optim.optimizer.lr=1"], "did you mean 'optim.lr'?"),
        (["train", "x" * 300], "is no override such as key=value"),
        (["train", "data.batch_size=null"], "data.batch_size or data.batch_points must be"),
        (["train", "data.batch_points=x"], "data.batch_points must be a whole number"),
        (["check", "data=folder", "data.root=.", "data.grid_size=x"], "data.grid_size must be"),
        (["check", "data=folder", "data.root=.", "data.batch_size=none"], "data.batch_size must"),
        (["check", "data=folder", "data.root=.", "data.num_workers=-1"], "data.num_workers must"),
        (["train", "data=folder", "data.root=.", "data.max_points=0"], "data.max_points must"),
        (["card", ""], "FOLDER is empty"),
    ],
)
def test_misspelt_and_impossible_words_are_wrong_usage(words, says, worker, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    code, _, _, err = worker.run(words, here)
    assert code == 2 and says in err and "Traceback" not in err, err
    assert not list(here.rglob("*.yaml")) or words[0] == "train"


@pytest.mark.parametrize(
    "text", [b"a: b: c", b"\x00", b"\xff\xfe", b"\t- a", b"3", b"a: [", b"", b"3: 4"]
)
def test_configurations_of_a_run_that_are_none_are_named(text, tmp_path):
    (tmp_path / ".hydra").mkdir()
    for name, reader in (("config", data_of), ("overrides", lambda _: overrides_of(tmp_path))):
        file = tmp_path / f".hydra/{name}.yaml"
        file.write_bytes(text)
        with pytest.raises(ValueError, match=f"{name}.yaml: not ") as told:
            reader(file)
        assert "\n" not in str(told.value)


def test_weights_that_do_not_fit_name_their_file_and_the_difference(worker, tmp_path):
    toy_checkpoint().save(tmp_path / "model.pt")
    content = torch.load(tmp_path / "model.pt", weights_only=True)
    name = next(iter(content["weights"]))
    content["weights"] = {f"{k}x" if k == name else k: v for k, v in content["weights"].items()}
    torch.save(content, tmp_path / "model.pt")
    write(tmp_path / "a.ply", toy_cloud(10))
    code, _, _, err = worker.run(["predict", "model.pt", "a.ply", "-o", "b.ply"], tmp_path)
    assert code == 1 and "pctx: model.pt: the weights, of pctx" in err
    assert f"1 missing ({name}" in err and f"1 unexpected ({name}x" in err


def test_every_missing_channel_is_told_and_none_is_made_up(predictor, caplog):
    colored = Predictor(toy_checkpoint(fields=("height", "color")))
    with pytest.raises(ValueError, match=r"reads color, .*--fill color=0"):
        colored(toy_cloud(100))
    filled = Predictor(toy_checkpoint(fields=("height", "color")), fill={"color": 0})
    with caplog.at_level(logging.WARNING):
        once, again = filled(toy_cloud(100)), filled(toy_cloud(100))
    np.testing.assert_array_equal(once.probability, again.probability)
