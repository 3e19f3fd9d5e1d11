import json
from dataclasses import replace

import numpy as np
import pytest

from pctx.data.prediction import Prediction
from pctx.geometry.points import PointCloud
from pctx.vis import desk as desks
from pctx.vis.desk import Desk
from pctx.vis.exhibit import Exhibit, Focus, error_places, make_exhibit
from pctx.vis.fields import make_scene

OPEN = {"ask": "open", "file": 0, "layer": None, "ahead": True}
LAYER = {"ask": "layer", "index": None, "depth": None, "head": None}


@pytest.fixture
def predicted(labels):
    share = np.full((400, 4), 0.1, np.float32)
    share[:, 1] = 0.7
    return Prediction(
        label=np.full(400, 1), labels=labels, probability=share, entropy=np.full(400, 0.5)
    )


def asking(album, folder):
    """Give what asks a desk and reads its answers."""
    desk, count = Desk(album, folder), iter(range(1, 99))

    def ask(request):
        number = next(count)
        desk.answer(json.dumps({**request, "number": number}))
        with np.load(folder / f"{number}.npz") as archive:
            arrays = dict(archive)
        return json.loads(str(arrays.pop("told"))), arrays

    return desk, ask


def of(exhibit):
    return (exhibit.title, lambda: exhibit)


def test_a_file_comes_with_its_points_its_layers_and_a_view(street, labels, predicted, tmp_path):
    exhibit = make_exhibit(street, predicted, labels=labels, title="street.bin")
    _, ask = asking([of(exhibit)], tmp_path)
    told, arrays = ask(OPEN)
    assert told["layers"] == [
        *("prediction", "label", "error", "confidence", "entropy", "margin"),
        *("intensity", "height"),
    ]
    assert (told["layer"], told["files"]) == ("prediction", 1)
    assert told["legend"] == [
        {"name": "car", "color": [100, 150, 245], "share": 1.0, "points": 400, "number": 1}
    ]
    assert arrays["coord"].shape == (400, 3)
    assert told["camera"]["reach"] > 0


def test_another_layer_brings_colours_and_not_the_points_again(street, labels, tmp_path):
    _, ask = asking([of(make_exhibit(street, labels=labels))], tmp_path)
    ask(OPEN)
    told, arrays = ask({**LAYER, "layer": "height"})
    assert set(arrays) == {"color"}
    assert told["scale"]["high"].endswith(" m")
    assert (arrays["color"] == make_scene(street, color="height").color).all()


def test_files_that_cannot_be_opened_are_named_once_and_passed_over(street, tmp_path):
    def broken():
        raise OSError("cut short")

    album = [("a", broken), of(make_exhibit(street, title="b")), ("c", broken)]
    desk, ask = asking(album, tmp_path)
    assert ask(OPEN)[0]["title"] == "b"
    assert ask({**OPEN, "file": 2, "ahead": False})[0]["file"] == 1
    told, _ = ask({**OPEN, "file": 2, "ahead": True})
    assert told["file"] == 1 and told["words"] == ["c: cut short", "a: cut short"]
    assert desk.failures == ["a: cut short", "c: cut short"]


def test_where_no_file_opens_there_are_words(tmp_path):
    def broken():
        raise ValueError("no scan")

    _, ask = asking([("a", broken)], tmp_path)
    assert ask(OPEN) == ({"words": ["a: no scan"]}, {})
    assert "no file on show" in ask({"ask": "errors"})[0]["words"][0]


def test_a_point_is_described_by_its_fields_and_probabilities(street, labels, predicted, tmp_path):
    coord = street.coord.copy()
    coord[3] = np.nan
    cloud = PointCloud.from_xyz(
        coord + np.array([650000.0, 6300000.0, 0.0]),
        label=street.label,
        color=np.full((400, 3), 9, np.uint8),
        extra={"ring": np.arange(400, dtype=np.int16)},
    )
    _, ask = asking([of(make_exhibit(cloud, predicted, labels=labels))], tmp_path)
    ask(OPEN)
    words = ask({"ask": "pick", "index": 5})[0]["words"]  # of those shown: row 6 of the file
    assert words[0] == "point 6"
    x = float(words[1].split()[1])
    assert x == pytest.approx(650000 + street.coord[6, 0], abs=0.05)
    assert words[2:6] == ["label 40 (road)", "predicted car", "  car 0.700", "  road 0.100"]
    assert "entropy 0.500" in words and "color 9 9 9" in words and "ring 6" in words


def test_numbers_of_points_are_those_of_the_whole_file(street):
    exhibit = replace(make_exhibit(street), step=25)
    assert exhibit.describe(4)[0] == "point 100"


def test_a_layer_may_be_asked_about_a_point(street, tmp_path):
    seen: list[Focus] = []

    def layer(focus):
        seen.append(focus)
        return make_scene(street)

    exhibit = Exhibit(title="a", cloud=street, layers={"label": layer})
    _, ask = asking([of(exhibit)], tmp_path)
    ask(OPEN)
    ask({**LAYER, "layer": "label", "index": 9, "depth": 2, "head": 1})
    assert seen == [Focus(), Focus(row=9, depth=2, head=1)]


def test_a_layer_that_fails_leaves_the_window_as_it_is(street, tmp_path):
    _, ask = asking([of(make_exhibit(street))], tmp_path)
    ask(OPEN)
    told, arrays = ask({**LAYER, "layer": "rgb"})
    assert not arrays and "found 'rgb'" in told["words"][0]


def test_more_points_than_a_window_holds_are_thinned_with_a_notice(
    street, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(desks, "MAX_POINTS", 100)
    _, ask = asking([of(make_exhibit(street, title="a.laz"))], tmp_path)
    told, arrays = ask(OPEN)
    assert len(arrays["coord"]) == 100
    assert "100 of 400 points shown" in told["about"]
    assert "a.laz: 100 of 400 points shown" in caplog.text


@pytest.mark.parametrize("n", [0, 1])
def test_hardly_any_points_are_shown(n, tmp_path):
    cloud = PointCloud(coord=np.zeros((n, 3), np.float32))
    _, ask = asking([of(make_exhibit(cloud, title="few"))], tmp_path)
    told, arrays = ask(OPEN)
    assert arrays["coord"].shape == (n, 3)
    assert np.isfinite(told["camera"]["reach"])


def test_errors_are_places_where_wrong_points_lie_together_the_largest_first(labels):
    coord = np.zeros((300, 3), np.float32)
    coord[:, 0] = np.linspace(0, 100, 300)
    label = np.full(300, 40)
    wrong = [*range(50, 60), *range(200, 203)]
    said = np.zeros(300, np.int64)
    said[wrong] = 2
    scene = make_scene(
        PointCloud(coord=coord, label=label),
        Prediction(label=said, labels=labels),
        color="error",
        labels=labels,
    )
    places = error_places(scene)
    assert places.count.sum() == 13
    assert (np.diff(places.count) <= 0).all()
    where = places.center[:, 0] + scene.shift[0]
    assert all(coord[50, 0] - 2 <= x <= coord[59, 0] + 2 for x in where[places.count > 3])
    assert coord[200, 0] - 2 <= where[-1] <= coord[202, 0] + 2


def test_without_errors_there_is_nowhere_to_go(street, labels, tmp_path):
    right = Prediction(label=labels.encode(street.label), labels=labels)
    _, ask = asking([of(make_exhibit(street, right, labels=labels))], tmp_path)
    ask(OPEN)
    told, arrays = ask({"ask": "errors"})
    assert told["words"] == ["no point is wrong"] and len(arrays["places"]) == 0
    _, ask = asking([of(make_exhibit(street))], tmp_path)
    ask(OPEN)
    assert "need a prediction" in ask({"ask": "errors"})[0]["words"][0]


def test_a_colour_that_is_not_there_is_refused_at_once(street):
    with pytest.raises(ValueError, match="needs color"):
        make_exhibit(street, color="rgb")


def test_a_picked_point_of_a_selection_tells_what_only_the_file_knows(street, labels):
    thin = replace(street.select(slice(None, None, 4)), intensity=None)
    full = replace(street, extra={"gps_time": np.arange(len(street)) + 0.5})
    exhibit = replace(
        make_exhibit(thin, labels=labels), step=4, whole=lambda i: full.select(slice(i, i + 1))
    )
    lines = exhibit.describe(7)
    assert lines[0] == "point 28" and "gps_time 28.5" in lines
    assert any(line.startswith("intensity ") for line in lines)
