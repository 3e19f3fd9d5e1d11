"""What keys and clicks do, without a window."""

import json

import numpy as np
import pytest

from pctx.vis.orbit import Orbit
from pctx.vis.panel import Contents, Line, Scale, draw_panel
from pctx.vis.stage import Stage, as_line

CAMERA = {"target": [0, 0, 0], "azimuth": 0.0, "elevation": 0.5, "reach": 10.0, "tangent": 0.3}


def line(name, color=(9, 9, 9)):
    return {"number": 1, "name": name, "color": color, "points": 5, "share": 0.5}


@pytest.fixture
def asked():
    return []


@pytest.fixture
def stage(asked):
    stage = Stage(ask=asked.append)
    coord = np.zeros((100, 3), np.float32)
    coord[:, 0], coord[:, 2] = np.arange(100) / 50 - 1, np.linspace(0, 10, 100)
    told = {
        **{"file": 0, "files": 3, "title": "a", "camera": CAMERA, "layer": "label"},
        **{"layers": ["label", "height", "window"], "legend": [line("road"), line("car")]},
    }
    entry = np.arange(100) % 2
    stage.receive(told, {"coord": coord, "color": np.zeros((100, 3), np.uint8), "entry": entry})
    return stage


def test_a_class_is_hidden_and_shown_again(stage):
    stage.toggle(1)
    assert (stage.visible == (np.arange(100) % 2 == 0)).all()
    assert "points" in stage.changed
    stage.toggle(1)
    assert stage.visible.all()
    stage.toggle(0, alone=True)
    assert (stage.visible == (np.arange(100) % 2 == 0)).all()
    stage.toggle(0, alone=True)
    assert stage.visible.all()
    stage.toggle(7)  # beside the legend


def test_a_hidden_class_stays_hidden_in_other_layers(stage):
    stage.toggle(1)
    told = {**stage.told, "layer": "prediction", "legend": [line("car")]}
    color = np.zeros((100, 3), np.uint8)
    stage.receive(told, {"color": color, "entry": np.zeros(100, int)})
    assert not stage.visible.any()
    stage.receive({**told, "legend": []}, {"color": color})
    assert stage.visible.all()


def test_cuts_take_away_the_top_and_the_bottom_and_never_all(stage):
    z = stage.coord[:, 2]
    for _ in range(10):
        stage.move_cut(-1, bottom=False)
    assert z[stage.visible].max() == pytest.approx(7.5, abs=0.2)
    for _ in range(99):
        stage.move_cut(1, bottom=True)
    assert 0 < stage.visible.sum() < 5
    assert any("heights 7." in word for word in stage.contents().words)
    stage.show_all()
    assert stage.visible.all()


def test_layers_and_files_follow_each_other(stage, asked):
    stage.next_layer(1)
    stage.next_layer(-1)
    stage.show_layer(1)
    stage.show_layer(8)  # there is none
    assert [each["layer"] for each in asked] == ["height", "label", "height"]
    stage.next_file(-1)  # the layer that is still on its way goes along
    assert asked[-1] == {"ask": "open", "file": 2, "layer": "height", "ahead": False}


def test_errors_are_looked_at_from_near_one_after_the_other(stage, asked):
    stage.next_error(1)
    assert asked == [{"ask": "errors"}]
    places = np.array([[1.0, 2, 3, 50], [4, 5, 6, 7]])
    stage.receive({}, {"places": places})
    assert stage.orbit.target.tolist() == [1, 2, 3]
    assert stage.orbit.reach < 2
    assert stage.words == ("error 1 of 2: 50 wrong points",)
    stage.next_error(1)
    assert stage.orbit.target.tolist() == [4, 5, 6]
    stage.next_error(-1)
    stage.next_error(-1)
    assert stage.orbit.target.tolist() == [4, 5, 6]


def test_the_view_stays_from_layer_to_layer_and_not_from_file_to_file(stage):
    stage.orbit = stage.orbit.turn(100, 0)
    azimuth = stage.orbit.azimuth
    told, color = dict(stage.told), np.zeros((100, 3), np.uint8)
    stage.receive(told, {"color": color})
    assert stage.orbit.azimuth == azimuth
    stage.receive({**told, "file": 1}, {"color": color, "coord": stage.coord})
    assert stage.orbit.azimuth == CAMERA["azimuth"]


def test_the_nearest_point_under_the_pointer_is_asked_about(stage, asked):
    w, h = 800, 600
    pixel, _ = stage.orbit.project(stage.coord, w, h)
    stage.pick(*pixel[50], w, h)
    assert abs(asked[-1]["index"] - 50) <= 1
    stage.toggle(asked[-1]["index"] % 2)  # what is hidden is not found
    before = asked[-1]["index"]
    count = len(asked)
    stage.pick(*pixel[before], w, h)
    assert before not in [each["index"] for each in asked[count:]]
    count = len(asked)
    stage.pick(5, 5, w, h)
    assert len(asked) == count


def test_an_attention_layer_is_asked_again_about_the_picked_point(stage, asked):
    stage.told = {**stage.told, "inside": {"depth": 3, "depths": 4, "heads": 2}}
    pixel, _ = stage.orbit.project(stage.coord, 800, 600)
    stage.pick(*pixel[50], 800, 600)
    assert [each["ask"] for each in asked] == ["pick", "layer"]
    stage.look_inside(depth=1)
    assert (asked[-1]["depth"], asked[-1]["head"]) == (0, None)
    heads = []
    for _ in range(4):
        stage.look_inside(head=1)
        heads.append(asked[-1]["head"])
    assert heads == [0, 1, None, 0]


def test_a_request_is_one_line():
    text = as_line({"ask": "open", "layer": "a\nb"})
    assert text.count("\n") == 1 and json.loads(text)["layer"] == "a\nb"


def test_an_orbit_keeps_upright_and_projects_what_it_looks_at_into_the_middle():
    orbit = Orbit(target=np.array([1.0, 2, 3]), azimuth=0.4, elevation=0.6, reach=9, tangent=0.3)
    for moved in (orbit, orbit.turn(50, 900), orbit.turn(0, -900), orbit.zoom(0.1)):
        assert moved.axes @ moved.axes.T == pytest.approx(np.eye(3), abs=1e-9)
        assert moved.axes[0, 2] == 0 and moved.axes[1, 2] >= -1e-9
        pixel, depth = moved.project(moved.target[None].astype(np.float32), 800, 600)
        assert pixel[0] == pytest.approx([400, 300], abs=0.01)
        assert depth[0] == pytest.approx(moved.reach, rel=1e-5)
    shifted, _ = orbit.shift(30, -20, 600).project(orbit.target[None].astype(np.float32), 800, 600)
    assert shifted[0] == pytest.approx([430, 280], abs=0.01)  # the point goes with the hand


def panel(**said):
    return draw_panel(Contents(title="a.laz", **said), 330, 760)


def test_a_click_on_a_line_of_the_panel_finds_it():
    legend = [
        Line(number=i, name=f"class {i}", color=(250 - i, i, 7), points=i, share=0.1)
        for i in range(12)
    ]
    drawn = panel(layers=["label", "height"], current="label", legend=legend)
    for i in range(12):
        (top, bottom) = next(s[:2] for s in drawn.spots if s[2:] == ("legend", i))
        assert drawn.at((top + bottom) / 2) == ("legend", i)
        assert (drawn.picture[top:bottom] == (250 - i, i, 7)).all(axis=-1).sum() > 50
    assert drawn.at(2) is None
    assert ("layer", 1) in [s[2:] for s in drawn.spots]


def test_a_hidden_class_loses_its_swatch():
    shown = Line(number=1, name="car", color=(1, 200, 7), points=5, share=0.5)
    hidden = Line(number=1, name="car", color=(1, 200, 7), points=5, share=0.5, shown=False)
    counts = [
        (panel(legend=[each]).picture == (1, 200, 7)).all(axis=-1).sum() for each in (shown, hidden)
    ]
    assert counts[1] < counts[0] / 2


@pytest.mark.parametrize("n", [0, 1, 40, 400])
def test_a_panel_holds_legends_of_any_length(n):
    legend = [
        Line(number=i, name="x" * 80, color=(i % 256, 0, 0), points=10**9, share=1)
        for i in range(n)
    ]
    drawn = panel(
        legend=legend,
        words=["word " * 60],
        scale=Scale(stops=[(0, 0, 0), (9, 9, 9)], low="0", high="1"),
    )
    assert drawn.picture.shape == (760, 330, 3)
    assert len([s for s in drawn.spots if s[2] == "legend"]) == min(n, len(drawn.spots))
    assert all(bottom <= 760 for _, bottom, *_ in drawn.spots)


def test_a_light_panel_is_light():
    assert panel(light=True).picture[0, 0].min() > 200 > 60 > panel().picture[0, 0].max()
