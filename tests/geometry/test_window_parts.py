import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pctx.geometry.packed import offsets_from_counts
from pctx.geometry.window_parts import part_windows
from pctx.geometry.windows import Windows, grid_windows, octree_windows, serial_windows

COUNTS = st.lists(st.sampled_from([0, 1, 2, 9, 40, 200]), max_size=4)
SEEDS = st.integers(0, 2**16)


def crowded(counts, seed):
    """Windows over points that crowd near a corner, so that some hold many and most few."""
    generator = torch.Generator().manual_seed(seed)
    coord = torch.rand(sum(counts), 3, generator=generator) ** 4 * 40
    return grid_windows(coord, offsets_from_counts(torch.tensor(counts).long()), 8.0)


def members(windows, rows):
    """The points of each window, slot by slot."""
    valid = windows.valid
    if valid is None:
        valid = torch.ones_like(windows.index, dtype=torch.bool)
    pairs = zip(windows.index, valid, strict=True)
    return [tuple(rows[index[real]].tolist()) for index, real in pairs]


@given(counts=COUNTS, seed=SEEDS)
def test_the_parts_are_the_windows(counts, seed):
    windows = crowded(counts, seed)
    parts = part_windows(windows)
    found = [each for part in parts.parts for each in members(part.windows, part.rows)]
    assert sorted(found) == sorted(members(windows, torch.arange(sum(counts))))


@given(counts=COUNTS, seed=SEEDS)
def test_every_point_finds_its_own_slot(counts, seed):
    windows = crowded(counts, seed)
    parts = part_windows(windows)
    rows = torch.cat([part.rows for part in parts.parts])
    assert torch.equal(rows[parts.inverse], torch.arange(sum(counts)))
    for part in parts.parts:
        own = part.windows.index.flatten()[part.windows.slot]
        assert torch.equal(own, torch.arange(len(part.rows)))


@given(counts=COUNTS, seed=SEEDS)
def test_masked_slots_name_a_point_of_their_window(counts, seed):
    for part in part_windows(crowded(counts, seed)).parts:
        windows = part.windows
        if windows.valid is not None:
            first, last = windows.index[:, :1], windows.index.amax(1, keepdim=True)
            assert bool(((windows.index >= first) & (windows.index <= last)).all())
            real = torch.where(windows.valid, windows.index, -1).amax(1)
            assert torch.equal(real, last[:, 0])


@given(counts=COUNTS, seed=SEEDS)
def test_windows_of_a_part_are_about_equally_full(counts, seed):
    sizes = []
    for part in part_windows(crowded(counts, seed)).parts:
        full = torch.tensor([len(each) for each in members(part.windows, part.rows)])
        if len(full):
            assert full.max() == part.windows.window_size
            assert full.max() <= max(8, 2 * (full.min() - 1))
            sizes += [full.min(), full.max()]
    assert sizes == sorted(sizes)


def test_no_points_make_one_empty_part():
    (part,) = part_windows(crowded([0, 0], 0)).parts
    assert len(part.rows) == 0 and part.windows.num_windows == 0


def test_windows_without_masked_slots_are_one_part():
    windows = Windows(
        index=torch.tensor([[2, 0], [1, 3]]), valid=None, slot=torch.tensor([1, 2, 0, 3])
    )
    (part,) = part_windows(windows).parts
    assert part.windows.valid is None
    assert members(part.windows, part.rows) == [(2, 0), (1, 3)]


def test_borrowed_points_are_refused():
    windows = serial_windows(torch.arange(5), torch.tensor([0, 5]), 4)
    with pytest.raises(ValueError, match="each of their 5 points once, found 8 slots"):
        part_windows(windows)


@pytest.mark.parametrize("counts", [[6, 9], [3, 8, 2], [1, 20, 3]])
def test_windows_of_the_released_octrees_are_parted_too(counts):
    offsets, n = offsets_from_counts(torch.tensor(counts)), sum(counts)
    windows = octree_windows(torch.arange(n), offsets, 8, published=True)
    parts = part_windows(windows)
    found = [each for part in parts.parts for each in members(part.windows, part.rows)]
    assert sorted(found) == sorted(members(windows, torch.arange(n)))
    rows = torch.cat([part.rows for part in parts.parts])
    assert torch.equal(rows[parts.inverse], torch.arange(n))
