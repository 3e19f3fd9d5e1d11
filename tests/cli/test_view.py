"""`pctx view`: what it refuses, what it shows of orders and windows, what stops it."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from pctx.checkpoint import build_model
from pctx.data.io.formats import write
from pctx.geometry.points import PointCloud
from tests.toy import BACKBONE, toy_checkpoint, toy_cloud


@pytest.fixture
def scan(tmp_path):
    path = tmp_path / "scan.npz"
    write(path, toy_cloud(500))
    return path


@pytest.fixture
def model(tmp_path):
    toy_checkpoint().save(tmp_path / "model.pt")
    return tmp_path / "model.pt"


def sentence(err):
    (line,) = (line for line in err.splitlines() if line.startswith("pctx: "))
    assert "Traceback" not in err
    return line


def subjects(page):
    """Give what the buttons of a page say."""
    (data,) = re.findall(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"))
    return [mode["name"] for mode in json.loads(data)["modes"]]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--color bogus", "one of label, prediction"),
        ("--color error", "--color error needs a model: add --model"),
        ("--size 8x8", "64 to 8192 pixels a side; found '8x8'"),
        ("--size 8", "WIDTHxHEIGHT"),
        ("--size ²x²", "WIDTHxHEIGHT"),
        ("--from below", "auto, top, street, oblique, object, driver; found 'below'"),
        ("--color order --curve spiral", "unknown curve 'spiral'"),
        ("--color order --grid 0", "--grid must be a number above 0, found 0"),
        ("--color order --grid nan", "--grid must be a number above 0, found nan"),
        ("--color order --windows grid", "--windows says nothing about an order"),
        ("--color window --windows round", "serial, octree, grid, global; found 'round'"),
        ("--color window --window-size 0", "--window-size must be a number above 0, found 0"),
        ("--color window --windows grid --curve z", "--curve says nothing about grid windows"),
        ("--color window --windows global --window-size 9", "nothing about global windows"),
        ("--color height --grid 1", "--grid goes with --color order or window only"),
        ("--curve z", "--curve goes with --color order or window only"),
        ("--color window --model model.pt --grid 1", "--grid is the model's own"),
    ],
)
def test_wrong_usage_is_one_sentence_before_anything_is_read(pctx, tmp_path, flags, words):
    code, _, err = pctx("view", "nowhere.laz", *flags.split(), "--render", "a.png")
    assert code == 2
    assert words in sentence(err)
    assert not list(tmp_path.iterdir())


def test_an_unreadable_file_is_named_and_the_rest_is_shown(pctx, scan, tmp_path):
    (tmp_path / "empty.laz").touch()
    code, _, err = pctx(
        "view", "nowhere.ply", scan, "empty.laz", scan, "--html", "a.html", "--color", "height"
    )
    assert code == 1
    assert "pctx: nowhere.ply: no such file" in err
    assert "pctx: empty.laz: the file is empty" in err
    assert subjects(tmp_path / "a.html") == ["height", "height"]


def test_a_file_without_the_field_asked_for_is_named(pctx, scan, tmp_path):
    code, _, err = pctx("view", scan, "--color", "rgb", "--render", "a.png")
    assert code == 1
    assert "scan.npz: color 'rgb' needs color" in sentence(err)
    assert not (tmp_path / "a.png").exists()


@pytest.mark.parametrize(
    ("flags", "subject"),
    [
        ("--color order", "order along z, "),
        ("--color order --curve hilbert-zxy --grid 2", "order along hilbert-zxy, "),
        ("--color window --grid 2", "1 serial window of "),
        ("--color window --window-size 16 --curve hilbert --grid 2", " serial windows of 16 slots"),
        ("--color window --windows octree --grid 2", " octree windows of 32 slots along z, "),
        ("--color window --windows grid --grid 2", " grid windows of "),
        ("--color window --windows global --grid 2", "1 global window of "),
    ],
)
def test_orders_and_windows_are_shown_without_a_model(pctx, scan, tmp_path, flags, subject):
    code, _, err = pctx("view", scan, *flags.split(), "--html", "a.html")
    assert code == 0, err
    (shown,) = subjects(tmp_path / "a.html")
    assert subject in shown
    assert ("along" in shown) == ("grid windows" not in shown and "global" not in shown)
    if "--grid 2" in flags:
        assert shown.endswith("voxels of 2 m")


def test_a_grid_window_is_as_many_voxels_wide_as_asked(pctx, tmp_path):
    # 4 x 4 voxels of 1 m, cut into cubes of 2 voxels.
    x, y = np.meshgrid(np.arange(4) + 0.5, np.arange(4) + 0.5)
    coord = np.stack([x, y, np.zeros_like(x)], axis=-1).reshape(-1, 3).astype(np.float32)
    np.savez(tmp_path / "scan.npz", coord=coord)
    flags = "--color window --windows grid --window-size 2 --grid 1 --html a.html"
    assert pctx("view", "scan.npz", *flags.split())[0] == 0
    assert subjects(tmp_path / "a.html") == ["4 grid windows of 4 slots, 16 voxels of 1 m"]


def test_the_curves_and_windows_of_a_model_are_those_it_plans(pctx, scan, model, tmp_path):
    flags = ("--color", "order", "--model", model, "--html", "order.html")
    assert pctx("view", scan, *flags)[0] == 0
    curves = ("z", "z-trans", "hilbert", "hilbert-trans")
    assert subjects(tmp_path / "order.html") == [f"order along {curve}" for curve in curves]
    flags = ("--color", "window", "--model", model, "--html", "window.html")
    assert pctx("view", scan, *flags)[0] == 0
    shown = subjects(tmp_path / "window.html")
    assert [name.split(":")[0] for name in shown] == [f"partition {i} of 4" for i in range(1, 5)]
    assert all("windows of 32 slots" in name for name in shown)


def test_a_model_told_its_curves_shows_those(pctx, scan, tmp_path):
    toy = toy_checkpoint()
    arguments = {**toy.arguments, "curves": ["hilbert"]}
    weights = build_model(BACKBONE, arguments, toy.features, toy.labels).state_dict()
    replace(toy, arguments=arguments, weights=weights).save(tmp_path / "model.pt")
    flags = ("--color", "order", "--model", "model.pt", "--html", "a.html")
    assert pctx("view", scan, *flags)[0] == 0
    assert subjects(tmp_path / "a.html") == ["order along hilbert"]


@pytest.mark.parametrize("color", ["order", "window"])
@pytest.mark.parametrize("n", [0, 1])
def test_hardly_any_points_have_an_order_and_windows(pctx, tmp_path, color, n):
    write(tmp_path / "few.npz", PointCloud(coord=np.zeros((n, 3), dtype=np.float32)))
    shown = ("view", "few.npz", "--color", color, "--render", "few.png", "--size", "200x150")
    assert pctx(*shown)[0] == 0
    assert (tmp_path / "few.png").stat().st_size > 500
