import numpy as np
import pytest

from pctx.geometry.points import PointCloud


def test_a_far_stray_point_does_not_move_the_origin_of_a_sensor_frame():
    xyz = np.concatenate(
        [np.random.default_rng(0).normal(size=(50, 3)) * 20, np.array([[5e4, 0, 0]])]
    )
    assert PointCloud.from_xyz(xyz).origin.tolist() == [0, 0, 0]
    there = np.array([770_000, 6_277_000, 30])
    survey = PointCloud.from_xyz(xyz + there)
    assert np.abs(survey.origin - there).max() < 30
    assert np.abs(survey.xyz - xyz - there)[:-1].max() < 1e-5


def test_coordinates_have_three_columns():
    for shape in ((4, 6), (9,), (2, 3, 3)):
        with pytest.raises(ValueError, match=r"xyz must be \(n, 3\), found"):
            PointCloud.from_xyz(np.zeros(shape))


def test_a_point_beyond_float32_is_not_finite():
    stray = PointCloud.from_xyz(np.array([[1e39, 0, 0], [1, 2, 3], [4, 5, 6]]))
    assert stray.finite.tolist() == [False, True, True]
