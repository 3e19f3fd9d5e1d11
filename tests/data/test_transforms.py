from dataclasses import replace

import numpy as np
import pytest

import pctx.data.transforms as transforms
from pctx.data.transforms import Flip, IntensityShift, Jitter, Rotate, Scale, Tilt, apply
from pctx.geometry.points import PointCloud

EVERY = [
    getattr(transforms, name) for name in transforms.__all__ if name not in ("Transform", "apply")
]


@pytest.fixture
def cloud():
    rng = np.random.default_rng(1)
    normal = rng.normal(size=(200, 3))
    return PointCloud(
        coord=rng.normal(size=(200, 3)).astype(np.float32) * 10,
        normal=(normal / np.linalg.norm(normal, axis=1, keepdims=True)).astype(np.float32),
        intensity=rng.random(200, dtype=np.float32),
        label=rng.integers(0, 5, 200),
        extra={"ring": rng.integers(0, 64, 200)},
    )


@pytest.mark.parametrize("transform", EVERY)
def test_a_transform_is_pure_and_hangs_on_its_generator_alone(cloud, transform):
    before = cloud.coord.copy(), cloud.intensity.copy()
    once = transform()(cloud, np.random.default_rng(3))
    again = transform()(cloud, np.random.default_rng(3))
    np.testing.assert_array_equal(once.coord, again.coord)
    np.testing.assert_array_equal(once.intensity, again.intensity)
    np.testing.assert_array_equal(before[0], cloud.coord)
    np.testing.assert_array_equal(before[1], cloud.intensity)
    assert once.coord.dtype == np.float32
    np.testing.assert_array_equal(once.label, cloud.label)


@pytest.mark.parametrize("transform", EVERY)
def test_an_empty_cloud_stays_empty(cloud, transform):
    assert len(transform()(cloud.select(slice(0)), np.random.default_rng(0))) == 0


@pytest.mark.parametrize("transform", [Rotate(), Tilt(angle=0.5), Flip(probability=1)])
def test_turns_and_mirrors_keep_distances_and_turn_normals_along(cloud, transform):
    turned = transform(cloud, np.random.default_rng(5))
    assert not np.allclose(turned.coord, cloud.coord)
    for name in ("coord", "normal"):
        old, new = getattr(cloud, name), getattr(turned, name)
        np.testing.assert_allclose(old @ old.T, new @ new.T, atol=2e-3)
    np.testing.assert_allclose(
        (turned.coord * turned.normal).sum(1), (cloud.coord * cloud.normal).sum(1), atol=1e-3
    )


def test_rotation_leaves_height():
    cloud = PointCloud(coord=np.array([[1, 0, 5]], dtype=np.float32))
    turned = Rotate()(cloud, np.random.default_rng(0))
    assert turned.coord[0, 2] == 5
    assert np.linalg.norm(turned.coord[0, :2]) == pytest.approx(1)


def test_scale_and_jitter_stay_in_their_limits(cloud):
    rng = np.random.default_rng(0)
    factor = Scale(low=0.8, high=1.2)(cloud, rng).coord / cloud.coord
    assert np.ptp(factor) < 1e-5
    assert 0.8 <= factor.min() <= factor.max() <= 1.2
    moved = Jitter(sigma=1, clip=0.1)(cloud, rng).coord - cloud.coord
    assert 0.05 < np.abs(moved).max() <= 0.1 + 1e-5


def test_intensity_can_be_dropped_and_may_be_absent(cloud):
    rng = np.random.default_rng(0)
    assert not IntensityShift(drop=1)(cloud, rng).intensity.any()
    assert IntensityShift()(replace(cloud, intensity=None), rng).intensity is None


def test_apply_leaves_out_steps_that_are_none(cloud):
    steps = {"rotate": None, "scale": Scale(low=2, high=2)}
    result = apply(steps, cloud, np.random.default_rng(0))
    np.testing.assert_allclose(result.coord, cloud.coord * 2)
