"""`pctx view --color attention`: what it refuses, what it shows."""

import base64
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from pctx.checkpoint import Checkpoint, build_model
from pctx.cli import attention
from pctx.data.features import FeatureSpec
from pctx.data.io.formats import write
from pctx.geometry.hierarchy import Hierarchy, Level
from pctx.geometry.points import PointCloud
from pctx.inference.predictor import Predictor
from pctx.models.backbone import Backbone
from tests.toy import LABELS, toy_checkpoint, toy_cloud


@pytest.fixture
def scan(tmp_path):
    write(tmp_path / "scan.npz", toy_cloud(500))
    return "scan.npz"


@pytest.fixture
def model(tmp_path):
    toy_checkpoint().save(tmp_path / "model.pt")
    return "model.pt"


def sentence(err):
    (line,) = (line for line in err.splitlines() if line.startswith("pctx: "))
    assert "Traceback" not in err
    return line


def shown(page):
    """Give the one scene of a page."""
    (data,) = re.findall(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"))
    (mode,) = json.loads(data)["modes"]
    return mode


ASK = ("--color", "attention", "--model", "model.pt", "--html", "a.html")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--map fog", "--map must be one of attention, rollout, class, gradcam; found 'fog'"),
        ("--query 1,2", "--query takes X,Y,Z or the number of a point, found '1,2'"),
        ("--query 1,2,nan", "X,Y,Z or the number of a point, found '1,2,nan'"),
        ("--query -4", "X,Y,Z or the number of a point, found '-4'"),
        ("--query ²", "X,Y,Z or the number of a point, found '²'"),
        ("--map rollout --layer 1", "--layer goes with --map attention or class or gradcam"),
        ("--map gradcam --head 1", "--head goes with --map attention; leave it out"),
        ("--class tree", "--class goes with --map class or gradcam; leave it out"),
        ("--map class --class hat", "has no class 'hat'; its classes are ground, tree, house"),
        ("--layer 9", "no attention layer 9; in the order of execution they are 0 on level 0"),
        ("--layer stem", "there is no attention layer stem"),
        ("--layer 1 --head 2", "layer 1 has heads 0 to 1, found 2"),
        ("--map class --layer -1", "there is no attention layer -1"),
        ("--map gradcam --layer stem", "the model has no module stem"),
    ],
)
def test_wrong_usage_is_one_sentence_before_anything_is_read(pctx, model, tmp_path, flags, words):
    code, _, err = pctx("view", "nowhere.laz", *ASK, *flags.split())
    assert code == 2
    assert words in sentence(err)
    assert not (tmp_path / "a.html").exists()


@pytest.mark.parametrize("flag", ["--map class", "--query 3", "--layer 0", "--head 0", "--class a"])
def test_questions_go_with_attention_only(pctx, flag):
    code, _, err = pctx("view", "nowhere.laz", "--color", "height", *flag.split())
    assert code == 2
    assert f"{flag.split()[0]} goes with --color attention only" in sentence(err)


def test_attention_needs_a_model(pctx):
    code, _, err = pctx("view", "nowhere.laz", "--color", "attention")
    assert code == 2
    assert "--color attention needs a model: add --model" in sentence(err)


@pytest.mark.parametrize(
    ("flags", "subject", "marked"),
    [
        ("", "attention in layer 2, level 0 of the decoder, mean of all heads; ring: point ", True),
        ("--layer 1 --head 1 --query 7", "layer 1, level 1, head 1; ring: point 7 at ", True),
        ("--map rollout", "attention rollout; ring: point ", True),
        ("--map class", "what is heard in favour of ", True),
        ("--map class --layer 0 --query 9", " at the ring, layer 0; ring: point 9 at ", True),
        ("--map class --class {}", "in favour of all points predicted as {}", False),
        ("--map gradcam --class {}", "Grad-CAM of all points predicted as {}", False),
        ("--map gradcam --class house --query 3", "Grad-CAM of house at the ring; ring: ", True),
        ("--map gradcam --layer backbone.stem", " at the ring, layer backbone.stem; ", True),
    ],
)
def test_each_map_says_what_it_shows(pctx, scan, model, tmp_path, flags, subject, marked):
    common = _commonest()
    code, _, err = pctx("view", scan, *ASK, *flags.format(common).split())
    assert code == 0, err
    found = shown(tmp_path / "a.html")
    assert subject.format(common) in found["name"]
    assert (found["mark"] is not None) == marked
    assert found["scale"]["high"] > 0


def _commonest():
    label = Predictor(toy_checkpoint())(toy_cloud(500)).label
    return LABELS.names[np.bincount(label).argmax()]


def test_a_point_is_meant_by_its_place_in_the_files_frame(pctx, model, tmp_path):
    cloud = toy_cloud(300)
    far = replace(cloud, origin=np.array([7e5, 6e6, 100.0]))
    write(tmp_path / "far.npz", far)
    x, y, z = far.xyz[211] + 0.001
    code, _, err = pctx("view", "far.npz", *ASK, "--query", f"{x},{y},{z}")
    assert code == 0, err
    assert "ring: point 211 at 7000" in shown(tmp_path / "a.html")["name"]


def test_by_default_the_point_nearest_to_the_middle_asks(pctx, model, tmp_path):
    coord = np.array([[0, 0, 0], [10, 10, 0], [5.1, 5, 0], [9, 1, 0], [1, 9, 0], [np.nan, 5, 0]])
    write(tmp_path / "five.npz", PointCloud(coord=coord.astype(np.float32)))
    assert pctx("view", "five.npz", *ASK)[0] == 0
    assert "ring: point 2 at 5.10, 5.00, 0.00" in shown(tmp_path / "a.html")["name"]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("500", "scan.npz: --query: there are points 0 to 499, found 500"),
        ("3", "scan.npz: --query: point 3 has no position"),
    ],
)
def test_a_point_that_cannot_ask_is_named_and_the_file_with_it(pctx, model, tmp_path, query, words):
    coord = toy_cloud(500).coord
    coord[3] = np.inf
    write(tmp_path / "scan.npz", PointCloud(coord=coord))
    code, _, err = pctx("view", "scan.npz", *ASK, "--query", query)
    assert code == 1
    assert words in sentence(err)


def test_a_class_that_is_predicted_nowhere_is_named(pctx, scan, tmp_path):
    checkpoint = toy_checkpoint()
    bias = checkpoint.weights["head.bias"].clone()
    bias[1] = -1000
    weights = {**checkpoint.weights, "head.bias": bias}
    replace(checkpoint, weights=weights).save(tmp_path / "model.pt")
    code, _, err = pctx("view", scan, *ASK, "--map", "class", "--class", "tree")
    assert code == 1
    assert "scan.npz: no point is predicted as tree; choose another class" in sentence(err)


def test_an_empty_cloud_has_nobody_to_ask(pctx, model, tmp_path):
    write(tmp_path / "none.npz", PointCloud(coord=np.zeros((0, 3), dtype=np.float32)))
    code, _, err = pctx("view", "none.npz", *ASK)
    assert code == 1
    assert "none.npz: there are no points to ask" in sentence(err)


def test_a_single_point_hears_itself(pctx, model, tmp_path):
    write(tmp_path / "one.npz", PointCloud(coord=np.ones((1, 3), dtype=np.float32)))
    for kind in ("attention", "rollout", "class", "gradcam"):
        code, _, err = pctx("view", "one.npz", *ASK, "--map", kind, "--overwrite")
        assert code == 0, err


def test_of_a_large_cloud_the_points_around_the_query_are_looked_at(
    pctx, scan, model, tmp_path, monkeypatch
):
    monkeypatch.setattr(attention, "NEAREST", 100)
    seen = []
    scene_of = attention._around
    monkeypatch.setattr(
        attention, "_around", lambda *given: seen.append(scene_of(*given)) or seen[-1]
    )
    assert pctx("view", scan, *ASK, "--query", "7", "--render", "a.png")[0] == 0
    coord = toy_cloud(500).coord
    apart = np.abs(coord[:, :2] - coord[7, :2]).max(axis=1)
    (rows,) = seen
    assert sorted(apart[rows].tolist()) == sorted(apart.tolist())[:100]
    (data,) = re.findall(r'id="data">(.*?)</script>', (tmp_path / "a.html").read_text())
    assert "400 points, too far off, not looked at" in json.loads(data)["clouds"][0]["note"]


def test_a_stray_point_far_away_is_not_looked_at(pctx, model, tmp_path):
    coord = np.concatenate([toy_cloud(300).coord, np.full((1, 3), 4e7, dtype=np.float32)])
    write(tmp_path / "scan.npz", PointCloud(coord=coord))
    code, _, err = pctx("view", "scan.npz", *ASK)
    assert code == 0, err


class Deaf(Backbone):
    """A network without attention."""

    def __init__(self, *, in_channels):
        super().__init__()
        self.in_channels, self.out_channels = in_channels, 4
        self.linear = nn.Linear(in_channels, 4)

    def plan(self, points, generator=None):
        level = Level(coord=points.coord, grid_coord=points.grid_coord, offsets=points.offsets)
        return Hierarchy(levels=(level,))

    def forward(self, feat, hierarchy):
        return self.linear(feat)


def test_a_model_without_attention_says_so_but_has_a_grad_cam(pctx, scan, tmp_path):
    path, features = f"{__name__}.Deaf", FeatureSpec(fields=("height",))
    torch.manual_seed(0)
    checkpoint = Checkpoint(
        backbone=path,
        arguments={},
        labels=LABELS,
        features=features,
        grid_size=0.5,
        weights=build_model(path, {}, features, LABELS).state_dict(),
    )
    checkpoint.save(tmp_path / "model.pt")
    code, _, err = pctx("view", scan, *ASK)
    assert code == 2
    assert sentence(err) == "pctx: model.pt: Deaf has no attention layers to look into"
    seen = ("--map", "gradcam", "--layer", "backbone.linear")
    assert pctx("view", scan, *ASK, *seen)[0] == 0


def test_points_in_no_voxel_are_grey(pctx, model, tmp_path, monkeypatch):
    monkeypatch.setattr(attention, "NEAREST", 1)
    write(tmp_path / "scan.npz", toy_cloud(50))
    assert pctx("view", "scan.npz", *ASK, "--query", "7")[0] == 0
    (blob,) = re.findall(r'id="value0">([^<]*)<', (tmp_path / "a.html").read_text())
    assert np.isnan(np.frombuffer(base64.b64decode(blob), "<f4")).sum() == 49
