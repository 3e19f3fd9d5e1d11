import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pctx.geometry.curves import CURVES
from pctx.geometry.packed import batch_from_offsets, offsets_from_counts
from pctx.geometry.serialization import serialize
from pctx.geometry.windows import curve_windows, serial_windows

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
    found = curve_windows(serialization, size)
    assert len(found) == len(CURVES)
    for windows, order in zip(found, serialization.order, strict=True):
        expected = serial_windows(order, serialization.offsets, size)
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
    with pytest.raises(ValueError, match="window_size must be at least 1, found 0"):
        serial_windows(torch.arange(3), torch.tensor([0, 3]), 0)
