"""Noise of points and of space."""

import numpy as np
import pytest
from scipy import ndimage, stats
from scipy.interpolate import RegularGridInterpolator

import pctx.data.transforms.noise as module
from pctx.data.transforms import Elastic, Jitter
from pctx.data.transforms.noise import smooth_noise
from pctx.geometry.points import PointCloud


def cloud_of(coord):
    return PointCloud(coord=np.asarray(coord, dtype=np.float32))


def test_jitter_is_normal_cut_at_its_limit():
    still = cloud_of(np.zeros((20_000, 3)))
    noise = Jitter(sigma=0.5, clip=1.0)(still, np.random.default_rng(0)).coord
    assert np.abs(noise).max() == 1.0
    assert abs((np.abs(noise) == 1.0).mean() - 2 * stats.norm.sf(2)) < 0.004
    inner = noise[np.abs(noise) < 1]
    assert stats.kstest(inner[:5000] / 0.5, stats.truncnorm(-2, 2).cdf).pvalue > 1e-3


@pytest.mark.parametrize("extent", [[3.0, 4.0, 2.0], [0.1, 5.0, 0.0]])
def test_smooth_noise_is_that_of_the_published_formula(extent):
    """Normal noise at nodes, blurred twice by the mean of three, and what lies between them."""
    coord = (np.random.default_rng(1).random((500, 3)) * extent).astype(np.float32) - 1
    spacing = 0.3
    low = coord.min(axis=0).astype(np.float64)
    counts = (np.ptp(coord, axis=0) // spacing).astype(int) + 3
    noise = np.random.default_rng(7).standard_normal((3, *counts), dtype=np.float32)
    for axis in (1, 2, 3, 1, 2, 3):
        noise = ndimage.convolve1d(noise, [1 / 3] * 3, axis=axis, mode="constant")
    nodes = [start + spacing * (np.arange(c) - 1) for start, c in zip(low, counts, strict=True)]
    wanted = RegularGridInterpolator(nodes, np.moveaxis(noise, 0, -1))(coord)
    found = smooth_noise(coord, spacing, np.random.default_rng(7))
    # float32 places the points to a ten thousandth of the spacing.
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_steps_follow_one_another():
    coord = np.random.default_rng(1).random((100, 3)).astype(np.float32) * 5
    rng = np.random.default_rng(3)
    rng.random()  # whether to bend at all
    wanted = coord + np.float32(0.4) * smooth_noise(coord, 0.2, rng)
    wanted = wanted + np.float32(1.6) * smooth_noise(wanted, 0.8, rng)
    bent = Elastic(probability=1)(cloud_of(coord), np.random.default_rng(3))
    np.testing.assert_array_equal(bent.coord, wanted)


def test_neighbours_move_alike_and_far_points_apart():
    line = np.zeros((4000, 3), dtype=np.float32)
    line[:, 0] = np.linspace(0, 400, 4000)
    moved = Elastic(steps=[[2.0, 1.0]], probability=1)(cloud_of(line), np.random.default_rng(0))
    shift = moved.coord - line
    near = np.corrcoef(shift[:-1, 1], shift[1:, 1])[0, 1]
    far = np.corrcoef(shift[:-200, 1], shift[200:, 1])[0, 1]
    assert near > 0.99
    assert abs(far) < 0.25


def test_noise_of_a_large_extent_keeps_its_strength_and_stays_smooth(monkeypatch):
    coord = (np.random.default_rng(0).random((20_000, 3)) * [60, 60, 10]).astype(np.float32)
    whole = smooth_noise(coord, 1.0, np.random.default_rng(0))
    monkeypatch.setattr(module, "MAX_NODES", 4000)
    folded = smooth_noise(coord, 1.0, np.random.default_rng(0))
    assert folded.std() == pytest.approx(whole.std(), rel=0.1)
    near = coord + np.float32(0.01)
    step = np.abs(
        smooth_noise(near, 1.0, np.random.default_rng(0)) - folded
    ).max()  # a fold without a jump
    assert step < 0.1


def test_a_stray_point_does_not_use_up_the_memory():
    coord = np.random.default_rng(0).random((1000, 3)).astype(np.float32) * 10
    coord[0] = [1e30, -1e30, 3e38]
    bent = Elastic(probability=1)(cloud_of(coord), np.random.default_rng(0))
    assert np.isfinite(bent.coord[1:]).all()


def test_space_bends_as_often_as_probable():
    cloud = cloud_of(np.random.default_rng(0).random((3, 3)))
    bent = [
        not np.array_equal(Elastic()(cloud, np.random.default_rng(i)).coord, cloud.coord)
        for i in range(1000)
    ]
    assert abs(np.mean(bent) - 0.95) < 0.03
