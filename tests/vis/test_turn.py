import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pctx.data.prediction import Prediction
from pctx.geometry.points import PointCloud
from pctx.vis import turn
from pctx.vis.camera import frame
from pctx.vis.features import feature_colors
from pctx.vis.fields import make_scene
from pctx.vis.palette import UNLABELED
from pctx.vis.turn import render_turn

SMALL = (320, 240)


def test_a_turn_goes_once_around_and_keeps_the_colours(street, labels, tmp_path):
    scene = make_scene(street, labels=labels, title="street")
    path = render_turn([scene], tmp_path / "a.gif", size=SMALL, frames=6)
    with Image.open(path) as moving:
        assert (moving.n_frames, moving.size) == (6, SMALL)
        assert moving.info["loop"] == 0
        pictures = []
        for i in range(6):
            moving.seek(i)
            pictures.append(np.asarray(moving.convert("RGB")).astype(int))
    first = pictures[0]
    assert all((picture != first).any() for picture in pictures[1:])
    legend = slice(240, 320)  # stands still
    assert all((p[:, legend] == first[:, legend]).mean() > 0.95 for p in pictures)


def test_a_camera_that_goes_around_looks_at_the_same_place():
    coord = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    camera = frame(coord)
    for angle in (0.3, np.pi):
        turned = camera.turned(angle)
        assert turned.target == pytest.approx(camera.target)
        assert turned.axes @ turned.axes.T == pytest.approx(np.eye(3), abs=1e-12)
        assert turned.eye[2] == pytest.approx(camera.eye[2])
        assert turned.azimuth - camera.azimuth == pytest.approx(angle) or angle == np.pi
    assert camera.turned(2 * np.pi).eye == pytest.approx(camera.eye)


def test_an_mp4_is_what_ffmpeg_makes_of_the_frames(street, tmp_path, monkeypatch):
    program = tmp_path / "bin" / "ffmpeg"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport sys\n"
        "open(sys.argv[-1], 'w').write(f'{len(sys.stdin.buffer.read())} {sys.argv}')\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    path = render_turn([make_scene(street)], tmp_path / "a.mp4", size=(321, 241), frames=3)
    size, words = path.read_text().split(" ", 1)
    assert int(size) == 3 * 320 * 240 * 3 and "320x240" in words
    program.write_text("#!/bin/sh\ncat > /dev/null; echo no codec >&2; exit 1\n")
    with pytest.raises(ValueError, match="no codec"):
        render_turn([make_scene(street)], tmp_path / "b.mp4", size=SMALL, frames=2)
    assert not (tmp_path / "b.mp4").exists()


def test_without_ffmpeg_an_mp4_is_refused_in_a_sentence(street, tmp_path, monkeypatch):
    monkeypatch.setattr(turn, "_ffmpeg", lambda: None)
    with pytest.raises(ValueError, match=r"needs ffmpeg .* \.gif needs nothing"):
        render_turn([make_scene(street)], tmp_path / "a.mp4")


def test_other_names_and_files_that_exist_are_refused(street, tmp_path):
    with pytest.raises(ValueError, match=r"\.gif or \.mp4"):
        render_turn([make_scene(street)], tmp_path / "a.png")
    Path(tmp_path / "a.gif").touch()
    with pytest.raises(FileExistsError, match=r"a\.gif"):
        render_turn([make_scene(street)], tmp_path / "a.gif")


def test_a_driver_stands_on_the_ground_where_the_sensor_was():
    rng = np.random.default_rng(0)
    ground = rng.uniform((-60, -8, -1.7), (60, 8, -1.7), (4000, 3))
    walls = np.concatenate([ground * (1, 0, 1) + (0, y, 3) for y in (-8, 8)])
    coord = np.concatenate([ground, walls]).astype(np.float32)
    camera = frame(coord, view="driver", sensor=np.array([20.0, 1.0, 0.0]))
    assert camera.eye == pytest.approx([20, 1, 0.3], abs=0.1)  # 2 m above the ground
    assert camera.axes[2] @ (1, 0, 0) > 0.95  # along the street
    far = frame(coord, view="driver", sensor=np.array([-650000.0, -6300000.0, 0]))
    assert np.abs(far.eye[:2]).max() < 5  # no sensor's frame: in the middle


def test_features_that_are_alike_look_alike_and_none_are_grey():
    rng = np.random.default_rng(0)
    center = np.eye(3, 16)[[0] * 50 + [1] * 50 + [2] * 50] * 10
    features = (center + rng.normal(0, 0.01, (150, 16))).astype(np.float32)
    features[0] = 0
    color = feature_colors(features).astype(int)
    assert tuple(color[0]) == UNLABELED
    groups = [color[1:50], color[50:100], color[100:]]
    assert max(np.ptp(group, axis=0).max() for group in groups) < 20
    means = [group.mean(axis=0) for group in groups]
    apart = [np.abs(a - b).max() for a, b in zip(means, means[1:] + means[:1], strict=True)]
    assert min(apart) > 100
    order = rng.permutation(150)
    assert (feature_colors(features[order]) == color[order]).mean() > 0.99


@pytest.mark.parametrize(("n", "c"), [(0, 8), (1, 8), (2, 1), (5, 2)])
def test_any_number_of_features_has_colours(n, c):
    color = feature_colors(np.random.default_rng(0).normal(size=(n, c)).astype(np.float32))
    assert color.shape == (n, 3) and color.dtype == np.uint8


def test_features_are_a_layer_of_a_prediction(street, labels):
    said = Prediction(
        label=np.zeros(400, np.int64), labels=labels, features=np.ones((400, 4), np.float32)
    )
    scene = make_scene(street, said, color="features")
    assert len(scene) == 400 and "features" in scene.subject
    with pytest.raises(ValueError, match="features"):
        make_scene(PointCloud(coord=street.coord), color="features")
