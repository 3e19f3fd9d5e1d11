"""What a model listens to, made visible; and a place that is pointed at."""

import json
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from pctx.vis.attention import relevance_scene
from pctx.vis.camera import frame
from pctx.vis.desk import Desk
from pctx.vis.exhibit import Exhibit
from pctx.vis.figure import PAPER, draw
from pctx.vis.html import write_html
from pctx.vis.palette import UNLABELED, Ramp, ramp_colors


@pytest.fixture
def values():
    values = np.zeros(400)
    values[100:200] = np.linspace(0.001, 0.1, 100)
    return values


def test_what_is_not_heard_is_dim_and_what_is_heard_most_is_bright(street, values):
    scene = relevance_scene(street, values)
    dim, bright = ramp_colors(np.array([0.0, 1.0]), Ramp.ATTENTION)
    assert (scene.color[:100] == dim).all()
    assert (scene.color[199] == bright).all()
    assert scene.scale.low == 0 and 0.09 < scene.scale.high < 0.1
    assert dim.max() < 110 < bright.min()


def test_a_single_loud_point_does_not_silence_the_rest(street, values):
    values[0] = 1000
    assert relevance_scene(street, values).scale.high < 0.2


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_values_of_nothing_have_a_colour(street, value):
    scene = relevance_scene(street, np.full(400, value))
    expected = UNLABELED if np.isnan(value) else tuple(ramp_colors(np.zeros(1), Ramp.ATTENTION)[0])
    assert {tuple(color) for color in scene.color.tolist()} == {tuple(map(int, expected))}


def test_the_query_is_marked_where_it_is(street, values):
    far = replace(street, origin=np.array([7e5, 6e6, 100.0]))
    scene = relevance_scene(far, values, query=7, note="seen")
    np.testing.assert_allclose(scene.mark + scene.shift, far.xyz[7], atol=1e-4)
    assert scene.note == "seen"
    assert relevance_scene(far, values).mark is None


def test_a_mark_stays_where_it_is_when_points_are_left_out(street, values):
    scene = relevance_scene(street, values, query=7)
    assert (scene.thin(50).mark == scene.mark).all()


def test_a_picture_has_a_ring_around_the_mark(street, values):
    scene = relevance_scene(street, values, query=7)
    size, strip = (400, 300), 60
    plain = np.asarray(draw(replace(scene, mark=None), size=size, strip=strip)).astype(int)
    marked = np.asarray(draw(scene, size=size, strip=strip)).astype(int)
    rows, columns = np.nonzero((plain != marked).any(axis=2))
    top = next(y for y in range(300) if (plain[y, 0] == (24, 27, 33)).all())  # below the head
    w, h = 400, 300 - top - strip
    right, up, _ = frame(scene.coord, aspect=w / h).project(scene.mark[None].astype(np.float32))
    middle = top + h / 2 * (1 - up[0]), w / 2 + right[0] * h / 2
    assert np.hypot(rows - middle[0], columns - middle[1]).max() < 15
    assert (marked[rows, columns] == PAPER).all(axis=1).any()


@pytest.mark.parametrize(("right", "up"), [(1.3, 0), (-1.3, 0), (0, 1.05), (0, -1.05)])
def test_a_mark_beyond_the_edge_is_not_drawn(street, values, right, up):
    scene = relevance_scene(street, values)
    camera = frame(scene.coord)
    half = camera.reach * camera.tangent  # of the picture's height, at the target

    def drawn(mark):
        return np.asarray(draw(replace(scene, mark=mark), size=(400, 300), camera=camera))

    assert (drawn(camera.target) != drawn(None)).any()
    beyond = camera.target + half * (right * camera.axes[0] + up * camera.axes[1])
    assert (drawn(beyond) == drawn(None)).all()


def test_a_page_knows_the_mark(street, values, tmp_path):
    scene = relevance_scene(street, values, query=7)
    path = write_html([scene, replace(scene, mark=None)], tmp_path / "a.html")
    (data,) = re.findall(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"))
    marks = [mode["mark"] for mode in json.loads(data)["modes"]]
    assert marks == [scene.mark.tolist(), None]


def test_the_window_is_given_the_mark(street, values, tmp_path):
    scene = relevance_scene(street, values, query=7)
    for number, shown in enumerate((scene, replace(scene, mark=None)), start=1):
        exhibit = Exhibit(title="a", cloud=street, layers={"attention": lambda _, s=shown: s})
        desk = Desk([("a", partial(lambda e: e, exhibit))], tmp_path)
        request = {"ask": "open", "file": 0, "layer": None, "ahead": True, "number": number}
        desk.answer(json.dumps(request))
        with np.load(tmp_path / f"{number}.npz") as arrays:
            told = json.loads(str(arrays["told"]))
        assert told["mark"] == (None if shown.mark is None else scene.mark.tolist())
