from dataclasses import replace

import numpy as np
import pytest

from pctx.data.prediction import Prediction
from pctx.geometry.points import PointCloud
from pctx.vis.palette import NOT_COUNTED, RIGHT, UNLABELED, WRONG
from pctx.vis.scene import COLORS, id_scene, make_scene, same_points, value_scene


def test_the_legend_is_in_class_order_with_shares_and_without_absent_classes(street, labels):
    scene = make_scene(street, labels=labels)
    assert [entry.name for entry in scene.legend] == ["road", "car", "tree", "unlabelled"]
    assert [entry.share for entry in scene.legend] == [0.25] * 4
    assert scene.legend[2].color == labels.colors[2]


def test_colours_and_names_do_not_shift_when_a_class_is_absent(street, labels):
    whole = make_scene(street, labels=labels)
    some = make_scene(street.select(street.label == 70), labels=labels)
    assert [(entry.name, entry.color) for entry in some.legend] == [("tree", labels.colors[2])]
    assert (some.color == whole.color[street.label == 70]).all()


def test_each_point_has_the_colour_of_its_legend_line(street, labels):
    scene = make_scene(street, labels=labels)
    assert (scene.color == np.array([entry.color for entry in scene.legend])[scene.entry]).all()


def test_raw_ids_in_no_class_are_shown_and_named(street, labels):
    label = np.where(street.label == 10, 99, street.label)
    scene = make_scene(replace(street, label=label), labels=labels)
    assert [entry.name for entry in scene.legend] == [
        "road",
        "tree",
        "id 99 (no class)",
        "unlabelled",
    ]


def test_raw_ids_without_names_have_colours_of_their_own(street):
    scene = make_scene(street)
    assert [entry.name for entry in scene.legend] == ["id 0", "id 10", "id 40", "id 70"]
    assert len({entry.color for entry in scene.legend}) == 4


def test_las_classes_have_names_without_a_card(street):
    columns = ("number_of_returns", "return_number", "point_source_id")
    extra = {name: np.ones(len(street), np.uint8) for name in columns}
    las = replace(street, label=np.full(len(street), 2), extra=extra)
    assert make_scene(las).legend[0].name == "ground"


def test_errors_are_right_wrong_or_not_counted(labels):
    cloud = PointCloud(coord=np.eye(3, dtype=np.float32), label=np.array([40, 10, 0]))
    prediction = Prediction(label=np.array([0, 0, 0]), labels=labels)
    scene = make_scene(cloud, prediction, color="error")
    assert [tuple(color) for color in scene.color.tolist()] == [RIGHT, WRONG, NOT_COUNTED]
    assert [entry.name for entry in scene.legend] == ["right", "wrong", "not counted"]


def test_errors_of_other_classes_are_refused(street, labels):
    other = replace(labels, names=("a", "b", "c", "d"))
    prediction = Prediction(label=np.zeros(len(street), np.int64), labels=other)
    with pytest.raises(ValueError, match="different ones"):
        make_scene(street, prediction, color="error", labels=labels)


def test_the_default_is_prediction_then_label_then_colour_then_intensity_then_height(
    street, labels
):
    prediction = Prediction(label=np.zeros(len(street), np.int64), labels=labels)
    assert make_scene(street, prediction).subject == "prediction"
    assert make_scene(street).subject == "label"
    bare = replace(street, label=None)
    colored = replace(bare, color=np.zeros((len(bare), 3), np.uint8))
    assert make_scene(colored).subject == "colour"
    assert make_scene(bare).subject == "intensity"
    assert make_scene(replace(bare, intensity=None)).subject == "height"


@pytest.mark.parametrize("color", sorted(set(COLORS) - {"height"}))
def test_a_missing_field_is_named(color):
    cloud = PointCloud(coord=np.zeros((2, 3), np.float32))
    with pytest.raises(ValueError, match=f"'{color}' needs"):
        make_scene(cloud, color=color)


def test_an_unknown_colouring_lists_the_known_ones(street):
    with pytest.raises(ValueError, match="label, prediction, error"):
        make_scene(street, color="depth")


def test_a_prediction_of_other_points_is_refused(street, labels):
    with pytest.raises(ValueError, match="3 rows, the cloud has 400"):
        make_scene(street, Prediction(label=np.zeros(3, np.int64), labels=labels))


def test_points_without_a_position_are_left_out_and_counted(street, labels):
    coord = street.coord.copy()
    coord[:3, 1] = np.nan, np.inf, -np.inf
    scene = make_scene(replace(street, coord=coord), labels=labels)
    assert len(scene) == 397
    assert np.isfinite(scene.coord).all()
    assert "3 points" in scene.note
    assert scene.legend[0].share == 97 / 397


def test_survey_coordinates_are_recentred_and_the_shift_is_kept():
    xyz = np.array([[650000.0, 6300000.0, 100.0], [650000.05, 6300000.0, 100.0]])
    scene = make_scene(PointCloud.from_xyz(xyz))
    assert np.abs(scene.coord).max() < 1
    assert np.allclose(scene.coord + scene.shift, xyz, atol=1e-4)
    assert len(np.unique(scene.coord[:, 0])) == 2


def test_the_middle_of_the_points_becomes_the_origin(street):
    far = replace(street, coord=street.coord + np.float32(3000))
    scene = make_scene(far)
    assert np.abs(np.median(scene.coord, axis=0)).max() < 1e-3
    assert np.abs(scene.coord + scene.shift - far.xyz).max() < 1e-3


def test_height_is_that_of_the_file():
    xyz = np.array([[0.0, 0.0, 5000.0], [0.0, 0.0, 5010.0]])
    scale = make_scene(PointCloud.from_xyz(xyz), color="height").scale
    assert 5000 <= scale.low < scale.high <= 5010
    assert scale.unit == "m"


def test_a_few_stray_values_do_not_wash_out_the_rest(street):
    values = np.linspace(0, 1, 400)
    values[:4] = 1e9
    scale = value_scene(street, values).scale
    assert scale.high < 1.1


def test_equal_values_and_unknown_values_have_a_colour(street):
    values = np.full(400, 7.0)
    values[0] = np.nan
    color = value_scene(street, values).color
    assert tuple(color[0]) == UNLABELED
    assert len(np.unique(color[1:], axis=0)) == 1


def test_many_ids_are_counted_not_listed(street):
    scene = id_scene(street, np.arange(400), word="window")
    assert scene.legend == ()
    assert scene.note == "400 windows"


def test_instance_0_is_no_instance(street):
    scene = make_scene(replace(street, instance=np.repeat([0, 5], 200)), color="instance")
    assert [entry.name for entry in scene.legend] == ["no instance", "instance 5"]
    assert scene.legend[0].color == UNLABELED


def test_thinning_keeps_colours_with_their_points_and_says_so(street, labels):
    scene = make_scene(street, labels=labels)
    thin = scene.thin(50)
    assert len(thin) == 50
    assert "50 of 400 points" in thin.note
    rows = {tuple(row): tuple(color) for row, color in zip(scene.coord, scene.color, strict=True)}
    assert all(
        rows[tuple(row)] == tuple(color) for row, color in zip(thin.coord, thin.color, strict=True)
    )
    assert scene.thin(400) is scene


def test_trimming_leaves_out_only_what_is_far_off(street):
    coord = street.coord.copy()
    coord[:2] = 1e7
    trimmed = make_scene(replace(street, coord=coord)).trim()
    assert len(trimmed) == 398
    assert "2 far points" in trimmed.note
    whole = make_scene(street)
    assert whole.trim() is whole


def test_scenes_of_one_cloud_have_the_same_points(street, labels):
    scenes = [make_scene(street, color=color) for color in ("label", "height")]
    assert same_points(scenes)
    assert not same_points([scenes[0], make_scene(street.select(slice(10)))])


def test_an_empty_cloud_makes_a_scene(labels):
    empty = PointCloud(coord=np.zeros((0, 3), np.float32), label=np.zeros(0, np.int64))
    assert len(make_scene(empty, labels=labels)) == 0
    assert make_scene(empty, color="height").legend == ()
