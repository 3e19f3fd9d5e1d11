from dataclasses import replace

import numpy as np

from pctx.geometry.points import PointCloud
from pctx.vis.fields import make_scene
from pctx.vis.palette import UNLABELED
from pctx.vis.scene import id_scene, same_points, value_scene


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
