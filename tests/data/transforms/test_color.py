"""Colours change as published, and are whole numbers in 0..255 ever after."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pctx.data.features import FeatureSpec
from pctx.data.transforms import (
    ColorContrast,
    ColorDistortion,
    ColorDrop,
    ColorJitter,
    ColorShift,
)
from pctx.geometry.points import PointCloud
from tests.data.transforms.clouds import full_cloud


def grey(n, value):
    return PointCloud(coord=np.zeros((n, 3), np.float32), color=np.full((n, 3), value, np.uint8))


def draws(transform, cloud, many=1000):
    return [transform(cloud, np.random.default_rng(i)).color.astype(int) for i in range(many)]


def test_contrast_stretches_each_channel_and_blends():
    color = np.array([[50, 10, 7], [100, 20, 7], [150, 110, 7]], np.uint8)
    cloud = replace(grey(3, 0), color=color)
    rng = np.random.default_rng(0)
    full = ColorContrast(probability=1, blend=1)(cloud, rng)
    # 255 (20 - 10) / 100 = 25.5, rounded to the even number; an even channel stays.
    np.testing.assert_array_equal(full.color, [[0, 0, 7], [128, 26, 7], [255, 255, 7]])
    half = ColorContrast(probability=1, blend=0.5)(cloud, rng)
    np.testing.assert_array_equal(half.color[:, 0], [25, 114, 202])


def test_the_blend_is_uniform_where_none_is_given():
    cloud = replace(grey(2, 0), color=np.array([[100] * 3, [200] * 3], np.uint8))
    low = np.array([c[0, 0] for c in draws(ColorContrast(probability=1), cloud)])
    assert stats.kstest(1 - low / 100, "uniform").pvalue > 1e-3


def test_a_shift_is_uniform_by_channel_and_the_same_for_all_points():
    shifts = np.array(draws(ColorShift(probability=1, ratio=0.2), grey(3, 128))) - 128
    assert (shifts == shifts[:, :1]).all()
    assert np.abs(shifts).max() == 51
    for channel in shifts[:, 0].T:
        assert stats.kstest((channel + 51.5) / 103, "uniform").pvalue > 1e-3


def test_colour_noise_is_normal_with_its_share_of_the_full_range():
    noise = np.array(draws(ColorJitter(probability=1, sigma=0.05), grey(2000, 128), 1))[0] - 128
    assert noise.std() == pytest.approx(12.75, rel=0.03)
    assert abs(noise.mean()) < 0.6
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.1


@pytest.mark.parametrize(
    ("transform", "value"), [(ColorJitter(sigma=1.0), 250), (ColorShift(ratio=1.0), 5)]
)
def test_colours_are_cut_and_never_wrap_round(transform, value):
    color = np.concatenate(draws(transform, grey(100, value), 50))
    near, far = (255, 0) if value > 128 else (0, 255)
    assert (color == near).mean() > 0.2
    assert (color == far).mean() < 0.45


@pytest.mark.parametrize(
    ("transform", "probability"),
    [(ColorContrast(), 0.2), (ColorShift(), 0.95), (ColorJitter(), 0.95), (ColorDrop(), 0.2)],
)
def test_each_comes_as_often_as_published(transform, probability):
    cloud = replace(grey(20, 0), color=np.arange(60, dtype=np.uint8).reshape(20, 3) + 100)
    changed = [not np.array_equal(c, cloud.color) for c in draws(transform, cloud)]
    assert abs(np.mean(changed) - probability) < 0.05


def test_dropped_colours_are_black_or_darker():
    cloud = grey(2, 90)
    rng = np.random.default_rng(0)
    assert not ColorDrop(probability=1)(cloud, rng).color.any()
    assert (ColorDrop(probability=1, factor=0.5)(cloud, rng).color == 45).all()


def test_distortion_is_contrast_then_shift_then_noise():
    cloud = replace(grey(5000, 0), color=np.full((5000, 3), 120, np.uint8))
    cloud.color[:2500] = 130
    color = np.array(draws(ColorDistortion(ratio=0.1, sigma=0.05), cloud, 100))
    apart = (color[:, :2500].mean(axis=1) - color[:, 2500:].mean(axis=1))[:, 0]
    assert apart.min() < 30  # the blend is uniform: 10 to 255 apart
    assert apart.max() > 200
    spread = color[:, :2500, 0].std(axis=1)
    assert 0.85 < (spread > 2).mean() <= 1  # no noise one time in twenty


def test_normalised_colours_are_features_and_the_same_in_prediction():
    """NormalizeColor of published recipes: colour / 127.5 - 1, or colour / 255."""
    cloud = full_cloud()
    for center, scale in ((127.5, 127.5), (0.0, 255.0)):
        spec = FeatureSpec(fields=("color",), centers={"color": center}, scales={"color": scale})
        wanted = (cloud.color.astype(np.float64) - center) / scale
        np.testing.assert_allclose(spec.extract(cloud), wanted, atol=1e-6)
