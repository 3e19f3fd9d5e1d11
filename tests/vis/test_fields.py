from dataclasses import replace

import numpy as np
import pytest

from pctx.data.prediction import Prediction
from pctx.geometry.points import PointCloud
from pctx.vis.fields import COLORS, make_scene
from pctx.vis.palette import NOT_COUNTED, RIGHT, UNLABELED, WRONG


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
    own = replace(las, label=np.where(np.arange(len(las)) % 2, 2, 64))  # 64 and up are the user's
    assert [line.name for line in make_scene(own).legend] == ["ground", "id 64 (no class)"]


def test_las_files_with_classes_of_another_kind_are_not_named_as_las_does(street):
    """SemanticKITTI's 10 is a car, and would be a rail."""
    columns = ("number_of_returns", "return_number")
    extra = {name: np.ones(len(street), np.uint8) for name in columns}
    las = replace(street, label=np.where(np.arange(len(street)) % 2, 10, 40), extra=extra)
    assert [line.name for line in make_scene(las).legend] == ["id 10", "id 40"]


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


def test_how_sure_a_prediction_is_can_be_written_by_a_command(street):
    with pytest.raises(ValueError, match="and there is none; `pctx predict --entropy` writes it"):
        make_scene(street, color="entropy")


def test_an_unknown_colouring_lists_the_known_ones(street):
    with pytest.raises(ValueError, match="label, prediction, error"):
        make_scene(street, color="depth")


def test_a_prediction_of_other_points_is_refused(street, labels):
    with pytest.raises(ValueError, match="3 rows, the cloud has 400"):
        make_scene(street, Prediction(label=np.zeros(3, np.int64), labels=labels))


def test_height_is_that_of_the_file():
    xyz = np.array([[0.0, 0.0, 5000.0], [0.0, 0.0, 5010.0]])
    scale = make_scene(PointCloud.from_xyz(xyz), color="height").scale
    assert 5000 <= scale.low < scale.high <= 5010
    assert scale.unit == "m"


def test_instance_0_is_no_instance(street):
    scene = make_scene(replace(street, instance=np.repeat([0, 5], 200)), color="instance")
    assert [entry.name for entry in scene.legend] == ["no instance", "instance 5"]
    assert scene.legend[0].color == UNLABELED


def test_an_empty_cloud_makes_a_scene(labels):
    empty = PointCloud(coord=np.zeros((0, 3), np.float32), label=np.zeros(0, np.int64))
    assert len(make_scene(empty, labels=labels)) == 0
    assert make_scene(empty, color="height").legend == ()
