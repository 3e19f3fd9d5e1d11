import numpy as np

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
