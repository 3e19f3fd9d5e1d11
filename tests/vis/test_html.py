import base64
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from pctx.data.prediction import Prediction
from pctx.geometry.points import PointCloud
from pctx.vis import html
from pctx.vis.fields import make_scene
from pctx.vis.html import write_html
from pctx.vis.structure import order_scene, voxels_of


def read(path) -> tuple[dict, dict[str, bytes], str]:
    text = path.read_text(encoding="utf-8")
    data = json.loads(re.findall(r'id="data">(.*?)</script>', text)[0])
    blobs = re.findall(r'type="text/plain" id="(\w+)">([^<]*)</script>', text)
    return data, {name: base64.b64decode(blob) for name, blob in blobs}, text


def test_a_page_asks_nothing_of_the_network(street, tmp_path):
    *_, text = read(write_html(make_scene(street), tmp_path / "a.html"))
    assert "http" not in text.lower()
    assert not re.search(r"\b(src|href)\s*=|@import|url\(|fetch\(|import\s", text)


def test_a_page_holds_the_points(street, tmp_path):
    scene = make_scene(street)
    data, blobs, _ = read(write_html(scene, tmp_path / "a.html"))
    (cloud,) = data["clouds"]
    steps = np.frombuffer(blobs["position0"], "<u2").reshape(-1, 3)
    coord = np.array(cloud["low"]) + steps * np.array(cloud["step"])
    assert cloud["count"] == 400
    assert np.abs(coord - scene.coord).max() < 40 / 65535  # the extent in 16 bits


def test_a_page_holds_the_legend_and_the_class_of_each_point(street, labels, tmp_path):
    scene = make_scene(street, labels=labels)
    data, blobs, _ = read(write_html(scene, tmp_path / "a.html"))
    (mode,) = data["modes"]
    assert [entry["name"] for entry in mode["legend"]] == ["road", "car", "tree", "unlabelled"]
    entry = np.frombuffer(blobs["entry0"], "<u2")
    color = np.array([line["color"] for line in mode["legend"]])[entry]
    assert (color == scene.color).all()


def test_measured_values_are_stored_with_a_scale(street, tmp_path):
    scene = make_scene(street, color="height")
    data, blobs, _ = read(write_html(scene, tmp_path / "a.html"))
    value = np.frombuffer(blobs["value0"], "<f4")
    assert (value == street.coord[:, 2]).all()
    scale = data["modes"][0]["scale"]
    assert scale["unit"] == "m"
    unit = np.clip((value - scale["low"]) / (scale["high"] - scale["low"]), 0, 1)
    color = np.array(scale["stops"])[np.round(unit * 255).astype(int)]
    assert (np.abs(color - scene.color.astype(int)) <= 8).all()  # a step of 256 apart at most


def test_a_page_knows_where_a_point_stands_in_its_file(street, tmp_path):
    coord = street.coord.copy()
    coord[::3] = np.nan
    scene = make_scene(replace(street, coord=coord))
    for made in (scene, replace(scene, step=5)):
        _, blobs, _ = read(write_html(made, tmp_path / "a.html", overwrite=True))
        row = np.frombuffer(blobs["row0"], "<u4")
        assert (row == made.step * np.flatnonzero(np.arange(400) % 3)).all()
    _, blobs, _ = read(write_html(make_scene(street), tmp_path / "a.html", overwrite=True))
    assert "row0" not in blobs  # the place is the number


def test_a_scale_may_have_words_at_its_ends(street, tmp_path):
    scene = order_scene(street, voxels_of(street, 4.0), "z")
    data, *_ = read(write_html(scene, tmp_path / "a.html"))
    assert data["modes"][0]["scale"]["ends"] == ["start of the curve", "end"]


def test_scenes_of_the_same_points_share_them(street, labels, tmp_path):
    prediction = Prediction(label=np.zeros(400, np.int64), labels=labels)
    scenes = [
        make_scene(street, prediction, color=color) for color in ("label", "prediction", "error")
    ]
    data, blobs, _ = read(write_html(scenes, tmp_path / "a.html"))
    assert [mode["name"] for mode in data["modes"]] == ["label", "prediction", "error"]
    assert [mode["cloud"] for mode in data["modes"]] == [0, 0, 0]
    assert set(blobs) == {"position0", "entry0", "entry1", "entry2"}


def test_scenes_of_other_points_have_their_own(street, tmp_path):
    scenes = [
        make_scene(street, title="a.laz"),
        make_scene(street.select(slice(10)), title="b.laz"),
    ]
    data, blobs, _ = read(write_html(scenes, tmp_path / "a.html"))
    assert [cloud["count"] for cloud in data["clouds"]] == [400, 10]
    assert [cloud["title"] for cloud in data["clouds"]] == ["a.laz", "b.laz"]
    assert [mode["cloud"] for mode in data["modes"]] == [0, 1]
    assert len(blobs["position1"]) == 10 * 6


def test_a_page_knows_the_likeliest_classes_of_each_point_up_to_a_limit(
    street, labels, tmp_path, monkeypatch
):
    share = np.random.default_rng(0).dirichlet(np.ones(4), 400).astype(np.float32)
    coord = street.coord.copy()
    coord[::3] = np.nan
    prediction = Prediction(label=share.argmax(axis=1), labels=labels, probability=share)
    scene = make_scene(replace(street, coord=coord), prediction, color="height")
    data, blobs, _ = read(write_html(scene, tmp_path / "a.html"))
    known = share[np.arange(400) % 3 > 0]
    number = np.frombuffer(blobs["likely0"], "<u2").reshape(-1, 4)
    assert (number == np.argsort(-known, axis=1)).all()
    stored = np.frombuffer(blobs["share0"], np.uint8).reshape(-1, 4) / 255
    assert np.abs(stored - -np.sort(-known, axis=1)).max() <= 0.5001 / 255
    assert data["clouds"][0]["classes"] == list(labels.names)
    monkeypatch.setattr(html, "MAX_CHANCES", 100)
    data, blobs, _ = read(write_html(scene, tmp_path / "b.html"))
    assert "likely0" not in blobs
    assert "no class probabilities beyond 100 points" in data["clouds"][0]["note"]


def test_names_cannot_become_markup(street, labels, tmp_path):
    bad = "</script><script>alert(1)</script>"
    evil = replace(labels, names=(bad, "<b>", "&", "'\""))
    data, _, text = read(
        write_html(make_scene(street, labels=evil, title=bad), tmp_path / "a.html")
    )
    assert "<script>alert" not in text
    assert data["clouds"][0]["title"] == data["modes"][0]["legend"][0]["name"] == bad


def test_too_many_points_are_thinned_with_a_notice(street, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(html, "MAX_POINTS", 100)
    data, blobs, _ = read(write_html(make_scene(street), tmp_path / "a.html"))
    assert data["clouds"][0]["count"] == 100
    assert len(blobs["position0"]) == 600
    assert "100 of 400 points" in data["clouds"][0]["note"]
    assert "100 of 400 points" in caplog.text


def test_far_outliers_do_not_cost_the_others_their_place(street, tmp_path):
    coord = street.coord.copy()
    coord[0] = 1e7
    data, *_ = read(write_html(make_scene(replace(street, coord=coord)), tmp_path / "a.html"))
    assert max(data["clouds"][0]["step"]) < 0.001  # metres


@pytest.mark.parametrize("n", [0, 1, 2])
def test_pages_of_a_few_points_are_written(n, tmp_path):
    cloud = PointCloud(coord=np.zeros((n, 3), np.float32))
    data, *_ = read(write_html(make_scene(cloud), tmp_path / "a.html"))
    assert data["clouds"][0]["count"] == n


def test_a_page_is_not_overwritten_unasked(street, tmp_path):
    path = write_html(make_scene(street), tmp_path / "a.html")
    with pytest.raises(FileExistsError, match=r"a\.html"):
        write_html(make_scene(street), path)
    write_html(make_scene(street), path, overwrite=True)
    assert [file.name for file in tmp_path.iterdir()] == ["a.html"]


def test_what_is_no_page_is_refused(street, tmp_path):
    with pytest.raises(ValueError, match=r"\.html"):
        write_html(make_scene(street), tmp_path / "a.png")
    with pytest.raises(ValueError, match="at least one scene"):
        write_html([], tmp_path / "a.html")
