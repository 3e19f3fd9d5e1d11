import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pctx.geometry.curves import CURVES
from pctx.geometry.packed import batch_from_offsets, offsets_from_counts
from pctx.geometry.serialization import serialize
from pctx.geometry.windows import (
    curve_windows,
    global_windows,
    grid_windows,
    octree_windows,
    serial_windows,
)

COUNTS = st.lists(st.integers(0, 30), max_size=5)
SIZES = st.integers(1, 12)
SEEDS = st.integers(0, 2**32 - 1)


def shuffled_clouds(counts, seed):
    """Random orders that keep the clouds one after another."""
    generator = torch.Generator().manual_seed(seed)
    offsets = offsets_from_counts(torch.tensor(counts, dtype=torch.int64))
    orders = [
        int(start) + torch.randperm(n, generator=generator)
        for start, n in zip(offsets, counts, strict=False)
    ]
    return torch.cat([torch.zeros(0, dtype=torch.int64), *orders]), offsets


def windows_by_the_rule(order, offsets, window_size):
    """Follow the published rule with lists: (the points of each window, who owns which place)."""
    windows, owner = [], {}
    for start, end in zip(offsets.tolist()[:-1], offsets.tolist()[1:], strict=True):
        cloud = order[start:end].tolist()
        for i in range(0, len(cloud), window_size):
            own = cloud[i : i + window_size]
            borrowed = cloud[max(i + len(own) - window_size, 0) : i] if i else []
            for place, point in enumerate(own):
                owner[point] = (len(windows), len(borrowed) + place)
            windows.append(borrowed + own)
    return windows, owner


@given(counts=COUNTS, size=SIZES, seed=SEEDS)
def test_windows_follow_the_last_window_rule(counts, size, seed):
    order, offsets = shuffled_clouds(counts, seed)
    windows = serial_windows(order, offsets, size)
    expected, owner = windows_by_the_rule(order, offsets, size)
    assert windows.num_windows == len(expected)
    assert windows.window_size == min(size, max([*counts, 0])) or sum(counts) == 0
    real = windows.valid if windows.valid is not None else torch.ones_like(windows.index).bool()
    found = [row[mask].tolist() for row, mask in zip(windows.index, real, strict=True)]
    assert found == expected
    for point, (window, place) in owner.items():
        assert windows.slot[point] == window * windows.window_size + place


@given(counts=COUNTS, size=SIZES, seed=SEEDS)
def test_each_point_owns_one_real_slot_that_holds_it(counts, size, seed):
    order, offsets = shuffled_clouds(counts, seed)
    windows = serial_windows(order, offsets, size)
    assert len(windows.slot.unique()) == sum(counts)
    assert torch.equal(windows.index.flatten()[windows.slot], torch.arange(sum(counts)))
    if windows.valid is not None:
        assert windows.valid.flatten()[windows.slot].all()


@given(counts=COUNTS, size=SIZES, seed=SEEDS)
def test_windows_never_cross_clouds(counts, size, seed):
    order, offsets = shuffled_clouds(counts, seed)
    windows = serial_windows(order, offsets, size)
    batch = batch_from_offsets(offsets, sum(counts))[windows.index]  # masked slots too
    assert (batch == batch[:, :1]).all()


@given(counts=COUNTS, size=SIZES, seed=SEEDS)
def test_valid_is_none_exactly_if_every_slot_is_real(counts, size, seed):
    order, offsets = shuffled_clouds(counts, seed)
    windows = serial_windows(order, offsets, size)
    k = min(size, max([*counts, 0]))
    assert (windows.valid is None) == all(n == 0 or n >= k for n in counts)
    if windows.valid is not None:
        assert not windows.valid.all()


@given(counts=st.lists(st.integers(0, 30), min_size=1, max_size=4), size=SIZES, seed=SEEDS)
def test_curve_windows_are_serial_windows_of_each_curve(packed, counts, size, seed):
    serialization = serialize(*packed(counts, seed), CURVES)
    options = {"shift": seed % 5, "dilation": 1 + seed % 3}
    found = curve_windows(serialization, size, **options)
    assert len(found) == len(CURVES)
    for windows, order in zip(found, serialization.order, strict=True):
        expected = serial_windows(order, serialization.offsets, size, **options)
        assert torch.equal(windows.index, expected.index)
        assert torch.equal(windows.slot, expected.slot)
        assert (windows.valid is None) == (expected.valid is None)
        if windows.valid is not None and expected.valid is not None:
            assert torch.equal(windows.valid, expected.valid)


@pytest.mark.parametrize(
    ("n", "index", "slot"),
    [
        (0, [], []),
        (1, [[0]], [0]),
        (2, [[0, 1]], [0, 1]),
        (4, [[0, 1, 2, 3]], [0, 1, 2, 3]),
        (5, [[0, 1, 2, 3], [1, 2, 3, 4]], [0, 1, 2, 3, 7]),
    ],
)
def test_windows_of_four_at_the_edges(n, index, slot):
    windows = serial_windows(torch.arange(n), torch.tensor([0, n]), 4)
    assert windows.index.tolist() == index and windows.slot.tolist() == slot
    assert windows.valid is None


def test_a_window_holds_at_least_one_point():
    with pytest.raises(
        ValueError, match="window_size must be a whole number of at least 1, found 0"
    ):
        serial_windows(torch.arange(3), torch.tensor([0, 3]), 0)


def clouds_of(order, offsets):
    return [
        order[start:end].tolist()
        for start, end in zip(offsets.tolist()[:-1], offsets.tolist()[1:], strict=True)
    ]


def rows_of(windows):
    """The points of each window, without masked slots."""
    real = windows.valid if windows.valid is not None else torch.ones_like(windows.index).bool()
    return [row[mask].tolist() for row, mask in zip(windows.index, real, strict=True)]


def owned_rows(windows, n):
    """The points that each window owns, in the order of its slots."""
    owned = [[] for _ in range(windows.num_windows)]
    for slot, point in sorted(zip(windows.slot.tolist(), range(n), strict=True)):
        owned[slot // windows.window_size].append(point)
    return owned


def make_windows(kind, order, offsets, seed):
    n = len(order)
    coord = torch.randint(-9, 9, (n, 3), generator=torch.Generator().manual_seed(seed))
    return {
        "shifted": lambda: serial_windows(order, offsets, 4, shift=seed % 7),
        "dilated": lambda: serial_windows(order, offsets, 3, dilation=1 + seed % 4),
        "both": lambda: serial_windows(order, offsets, 4, shift=seed % 9, dilation=3),
        "octree": lambda: octree_windows(order, offsets, 3, 1 + seed % 4),
        "published": lambda: octree_windows(order, offsets, 3, 1 + seed % 4, published=True),
        "grid": lambda: grid_windows(coord, offsets, 5, shift=2.5, order=order),
        "grid in parts": lambda: grid_windows(coord, offsets, 7.3, order=order, slots=3),
        "global": lambda: global_windows(offsets, n),
    }[kind]()


KINDS = ("shifted", "dilated", "both", "octree", "published", "grid", "grid in parts", "global")


@pytest.mark.parametrize("kind", KINDS)
@given(counts=COUNTS, seed=SEEDS)
def test_every_partition_gives_each_point_one_own_slot_and_keeps_clouds_apart(kind, counts, seed):
    order, offsets = shuffled_clouds(counts, seed)
    windows = make_windows(kind, order, offsets, seed)
    n = sum(counts)
    assert len(windows.slot.unique()) == n
    assert torch.equal(windows.index.flatten()[windows.slot], torch.arange(n))
    batch = batch_from_offsets(offsets, n)[windows.index]  # masked slots too
    assert (batch == batch[:, :1]).all()
    if windows.valid is not None:
        assert windows.valid.flatten()[windows.slot].all()
        assert windows.valid.any(1).all() and not windows.valid.all()


@pytest.mark.parametrize("kind", KINDS)
@given(counts=COUNTS, seed=SEEDS)
def test_a_clouds_windows_do_not_depend_on_the_other_clouds(kind, counts, seed):
    if kind == "published":
        return  # as released: they do
    order, offsets = shuffled_clouds(counts, seed)
    coord = torch.randint(-9, 9, (len(order), 3), generator=torch.Generator().manual_seed(seed))
    together = rows_of(make_windows(kind, order, offsets, seed))
    alone = []
    for start, end in zip(offsets.tolist()[:-1], offsets.tolist()[1:], strict=True):
        one, own = order[start:end] - start, torch.tensor([0, end - start])
        if kind.startswith("grid"):
            size, options = (5, {"shift": 2.5}) if kind == "grid" else (7.3, {"slots": 3})
            windows = grid_windows(coord[start:end], own, size, order=one, **options)
        else:
            windows = make_windows(kind, one, own, seed)
        alone += [[start + point for point in row] for row in rows_of(windows)]
    assert together == alone


@given(counts=COUNTS, size=SIZES, seed=SEEDS, shift=st.integers(-20, 20))
def test_shifted_windows_are_cut_where_the_shift_says(counts, size, seed, shift):
    order, offsets = shuffled_clouds(counts, seed)
    windows = serial_windows(order, offsets, size, shift=shift)
    expected_owned, expected = [], []
    for cloud in clouds_of(order, offsets):
        n = len(cloud)
        first = shift % size if n > size else 0
        cuts = sorted({0, *range(first, n, size), n})
        for start, end in itertools.pairwise(cuts):
            expected_owned.append(cloud[start:end])
            begin = max(min(start if start >= first else 0, n - size), 0)
            expected.append(cloud[begin : begin + size])
    assert rows_of(windows) == expected
    owned = [sorted(row, key=order.tolist().index) for row in owned_rows(windows, len(order))]
    assert owned == expected_owned


@given(counts=COUNTS, size=SIZES, seed=SEEDS, dilation=st.integers(1, 5))
def test_a_dilated_window_is_every_so_manieth_point_of_a_run(counts, size, seed, dilation):
    order, offsets = shuffled_clouds(counts, seed)
    windows = serial_windows(order, offsets, size, dilation=dilation)
    runs = rows_of(serial_windows(order, offsets, size * dilation))
    dealt = [run[i::dilation] for run in runs for i in range(dilation)]
    assert rows_of(windows) == [row for row in dealt if row]


@given(counts=COUNTS, size=SIZES, seed=SEEDS, dilation=st.integers(1, 5))
def test_octree_windows_deal_out_runs_and_borrow_nothing(counts, size, seed, dilation):
    order, offsets = shuffled_clouds(counts, seed)
    windows = octree_windows(order, offsets, size, dilation)
    run = size * dilation
    expected = [
        cloud[start : start + run][i::dilation]
        for cloud in clouds_of(order, offsets)
        for start in range(0, len(cloud), run)
        for i in range(dilation)
    ]
    assert rows_of(windows) == [row for row in expected if row]
    assert windows.window_size <= size


@given(counts=COUNTS, size=SIZES, seed=SEEDS, dilation=st.integers(1, 5))
def test_published_octree_windows_are_cut_across_clouds_and_then_by_cloud(
    counts, size, seed, dilation
):
    order, offsets = shuffled_clouds(counts, seed)
    windows = octree_windows(order, offsets, size, dilation, published=True)
    batch = batch_from_offsets(offsets, len(order)).tolist()
    sequence, run = order.tolist(), size * dilation
    expected = []
    for start in range(0, len(sequence), run):
        for i in range(dilation):
            row = sequence[start : start + run][i::dilation]
            expected += [list(part) for _, part in itertools.groupby(row, batch.__getitem__)]
    assert sorted(rows_of(windows)) == sorted(expected)


@given(
    counts=COUNTS,
    seed=SEEDS,
    window=st.sampled_from([1, 2, 3.7, 5, 8.25, 100]),
    shift=st.sampled_from([0, 0.5, 1.85, 4]),
    metres=st.booleans(),
)
def test_grid_windows_hold_the_points_of_one_cube_each(counts, seed, window, shift, metres):
    order, offsets = shuffled_clouds(counts, seed)
    coord = torch.randint(-9, 9, (len(order), 3), generator=torch.Generator().manual_seed(seed))
    coord = coord.float() * 0.37 if metres else coord.int()
    windows = grid_windows(coord, offsets, window, shift=shift, order=order)
    expected = []
    for cloud in clouds_of(order, offsets):
        cubes = {}
        lowest = coord[cloud].amin(0).double() if cloud else None
        for point in cloud:
            place = (coord[point].double() - lowest + shift % window) / window
            cubes.setdefault(tuple(place.floor().tolist()), []).append(point)
        expected += [cubes[cube] for cube in sorted(cubes)]
    assert rows_of(windows) == expected


@given(counts=COUNTS, seed=SEEDS, slots=st.integers(1, 6))
def test_a_cube_over_the_budget_is_split_evenly_along_the_order(counts, seed, slots):
    order, offsets = shuffled_clouds(counts, seed)
    coord = torch.randint(0, 3, (len(order), 3), generator=torch.Generator().manual_seed(seed))
    whole = rows_of(grid_windows(coord, offsets, 2, order=order))
    parts = iter(rows_of(grid_windows(coord, offsets, 2, order=order, slots=slots)))
    for cube in whole:
        split = [next(parts) for _ in range(-(-len(cube) // slots))]
        assert [point for part in split for point in part] == cube
        sizes = [len(part) for part in split]
        assert max(sizes) <= slots and max(sizes) - min(sizes) <= 1
    assert next(parts, None) is None


def test_shifting_grid_windows_by_a_window_changes_nothing():
    coord = torch.rand(200, 3, generator=torch.Generator().manual_seed(0)) * 4
    offsets = torch.tensor([0, 200])
    here, there = (grid_windows(coord, offsets, 0.5, shift=shift) for shift in (0.25, 0.75))
    assert torch.equal(here.index, there.index) and torch.equal(here.slot, there.slot)


@given(counts=COUNTS)
def test_a_global_window_is_a_cloud(counts):
    offsets = offsets_from_counts(torch.tensor(counts, dtype=torch.int64))
    windows = global_windows(offsets, sum(counts))
    expected = clouds_of(torch.arange(sum(counts)), offsets)
    assert rows_of(windows) == [cloud for cloud in expected if cloud]


def test_wrong_sizes_are_refused():
    order, offsets, coord = torch.arange(3), torch.tensor([0, 3]), torch.zeros(3, 3)
    with pytest.raises(ValueError, match="dilation must be a whole number of at least 1, found 0"):
        serial_windows(order, offsets, 4, dilation=0)
    with pytest.raises(
        ValueError, match="window_size must be a whole number of at least 1, found -1"
    ):
        octree_windows(order, offsets, -1)
    for window in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="window must be a finite edge above 0"):
            grid_windows(coord, offsets, window)
    with pytest.raises(ValueError, match="slots must be a whole number of at least 1, found 0"):
        grid_windows(coord, offsets, 1.0, slots=0)
    for far in (float("nan"), float("inf"), 3e6):
        coord[1, 1] = far
        with pytest.raises(
            ValueError, match=r"coord must be finite and reach over at most 2\*\*21"
        ):
            grid_windows(coord, offsets, 1.0)


@pytest.mark.parametrize("shift", [math.nan, math.inf])
def test_a_shift_that_is_no_number_is_named(shift):
    with pytest.raises(ValueError, match="shift must be one finite number, found"):
        grid_windows(torch.zeros(2, 3), torch.tensor([0, 2]), 1.0, shift=shift)
