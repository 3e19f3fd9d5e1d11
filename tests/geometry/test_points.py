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


@pytest.mark.parametrize(
    "index",
    [np.array([5, 0, -1, 5]), np.arange(8) % 3 == 0, slice(2, 7, 2), np.zeros(0, np.int64)],
)
def test_every_field_is_cut_alike(index):
    row = np.arange(8)
    triple = np.stack([row] * 3, axis=1)
    cloud = PointCloud(
        coord=triple.astype(np.float32),
        color=triple.astype(np.uint8),
        label=row,
        extra={"ring": row.astype(np.int16), "wave": triple.astype(np.float64)},
    )
    cut = cloud.select(index)
    np.testing.assert_array_equal(cut.label, row[index])
    for column in (cut.coord, cut.color, cut.extra["wave"]):
        np.testing.assert_array_equal(column, triple[index])
    np.testing.assert_array_equal(cut.extra["ring"], row[index])
    assert cut.extra["ring"].dtype == np.int16
    assert (cut.intensity, cut.normal, cut.instance) == (None, None, None)
