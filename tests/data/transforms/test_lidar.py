"""Fewer beams, less reach, fields that are missing."""

from dataclasses import replace

import numpy as np
import pytest

from pctx.data.features import FeatureSpec
from pctx.data.transforms import (
    BeamDropout,
    BeamThinning,
    ChannelDropout,
    IntensityShift,
    RangeDropout,
)
from pctx.data.transforms.lidar import beam_of
from pctx.geometry.points import PointCloud
from tests.data.transforms.clouds import full_cloud


@pytest.fixture
def cloud():
    return full_cloud()


def spinning(beams=16, columns=100):
    """A scan of a room by beams of equal steps of inclination, 10 m off."""
    angle = np.repeat(np.radians(np.linspace(-15, 15, beams)), columns)
    turn = np.tile(np.linspace(-np.pi, np.pi, columns), beams)
    coord = np.stack([np.cos(turn), np.sin(turn), np.tan(angle)], axis=1) * 10
    ring = np.repeat(np.arange(beams), columns)
    return PointCloud(coord=coord.astype(np.float32), extra={"ring": ring})


def test_beams_are_lost_whole_and_by_their_share():
    cloud, share = spinning(), []
    for seed in range(300):
        left = BeamDropout(ratio=0.3, probability=1)(cloud, np.random.default_rng(seed))
        counts = np.bincount(left.extra["ring"], minlength=16)
        assert set(counts.tolist()) <= {0, 100}
        share.append((counts == 0).mean())
    assert np.mean(share) == pytest.approx(0.3, abs=0.03)


def test_a_thinned_scan_is_every_nth_beam_from_any_first():
    firsts = set()
    for seed in range(60):
        left = BeamThinning(steps=[4], probability=1)(spinning(), np.random.default_rng(seed))
        rings = np.unique(left.extra["ring"])
        assert np.diff(rings).tolist() == [4, 4, 4]
        firsts.add(int(rings[0]))
    assert firsts == {0, 1, 2, 3}


def test_without_a_ring_number_beams_are_found_by_inclination():
    cloud = spinning()
    bare = replace(cloud, extra={})
    beam = beam_of(bare, "ring", 16)
    # Steps and beams need not coincide, but no beam is torn.
    assert all(len(set(beam[cloud.extra["ring"] == r].tolist())) == 1 for r in range(16))
    assert len(np.unique(beam)) >= 14
    assert beam_of(bare, "ring", 0) is None
    assert BeamDropout(probability=1, ratio=1, beams=0)(bare, np.random.default_rng(0)) is bare


def test_any_column_may_number_the_strips():
    strip = np.repeat([7, 70_000_000, 9], 100)
    cloud = PointCloud(coord=np.zeros((300, 3), np.float32), extra={"point_source_id": strip})
    lost = BeamDropout(field="point_source_id", ratio=0.5, probability=1, beams=0)
    sizes = {len(lost(cloud, np.random.default_rng(seed))) for seed in range(50)}
    assert sizes == {0, 100, 200, 300}


def test_far_points_are_lost_more_often():
    rng = np.random.default_rng(0)
    distance = rng.uniform(0, 100, 40_000)
    cloud = PointCloud(
        coord=np.stack([distance * 0.6, -distance * 0.8, distance], axis=1).astype(np.float32)
    )
    left = RangeDropout(low=20, high=60, ratio=0.8, probability=1)(cloud, rng)
    kept = np.hypot(left.coord[:, 0], left.coord[:, 1])
    for low, share in ((0, 1.0), (10, 1.0), (35, 0.6), (55, 0.25), (70, 0.2), (90, 0.2)):
        near = [((d >= low) & (d < low + 10)).sum() for d in (kept, distance)]
        assert near[0] / near[1] == pytest.approx(share, abs=0.08)
    sharp = RangeDropout(low=30, high=30, ratio=1, probability=1)(cloud, rng)
    assert np.hypot(sharp.coord[:, 0], sharp.coord[:, 1]).max() <= 30.001


def test_a_lost_channel_is_what_a_fill_value_makes_of_a_missing_one(cloud):
    drop = ChannelDropout(fields={"color": 20.0, "intensity": 0.5, "ring": 3.0}, probability=1)
    dropped = drop(cloud, np.random.default_rng(0))
    bare = replace(cloud, color=None, intensity=None, extra={})
    spec = FeatureSpec(fields=("height", "color", "intensity", "ring"), scales={"color": 255.0})
    np.testing.assert_array_equal(spec.extract(dropped), spec.extract(bare, drop.fields))


def test_channels_are_lost_one_by_one(cloud):
    drop = ChannelDropout(probability=0.3)
    lost = np.array(
        [
            [not c.color.any(), not c.intensity.any()]
            for c in (drop(cloud, np.random.default_rng(i)) for i in range(1000))
        ]
    )
    np.testing.assert_allclose(lost.mean(axis=0), 0.3, atol=0.06)
    assert lost.all(axis=1).mean() == pytest.approx(0.09, abs=0.04)


def test_intensity_gains_are_log_uniform_and_it_can_be_dropped(cloud):
    rng = np.random.default_rng(0)
    gains = [
        np.log(IntensityShift(gain=2)(cloud, rng).intensity.sum() / cloud.intensity.sum())
        for _ in range(1000)
    ]
    assert np.abs(gains).max() <= np.log(2) + 1e-5
    assert np.mean(gains) == pytest.approx(0, abs=0.06)
    assert np.std(gains) == pytest.approx(np.log(2) / np.sqrt(3), rel=0.06)
    assert not IntensityShift(drop=1)(cloud, rng).intensity.any()
    assert IntensityShift()(replace(cloud, intensity=None), rng).intensity is None
