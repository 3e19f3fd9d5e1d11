"""`pctx view`: what it refuses, what it shows of orders and windows, what stops it."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

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


def test_where_one_picture_stands_for_a_window_missing_files_are_named_all_the_same(
    pctx, scan, tmp_path, monkeypatch, caplog
):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    caplog.set_level("INFO")
    code, _, err = pctx("view", scan, "nowhere.ply")
    assert code == 1 and "pctx: nowhere.ply: no such file" in err
    assert (tmp_path / "scan.png").is_file() and "of one file of" not in caplog.text
    pctx("view", scan, scan)
    assert "of one file of 2" in caplog.text


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


def test_a_folder_is_shown_file_by_file(pctx, tmp_path):
    for name, n in (("deep/a", 50), ("deep/b", 80), ("far/a", 60)):
        write(tmp_path / "scans" / f"{name}.npz", toy_cloud(n))
    (tmp_path / "none").mkdir()
    code, _, err = pctx("view", "scans", "none", "--color", "height", "--html", "a.html")
    assert code == 1 and "none: no readable scans" in sentence(err)
    text = (tmp_path / "a.html").read_text(encoding="utf-8")
    (data,) = re.findall(r'id="data">(.*?)</script>', text)
    clouds = json.loads(data)["clouds"]
    assert [(Path(c["title"]).as_posix(), c["count"]) for c in clouds] == [
        ("scans/deep/a.npz", 50),  # files of one name are told apart
        ("b.npz", 80),
        ("scans/far/a.npz", 60),
    ]


def test_a_page_has_every_field_and_a_picture_the_colours_named(pctx, scan, tmp_path):
    assert pctx("view", scan, "--html", "a.html")[0] == 0
    assert subjects(tmp_path / "a.html") == ["label", "height"]
    flags = (
        "--color",
        "height,label",
        "--html",
        "b.html",
        "--render",
        "b.png",
        "--size",
        "300x200",
    )
    assert pctx("view", scan, *flags)[0] == 0
    assert subjects(tmp_path / "b.html") == ["height", "label"]


def test_what_was_predicted_is_compared_with_the_truth(pctx, tmp_path):
    cloud = toy_cloud(300)
    write(tmp_path / "scan.npz", cloud)
    label = np.where(np.arange(300) < 60, 6, cloud.label)
    for name, kept in (("said.npz", replace(cloud, label=label)), ("less.npz", toy_cloud(299))):
        write(tmp_path / name, kept)
    label.astype("<u4").tofile(tmp_path / "said.label")
    wrong = int((label != cloud.label).sum())
    for said in ("said.npz", "said.label"):
        flags = ("--predicted", said, "--color", "label,prediction,error", "--html", "a.html")
        code, _, err = pctx("view", "scan.npz", *flags, "--overwrite")
        assert code == 0, err
        text = (tmp_path / "a.html").read_text(encoding="utf-8")
        (data,) = re.findall(r'id="data">(.*?)</script>', text)
        *_, error = json.loads(data)["modes"]
        points = {line["name"]: line["points"] for line in error["legend"]}
        assert points == {"right": 300 - wrong, "wrong": wrong}
    code, _, err = pctx("view", "scan.npz", "--predicted", "less.npz", "--render", "a.png")
    assert code == 1 and "299 labels for the 300 points" in sentence(err)


def test_sureness_comes_from_the_columns_of_a_file(pctx, tmp_path):
    cloud = toy_cloud(100)
    share = np.random.default_rng(0).dirichlet(np.ones(3), 100).astype(np.float32)
    extra = {f"probability_{name}": share[:, i] for i, name in enumerate("abc")}
    write(tmp_path / "said.npz", replace(cloud, extra=extra))
    assert pctx("view", "said.npz", "--html", "a.html")[0] == 0
    shown = subjects(tmp_path / "a.html")
    assert shown == ["label", "confidence", "entropy", "margin", "height"]


def test_a_model_shows_how_sure_it_is_and_its_features(pctx, scan, model, tmp_path):
    flags = ("--model", model, "--color", "prediction,confidence,variance,features", "--views", "2")
    code, _, err = pctx("view", scan, *flags, "--html", "a.html")
    assert code == 0, err
    *first, features = subjects(tmp_path / "a.html")
    assert first == ["prediction", "confidence", "variance"] and "features" in features


def test_moving_pictures_and_light_grounds_are_drawn(pctx, scan, tmp_path):
    flags = ("--size", "160x120", "--background", "light")
    assert pctx("view", scan, "--render", "a.gif", *flags)[0] == 0
    with Image.open(tmp_path / "a.gif") as moving:
        assert moving.n_frames > 20 and min(moving.convert("RGB").getpixel((5, 5))) > 200
    code, _, err = pctx("view", scan, "--render", "a.gif", *flags)
    assert code == 1 and "exists already" in sentence(err)
    code, _, err = pctx("view", scan, "--model", "m.pt", "--predicted", "x", "--render", "b.png")
    assert code == 2 and "leave one out" in sentence(err)
    code, _, err = pctx("view", scan, "--background", "pink", "--render", "b.png")
    assert code == 2 and "dark, light; found 'pink'" in sentence(err)


def test_a_picture_asks_nothing_of_a_graphics_driver(scan, tmp_path):
    """No display, no EGL, and libraries of OpenGL that are broken; nor of torch, slow to load."""
    for library in ("open3d", "torch"):
        (tmp_path / f"{library}.py").write_text("import os; os.abort()")
    environment = {
        **{name: value for name, value in os.environ.items() if "DISPLAY" not in name},
        "PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path)),
        "LIBGL_DRIVERS_PATH": "/nowhere",
        "__EGL_VENDOR_LIBRARY_FILENAMES": "/nowhere",
    }
    command = [sys.executable, "-m", "pctx.cli.main", "view", str(scan)]
    flags = ["--render", "a.png", "--size", "200x150"]
    done = subprocess.run(
        [*command, *flags],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.png").stat().st_size > 500
    environment["DISPLAY"] = ":77"  # a window that dies leaves a picture
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "died of SIGABRT" in done.stderr
    assert (tmp_path / "scan.png").exists()
