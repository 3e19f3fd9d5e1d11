"""Which points of which cloud a mixture holds."""

from dataclasses import replace

import numpy as np
import pytest

from pctx.data.transforms import CutMix, LaserMix, Mix3D, PolarMix
from pctx.data.transforms.mixing import union
from pctx.geometry.points import PointCloud
from tests.data.transforms.clouds import full_cloud

THEIRS = 1000


@pytest.fixture
def cloud():
    return full_cloud()


@pytest.fixture
def other():
    """Another cloud, with its rows numbered from 1000 on."""
    made = full_cloud(300, seed=4)
    return replace(made, extra={**made.extra, "row": made.extra["row"] + THEIRS})


def parts(mixed):
    """Give the rows of both clouds that a mixture holds, each once."""
    row = mixed.extra["row"]
    assert len(set(row.tolist())) == len(row)
    return row[row < THEIRS], row[row >= THEIRS] - THEIRS


def left(cloud, rows):
    return np.setdiff1d(np.arange(len(cloud)), rows)


def test_mix3d_is_all_points_of_both(cloud, other):
    mine, theirs = parts(Mix3D()(cloud, other, np.random.default_rng(0)))
    assert (len(mine), len(theirs)) == (400, 300)


def test_a_union_is_in_the_frame_of_the_first_whatever_the_origins(cloud, other):
    moved = replace(other, origin=np.array([9e6, 1.0, 2.0]))
    both = union(cloud, moved)
    np.testing.assert_array_equal(both.origin, cloud.origin)
    np.testing.assert_array_equal(both.coord[400:], other.coord)


def test_a_union_has_the_fields_that_all_have(cloud, other):
    both = union(cloud, replace(other, color=None, extra={"row": other.extra["row"]}))
    assert both.color is None
    assert set(both.extra) == {"row"}
    assert both.normal is not None
    with_empty = union(cloud, PointCloud(coord=np.zeros((0, 3), np.float32)))
    np.testing.assert_array_equal(with_empty.color, cloud.color)


def test_instances_of_two_clouds_stay_two(cloud, other):
    both = union(cloud, other, other)
    ids = [set(part[part > 0].tolist()) for part in np.split(both.instance, [400, 700])]
    assert sum(map(len, ids)) == len(set().union(*ids))
    assert (both.instance == 0).sum() == 320 + 240 + 240


def azimuths(cloud, rows):
    return np.arctan2(cloud.coord[rows, 1], cloud.coord[rows, 0])


def test_polar_mix_swaps_half_a_turn(cloud, other):
    starts = []
    for seed in range(40):
        mixed = PolarMix(swap=1, paste=0)(cloud, other, np.random.default_rng(seed))
        mine, theirs = parts(mixed)
        mine_out = left(cloud, mine)
        # Turned to the start of the sector, what was taken lies on its left, the rest on its right.
        start = np.random.default_rng(seed)
        start.random()
        start = start.uniform(-np.pi, np.pi)
        starts.append(start)
        inside = [azimuths(cloud, mine_out), azimuths(other, theirs)]
        outside = [azimuths(cloud, mine), azimuths(other, left(other, theirs))]
        assert all((np.sin(angle - start) > -1e-6).all() for angle in inside)
        assert all((np.sin(angle - start) < 1e-6).all() for angle in outside)
    assert np.ptp(starts) > 5


def test_polar_mix_pastes_objects_as_they_are_and_turned(cloud, other):
    mixed = PolarMix(classes=[3], swap=0, copies=2)(cloud, other, np.random.default_rng(2))
    objects = other.select(other.label == 3)
    assert len(mixed) == 400 + 3 * len(objects)
    assert (mixed.label[400:] == 3).all()
    copies = np.split(mixed.coord[400:], 3)
    np.testing.assert_array_equal(copies[0], objects.coord)
    for number, copy in enumerate(copies[1:]):
        np.testing.assert_array_equal(copy[:, 2], objects.coord[:, 2])
        turn = azimuths(PointCloud(coord=copy), slice(None)) - azimuths(objects, slice(None))
        turn %= 2 * np.pi
        assert np.ptp(turn) < 1e-5
        assert 2 * np.pi / 3 * number <= turn[0] <= 2 * np.pi / 3 * (number + 1)
    ids = [set(p.tolist()) for p in np.split(mixed.instance[400:], 3)]
    assert len(set().union(*ids)) == sum(map(len, ids))


def test_polar_mix_swaps_and_pastes_as_often_as_published(cloud, other):
    sizes = [len(PolarMix(classes=[3])(cloud, other, np.random.default_rng(i))) for i in range(400)]
    assert abs(np.mean(np.array(sizes) == 400 + 3 * 60) - 0.5) < 0.08


def test_laser_mix_takes_turns_by_inclination(cloud, other):
    counts = set()
    for seed in range(60):
        mixed = LaserMix(low=-0.5, high=0.3)(cloud, other, np.random.default_rng(seed))
        mine, theirs = parts(mixed)
        bands = [3, 4, 5, 6][int(np.random.default_rng(seed).integers(4))]
        counts.add(bands)
        for made, rows, even in ((cloud, mine, 0), (other, theirs, 1)):
            angle = np.arctan2(made.coord[:, 2], np.hypot(*made.coord[:, :2].T))
            edges = np.linspace(0.3, -0.5, bands + 1)
            band = (angle[:, None] < edges[None, 1:-1]).sum(axis=1)
            np.testing.assert_array_equal(np.flatnonzero(band % 2 == even), rows)
    assert counts == {3, 4, 5, 6}


def test_cut_mix_swaps_an_upright_box(cloud, other):
    shares = []
    for seed in range(300):
        mixed = CutMix()(cloud, other, np.random.default_rng(seed))
        mine, theirs = parts(mixed)
        gone = cloud.coord[left(cloud, mine), :2]
        shares.append(len(gone) / 400)
        if not len(gone):
            continue
        low, high = gone.min(axis=0), gone.max(axis=0)
        inside = ((cloud.coord[mine, :2] >= low) & (cloud.coord[mine, :2] <= high)).all(axis=1)
        assert not inside.any()
        # Points of the other within what is certainly inside came along, all of them.
        sure = ((other.coord[:, :2] >= low) & (other.coord[:, :2] <= high)).all(axis=1)
        assert set(np.flatnonzero(sure).tolist()) <= set(theirs.tolist())
    assert min(shares) < 0.02
    assert max(shares) > 0.7


def test_the_box_of_cut_mix_has_the_share_of_the_paper():
    """Beta(1, 1) is uniform: so is the box's area, as a share of the extent."""
    grid = np.stack(np.meshgrid(np.arange(101), np.arange(101)), axis=-1).reshape(-1, 2)
    flat = PointCloud(coord=np.pad(grid, ((0, 0), (0, 1))).astype(np.float32))
    none = flat.select(slice(0))
    share = np.array(
        [1 - len(CutMix()(flat, none, np.random.default_rng(i))) / 101**2 for i in range(400)]
    )
    # A box with its middle anywhere loses part of its area at the border; E = 5/12 and 1/4 lost.
    rng = np.random.default_rng(0)
    edge, x, y = np.sqrt(rng.random(10**6)), rng.random(10**6), rng.random(10**6)
    wide, high = (np.minimum(p + edge / 2, 1) - np.maximum(p - edge / 2, 0) for p in (x, y))
    assert share.mean() == pytest.approx((wide * high).mean(), abs=0.04)


def test_points_that_are_not_finite_stay_with_the_cloud(cloud, other):
    coord = cloud.coord.copy()
    coord[::5] = np.nan
    broken = replace(cloud, coord=coord)
    theirs = other.coord.copy()
    theirs[::5] = np.nan
    for mix in (PolarMix(classes=[3], swap=1), LaserMix(), CutMix()):
        mixed = mix(broken, replace(other, coord=theirs), np.random.default_rng(1))
        assert (~mixed.finite).sum() == 80
        assert (mixed.extra["row"][~mixed.finite] < THEIRS).all()
