from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from pctx.geometry.points import PointCloud
from pctx.geometry.serialization import serialize
from pctx.geometry.windows import global_windows, grid_windows, octree_windows, serial_windows
from pctx.vis.palette import DISTINCT, Ramp, ramp_colors
from pctx.vis.structure import count_windows, order_scene, unlike, voxels_of, window_scene


def floor(n: int) -> PointCloud:
    """A square of n x n points a metre apart, each in a voxel of its own."""
    x, y = np.meshgrid(np.arange(n) + 0.5, np.arange(n) + 0.5, indexing="ij")
    coord = np.stack([x, y, np.full_like(x, 0.5)], axis=-1).reshape(-1, 3)
    return PointCloud(coord=coord.astype(np.float32))


def serial(sample, curve, window_size):
    points = sample.points
    (order,) = serialize(points.grid_coord, points.offsets, (curve,)).order
    return serial_windows(order, points.offsets, window_size)


def test_points_are_coloured_from_the_start_of_a_curve_to_its_end():
    cloud = floor(16)
    sample = voxels_of(cloud, 1.0)
    scene = order_scene(cloud, sample, "hilbert")
    points = sample.points
    (order,) = serialize(points.grid_coord, points.offsets, ("hilbert",)).order
    ramp = ramp_colors((np.arange(256) + 0.5) / 256, Ramp.ORDER)
    assert (scene.color[order] == ramp).all()
    assert scene.scale.ends == ("start of the curve", "end")
    assert scene.subject == "order along hilbert"


def test_a_point_has_the_colour_of_its_voxel(street):
    sample = voxels_of(street, 8.0)
    for scene in (
        order_scene(street, sample, "z"),
        window_scene(street, sample, serial(sample, "z", 5)),
    ):
        for voxel in range(len(sample.points)):
            inside = scene.color[sample.inverse.numpy() == voxel]
            assert len(inside) >= 1
            assert (inside == inside[0]).all()


@pytest.mark.parametrize("window_size", [4, 9, 30, 256])
@pytest.mark.parametrize("curve", ["z", "hilbert"])
def test_windows_side_by_side_have_different_colours(curve, window_size):
    cloud = floor(16)
    sample = voxels_of(cloud, 1.0)
    windows = serial(sample, curve, window_size)
    owner = (windows.slot // window_size).numpy().reshape(16, 16)
    color = window_scene(cloud, sample, windows).color.reshape(16, 16, 3)
    for here, there in (
        (np.s_[:-1], np.s_[1:]),
        (np.s_[:, :-1], np.s_[:, 1:]),
    ):
        same_window = owner[here] == owner[there]
        same_color = (color[here] == color[there]).all(axis=-1)
        assert (same_color == same_window).all()


def test_a_window_has_one_colour():
    cloud = floor(16)
    sample = voxels_of(cloud, 1.0)
    windows = grid_windows(sample.points.grid_coord, sample.points.offsets, 4)
    color = window_scene(cloud, sample, windows).color
    for members in windows.index.tolist():
        assert len(np.unique(color[members], axis=0)) == 1


def test_dilated_windows_that_share_a_place_have_different_colours():
    cloud = floor(16)
    sample = voxels_of(cloud, 1.0)
    points = sample.points
    (order,) = serialize(points.grid_coord, points.offsets, ("z",)).order
    color = window_scene(cloud, sample, octree_windows(order, points.offsets, 16, 4)).color
    # Along the curve, four consecutive points belong to four windows.
    for i in range(0, 256, 4):
        assert len(np.unique(color[order[i : i + 4]], axis=0)) == 4


def test_one_window_is_one_colour():
    cloud = floor(4)
    sample = voxels_of(cloud, 1.0)
    windows = global_windows(sample.points.offsets, len(sample.points))
    scene = window_scene(cloud, sample, windows)
    assert len(np.unique(scene.color, axis=0)) == 1
    assert scene.subject == "1 window of 16 slots"
    assert count_windows(windows, "global") == "1 global window of 16 slots"


def test_windows_that_meet_differ_while_the_colours_last():
    count = len(DISTINCT)
    every = np.array(list(combinations(range(count), 2)))
    assert sorted(unlike(every, count).tolist()) == list(range(count))
    ring = np.array([(i, (i + 1) % 101) for i in range(101)])
    number = unlike(np.sort(ring, axis=1), 101)
    assert (number[ring[:, 0]] != number[ring[:, 1]]).all()


def test_more_windows_meeting_than_there_are_colours_share_them_evenly():
    count = 2 * len(DISTINCT)
    number = unlike(np.array(list(combinations(range(count), 2))), count)
    assert (np.bincount(number) == 2).all()


def test_windows_that_meet_nothing_use_all_colours():
    number = unlike(np.zeros((0, 2), np.int64), 3 * len(DISTINCT))
    assert (np.bincount(number) == 3).all()


@pytest.mark.parametrize("n", [0, 1, 2])
def test_hardly_any_points_have_an_order_and_windows(n):
    cloud = floor(2).select(slice(n))
    sample = voxels_of(cloud, 1.0)
    assert len(order_scene(cloud, sample, "hilbert")) == n
    assert len(window_scene(cloud, sample, serial(sample, "z", 4))) == n


def test_points_without_a_position_are_left_out(street):
    coord = street.coord.copy()
    coord[:3, 1] = np.nan, np.inf, -np.inf
    broken, rest = replace(street, coord=coord), street.select(slice(3, None))
    sample, whole = voxels_of(broken, 4.0), voxels_of(rest, 4.0)
    scene = window_scene(broken, sample, serial(sample, "z", 5))
    assert "3 points" in scene.note
    assert (scene.color == window_scene(rest, whole, serial(whole, "z", 5)).color).all()
    assert (order_scene(broken, sample, "z").color == order_scene(rest, whole, "z").color).all()


def test_an_unknown_curve_is_refused(street):
    with pytest.raises(ValueError, match="spiral"):
        order_scene(street, voxels_of(street, 1.0), "spiral")
