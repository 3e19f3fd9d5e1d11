import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pctx.data.tiling import (
    Box,
    Limits,
    balanced_boxes,
    cell_edge,
    cell_keys,
    halves,
    in_range,
    sort_cells,
    square_boxes,
)

NO_LIMIT = 10**9


def cloud(n=5000, extent=100.0, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(0, extent, size=(n, 3)).astype(np.float32)


def cells_of(coord, edge=2.5, grid_size=0.1):
    return sort_cells(coord, edge, np.zeros(3), grid_size)[0]


def limits(voxels=NO_LIMIT, points=NO_LIMIT, extent=1e9):
    return Limits(voxels=voxels, points=points, extent=extent)


def check_cover(boxes, coord):
    owners = np.stack([box.holds(coord) for box in boxes])
    assert (owners.sum(axis=0) == 1).all()


@pytest.mark.parametrize("size", [10.0, 40.0, 1000.0])
def test_square_boxes_hold_each_point_once(size):
    coord = cloud()
    edge = cell_edge(0.1, size)
    boxes = square_boxes(cells_of(coord, edge), size)
    check_cover(boxes, coord)
    assert all(np.isinf([box.low[2], box.high[2]]).all() for box in boxes)
    sides = np.concatenate([(box.high - box.low)[:2] for box in boxes])
    np.testing.assert_allclose(sides, size)


@pytest.mark.parametrize("most", [300, 1000, 10_000])
def test_balanced_boxes_hold_each_point_once_and_their_limits(most):
    coord = cloud()
    cells = cells_of(coord)
    boxes = balanced_boxes(cells, limits(points=most), 1.0)
    check_cover(boxes, coord)
    for box in boxes:
        assert box.widened(1.0).holds(coord).sum() <= most
    assert (len(boxes) == 1) == (most == 10_000)


def test_a_box_is_not_halved_for_voxels_where_it_sees_little_but_surroundings():
    coord = cloud(20_000, extent=20.0)
    boxes = balanced_boxes(cells_of(coord), limits(voxels=100), 5.0)
    widths = [min(box.high - box.low) for box in boxes]
    assert min(widths) >= 5.0
    assert len(boxes) > 1


def test_repeated_points_do_not_make_boxes_without_end():
    same = np.zeros((50, 3), dtype=np.float32)
    assert len(balanced_boxes(cells_of(same), limits(points=10), 1.0)) == 1
    mixed = np.concatenate([same, same + 10])
    boxes = balanced_boxes(cells_of(mixed), limits(points=60), 1.0)
    assert len(boxes) == 2
    check_cover(boxes, mixed)


def test_a_far_stray_point_gets_a_box_of_its_own():
    coord = np.concatenate([cloud(), [[50_000, 0, 0]]]).astype(np.float32)
    boxes = balanced_boxes(cells_of(coord), limits(extent=5_000.0), 2.0)
    check_cover(boxes, coord)
    sizes = [int(box.holds(coord).sum()) for box in boxes]
    assert sorted(size for size in sizes if size) == [1, 5000]


def test_halves_share_the_voxels_and_meet_in_one_face():
    coord = cloud()
    cells = cells_of(coord)
    first, second = halves(cells, Box.everything())
    check_cover([first, second], coord)
    assert first.high[0] == second.low[0] < np.inf
    part = first.holds(coord).mean()
    assert 0.4 < part < 0.6
    assert halves(cells_of(np.zeros((5, 3))), Box.everything()) == ()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.5, 6.0), st.integers(150, 1000))
def test_weights_of_all_boxes_never_vanish_and_fall_to_nothing(seed, blend, most):
    coord = cloud(500, extent=30.0, seed=seed)
    boxes = balanced_boxes(cells_of(coord), limits(points=most), 2 * blend)
    weights = np.stack([box.weight(coord, blend) for box in boxes])
    assert (weights.sum(axis=0) > 0.1).all()
    for box, weight in zip(boxes, weights, strict=True):
        assert (weight[~box.widened(blend).holds(coord)] == 0).all()
        assert (weight[box.widened(-blend).holds(coord)] == 1).all()


def test_weights_of_two_boxes_add_up_to_one():
    coord = cloud()
    pair = halves(cells_of(coord), Box.everything())
    total = sum(box.weight(coord, 3.0) for box in pair)
    np.testing.assert_allclose(total, 1, atol=1e-6)
    hard = np.stack([box.weight(coord, 0) for box in pair])
    assert np.isin(hard, (0, 1)).all()
    assert (hard.sum(axis=0) == 1).all()


def test_cells_count_points_and_voxels_and_sort_them():
    coord = cloud(3000, extent=10.0)
    cells, order = sort_cells(coord, 2.5, np.zeros(3), 0.5)
    keys = cell_keys(coord, 2.5, np.zeros(3))
    assert cells.points.sum() == 3000
    np.testing.assert_array_equal(cells.rank(keys[order]), np.repeat(np.arange(64), cells.points))
    voxels = np.unique(np.floor(coord / np.float32(0.5)), axis=0)
    assert cells.voxels.sum() == len(voxels)


def test_cells_counted_in_parts_are_the_same():
    coord = cloud(3000, extent=10.0)
    whole = cells_of(coord)
    parts = cells_of(coord[:1000]).merged(cells_of(coord[1000:]))
    np.testing.assert_array_equal(parts.keys, whole.keys)
    np.testing.assert_array_equal(parts.points, whole.points)
    assert (parts.voxels >= whole.voxels).all()


def test_runs_are_the_sorted_points_of_the_cells_of_a_box():
    coord = cloud()
    cells, order = sort_cells(coord, 2.5, np.zeros(3), 0.1)
    box = Box(low=np.array([10.0, -np.inf, 20.0]), high=np.array([40.0, np.inf, 30.0]))
    found = np.concatenate([order[a:b] for a, b in cells.runs(cells.touching(box))])
    assert len(np.unique(found)) == len(found)
    assert np.isin(np.flatnonzero(box.holds(coord)), found).all()


def test_cells_far_away_are_out_of_range():
    keys = cell_keys(np.array([[0, 0, 0], [1e30, 0, 0], [0, -1e9, 0]]), 1.0, np.zeros(3))
    assert in_range(keys).tolist() == [True, False, False]


def test_the_largest_box_is_nearly_full_however_many_there_are():
    for extent in (140.0, 280.0):
        rng = np.random.default_rng(0)
        flat = rng.uniform(0, [extent, extent, 1], size=(int(extent**2 / 2), 3))
        cells = cells_of(flat.astype(np.float32), grid_size=0.5)
        boxes = balanced_boxes(cells, limits(voxels=1000), 4.0)
        seen = [cells.voxels[cells.touching(box.widened(4.0))].sum() for box in boxes]
        assert 950 < max(seen) <= 1000
