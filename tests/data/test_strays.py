"""Strays: what is far from all others is told from a cloud's far ends."""

import numpy as np
import pytest

from pctx.data.strays import near_bulk

CLOUD = np.random.default_rng(0).integers(0, 40, (1000, 3))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("side", [-1, 1])
def test_a_point_ten_sizes_off_is_a_stray_on_either_side_of_any_axis(axis, side):
    far = CLOUD[:1].copy()
    for place, near in ((side * 350, True), (side * 450, False)):
        far[0, axis] = place
        kept = near_bulk(np.concatenate([CLOUD, far]), 0)
        assert kept[:-1].all() and kept[-1] == near


def test_near_is_near_however_small_the_cloud():
    keys = np.concatenate([np.zeros((1000, 3), np.int64), [[30, 0, 0], [31, 0, 0]]])
    assert near_bulk(keys, 30).tolist() == [True] * 1001 + [False]


def test_a_group_of_more_than_a_twohundredth_belongs_to_the_cloud():
    far = CLOUD[:6] + np.array([10_000, 0, 0])
    assert near_bulk(np.concatenate([CLOUD, far]), 0).all()
    assert not near_bulk(np.concatenate([CLOUD, far[:4]]), 0)[1000:].any()


def test_few_points_have_no_strays():
    keys = np.concatenate([CLOUD[:198], [[10**6, 0, 0]]])
    assert near_bulk(keys, 0).all()
    assert near_bulk(keys[-1:], 0).all()


def test_counted_cells_are_as_good_as_their_points():
    rng = np.random.default_rng(1)
    for _ in range(20):
        keys = rng.integers(-5, 5, (60, 3)) ** 5 // 7
        cells, counts = np.unique(keys, axis=0, return_counts=True)
        kept = near_bulk(cells, 3, counts)
        both = {tuple(key) for key in cells[kept]}
        assert near_bulk(keys, 3).tolist() == [tuple(key) in both for key in keys]
