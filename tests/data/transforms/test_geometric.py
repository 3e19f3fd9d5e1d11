"""Turns, mirrors, scales and shifts do to the numbers what the published recipes say."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pctx.data.transforms import (
    Center,
    ClipBox,
    Flip,
    Rotate,
    RotateBy,
    Scale,
    Stretch,
    Tilt,
    Translate,
)
from pctx.geometry.points import PointCloud
from tests.data.transforms.clouds import full_cloud

MANY = 2000
"""Draws: a frequency of 0.5 is then known to 0.01, a tenth of what is asserted."""


@pytest.fixture
def cloud():
    return full_cloud()


@pytest.fixture
def axes():
    return PointCloud(coord=np.eye(3, dtype=np.float32))


def drawn(transform, cloud, many=MANY):
    """Apply a transform with many generators: (many, n, 3)."""
    return np.stack([transform(cloud, np.random.default_rng(i)).coord for i in range(many)])


def is_uniform(values, low, high):
    return stats.kstest((values - low) / (high - low), "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    "transform",
    [
        Rotate(),
        Rotate(axis="x", center="box"),
        RotateBy(probability=1, axis="y"),
        Tilt(angle=0.5),
        Flip(probability=1, axes=("x", "z")),
    ],
)
def test_turns_and_mirrors_keep_distances_and_turn_normals_along(cloud, transform):
    turned = transform(cloud, np.random.default_rng(5))
    assert not np.allclose(turned.coord, cloud.coord)
    old, new = (c.coord - c.coord[0] for c in (cloud, turned))
    np.testing.assert_allclose(new @ new.T, old @ old.T, atol=2e-3)
    np.testing.assert_allclose(
        new @ turned.normal.T, old @ cloud.normal.T, atol=1e-3
    )  # all angles between places and normals


def test_rotation_leaves_height():
    cloud = PointCloud(coord=np.array([[1, 0, 5]], dtype=np.float32))
    turned = Rotate()(cloud, np.random.default_rng(0))
    assert turned.coord[0, 2] == 5
    assert np.linalg.norm(turned.coord[0, :2]) == pytest.approx(1)


@pytest.mark.parametrize(("axis", "from_axis", "to_axis"), [("z", 0, 1), ("x", 1, 2), ("y", 2, 0)])
def test_a_quarter_turn_is_right_handed(axes, axis, from_axis, to_axis):
    turned = RotateBy(angles=[np.pi / 2], axis=axis, probability=1)(axes, np.random.default_rng(0))
    np.testing.assert_allclose(turned.coord[from_axis], axes.coord[to_axis], atol=1e-6)


def test_angles_are_uniform_and_as_often_as_probable(axes):
    coord = drawn(Rotate(angle=1.0, probability=0.5), axes)
    angle = np.arctan2(coord[:, 0, 1], coord[:, 0, 0])
    turned = angle != 0
    assert abs(turned.mean() - 0.5) < 0.05
    assert is_uniform(angle[turned], -1, 1)


def test_listed_angles_come_alike(axes):
    coord = drawn(RotateBy(), axes)
    angle = np.round(np.degrees(np.arctan2(coord[:, 0, 1], coord[:, 0, 0]))) % 360
    values, counts = np.unique(angle, return_counts=True)
    assert values.tolist() == [0, 90, 180, 270]
    np.testing.assert_allclose(counts / MANY, 0.25, atol=0.04)


def test_a_turn_about_the_box_leaves_its_middle():
    cloud = PointCloud(coord=np.array([[10, 5, 0], [14, 5, 0], [12, 5, 6]], dtype=np.float32))
    turned = RotateBy(angles=[np.pi], axis="y", probability=1, center="box")(
        cloud, np.random.default_rng(0)
    )
    wanted = [[14, 5, 6], [10, 5, 6], [12, 5, 0]]
    np.testing.assert_allclose(turned.coord, wanted, atol=1e-5)


def test_a_scale_is_one_factor_and_a_stretch_three(axes):
    one = drawn(Scale(low=0.8, high=1.2), axes)
    assert np.ptp(np.diagonal(one, axis1=1, axis2=2), axis=1).max() == 0
    three = np.diagonal(drawn(Stretch(low=0.8, high=1.2), axes), axis1=1, axis2=2)
    for factor in (one[:, 0, 0], *three.T):
        assert is_uniform(factor, 0.8, 1.2)
    assert abs(np.corrcoef(three.T)[np.triu_indices(3, 1)]).max() < 0.1


def test_stretched_normals_stay_upright_on_their_surface():
    rng = np.random.default_rng(0)
    normal = np.array([1, 2, 3]) / np.sqrt(14)
    plane = rng.normal(size=(50, 3))
    plane -= (plane @ normal)[:, None] * normal
    cloud = PointCloud(
        coord=plane.astype(np.float32), normal=np.tile(normal, (50, 1)).astype(np.float32)
    )
    result = Stretch(low=0.5, high=2)(cloud, rng)
    np.testing.assert_allclose(np.linalg.norm(result.normal, axis=1), 1, rtol=1e-6)
    between = result.coord - result.coord[0]
    np.testing.assert_allclose(between @ result.normal[0], 0, atol=1e-5)


def test_mirrors_are_independent_and_as_often_as_probable(axes):
    signs = np.diagonal(drawn(Flip(probability=0.3), axes), axis1=1, axis2=2)
    np.testing.assert_allclose((signs < 0).mean(axis=0), [0.3, 0.3, 0], atol=0.05)
    assert abs(((signs[:, 0] < 0) & (signs[:, 1] < 0)).mean() - 0.09) < 0.03


def test_a_shift_is_uniform_along_each_axis(axes):
    shift = drawn(Translate(x=1, y=2, z=0), axes)[:, 0] - axes.coord[0]
    assert is_uniform(shift[:, 0], -1, 1)
    assert is_uniform(shift[:, 1], -2, 2)
    assert not shift[:, 2].any()


def test_centring_puts_the_middle_and_the_floor_at_0():
    coord = np.array([[10, -4, 3], [20, 8, 9], [np.nan, 1e9, 0]], dtype=np.float32)
    cloud = PointCloud(coord=coord, origin=np.array([1e6, 0, 0]))
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(Center()(cloud, rng).coord[:2], [[-5, -6, 0], [5, 6, 6]])
    flat = Center(axes="xy")(cloud, rng)
    np.testing.assert_array_equal(flat.coord[:2], [[-5, -6, 3], [5, 6, 9]])


def test_clipped_points_lie_on_the_border():
    coord = np.array([[-9, 0, 0], [1, 1, 1], [9, 9, 9]], dtype=np.float32)
    clipped = ClipBox(low=[-2, -2, -2], high=[3, 4, 5])(PointCloud(coord=coord), None)
    np.testing.assert_array_equal(clipped.coord, [[-2, 0, 0], [1, 1, 1], [3, 4, 5]])


def test_far_coordinates_turn_without_loss(cloud):
    """Four kilometres from the origin float32 has a quarter of a millimetre."""
    far = replace(cloud, coord=cloud.coord + np.float32(4000))
    turn = RotateBy(angles=[0.7], probability=1, center="box")
    near = turn(replace(cloud, coord=far.coord - np.float32(4000)), np.random.default_rng(0))
    moved = turn(far, np.random.default_rng(0))
    np.testing.assert_allclose(moved.coord - 4000, near.coord, atol=2e-3)
