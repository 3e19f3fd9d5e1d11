"""Points left out, and in which order the others are."""

import numpy as np
import pytest

from pctx.data.transforms import CropBox, CropNearest, CropSphere, Dropout, Resample, Shuffle
from pctx.geometry.points import PointCloud
from tests.data.transforms.clouds import full_cloud


def rows(cloud):
    return cloud.extra["row"]


@pytest.fixture
def cloud():
    return full_cloud()


def test_dropout_keeps_an_exact_share_and_any_point_alike(cloud):
    counts = np.zeros(len(cloud))
    for seed in range(500):
        left = Dropout(ratio=0.25, probability=1)(cloud, np.random.default_rng(seed))
        assert len(left) == 300
        assert (np.diff(rows(left)) > 0).all()
        counts[rows(left)] += 1
    # Binomial: 500 times 0.75, a standard deviation of 9.7.
    assert np.abs(counts - 375).max() < 5 * 9.7


def test_dropout_comes_as_often_as_probable(cloud):
    sizes = [len(Dropout()(cloud, np.random.default_rng(i))) for i in range(1000)]
    assert set(sizes) == {320, 400}
    assert abs(np.mean(np.array(sizes) == 320) - 0.2) < 0.06


def test_a_crop_is_the_nearest_points_to_one_of_them(cloud):
    for seed in range(20):
        crop = CropNearest(max_points=40)(cloud, np.random.default_rng(seed))
        assert len(crop) == 40
        assert (np.diff(rows(crop)) > 0).all()
        out = np.setdiff1d(rows(cloud), rows(crop))
        distance = np.linalg.norm(cloud.coord[:, None] - crop.coord[None], axis=2)
        inside, outside = distance[rows(crop)].max(axis=0), distance[out].min(axis=0)
        assert (inside <= outside).any()


def test_the_smaller_of_count_and_share_decides(cloud):
    rng = np.random.default_rng(0)
    assert len(CropNearest(ratio=0.6)(cloud, rng)) == 240
    assert len(CropNearest(max_points=100, ratio=0.6)(cloud, rng)) == 100
    assert len(CropNearest(max_points=500, ratio=0.6)(cloud, rng)) == 240
    assert CropNearest(max_points=400)(cloud, rng) is cloud


def test_a_sphere_is_what_lies_within_its_radius_of_one_point(cloud):
    for seed in range(20):
        ball = CropSphere(radius=2)(cloud, np.random.default_rng(seed))
        distance = np.linalg.norm(cloud.coord[:, None] - ball.coord[None], axis=2)
        assert any(np.array_equal(np.flatnonzero(d <= 2), rows(ball)) for d in distance.T)


def test_centres_are_points_of_the_cloud_alike():
    coord = np.array([[0, 0, 0]] * 1 + [[50, 0, 0]] * 3, dtype=np.float32)
    cloud = PointCloud(coord=coord)
    seen = [len(CropSphere(radius=1)(cloud, np.random.default_rng(i))) for i in range(1000)]
    assert abs(np.mean(np.array(seen) == 1) - 0.25) < 0.06


def test_a_box_keeps_its_border_and_nothing_beyond():
    coord = np.array([[0, 0, 0], [1, 1, 1], [1.01, 0, 0], [0, np.nan, 0]], dtype=np.float32)
    inside = CropBox(low=[-1, -1, -1], high=[1, 1, 1])(PointCloud(coord=coord), None)
    np.testing.assert_array_equal(inside.coord, coord[:2])


@pytest.mark.parametrize("num_points", [1, 399, 400, 401, 900])
def test_a_resampled_cloud_has_its_number_of_points(cloud, num_points):
    result = Resample(num_points=num_points)(cloud, np.random.default_rng(0))
    assert len(result) == num_points
    assert len(set(rows(result).tolist())) == min(num_points, len(cloud))


def test_a_shuffle_keeps_every_point_and_no_order(cloud):
    orders = [rows(Shuffle()(cloud, np.random.default_rng(i))) for i in range(200)]
    assert all(sorted(order.tolist()) == list(range(400)) for order in orders)
    # The mean place of each point is 199.5, with a standard deviation of 8.2.
    places = np.argsort(np.array(orders), axis=1).mean(axis=0)
    assert np.abs(places - 199.5).max() < 5 * 8.2
