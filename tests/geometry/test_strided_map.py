import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pctx.geometry.kernel_map import kernel_map
from pctx.geometry.packed import batch_from_offsets, offsets_from_counts
from pctx.geometry.strided_map import strided_map

COUNTS = st.lists(st.integers(0, 40), max_size=4)
PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=4)
SEEDS = st.integers(0, 2**32 - 1)
SHAPES = st.sampled_from([(2, 2, 0), (3, 2, 1), (3, 3, 0), (1, 2, 0), (5, 2, 2), (2, 3, 0)])


def rows(grid_coord, offsets):
    batch = batch_from_offsets(offsets, len(grid_coord)).tolist()
    return [(b, *cell) for b, cell in zip(batch, grid_coord.tolist(), strict=True)]


def brute_force(fine, coarse, kernel_size, stride, padding):
    """Return, tap by tap, the (target, source) pairs found by looking every voxel up."""
    row = {cell: i for i, cell in enumerate(rows(*fine))}
    span = range(kernel_size)
    steps = [(i - padding, j - padding, k - padding) for i in span for j in span for k in span]
    return [
        [
            (target, row[b, x * stride + i, y * stride + j, z * stride + k])
            for target, (b, x, y, z) in enumerate(rows(*coarse))
            if (b, x * stride + i, y * stride + j, z * stride + k) in row
        ]
        for i, j, k in steps
    ]


def taps(pairs):
    found = list(zip(pairs.target.tolist(), pairs.source.tolist(), strict=True))
    return [found[a:b] for a, b in zip(pairs.starts[:-1], pairs.starts[1:], strict=True)]


@given(both=PAIRS, seed=SEEDS, shape=SHAPES, shift=st.integers(-9, 9))
def test_pairs_are_those_of_brute_force(packed, both, seed, shape, shift):
    counts, coarse_counts = [n for n, _ in both], [m for _, m in both]
    grid_coord, offsets = packed(counts, seed)
    coarse_coord, coarse_offsets = packed(coarse_counts, seed + 1, 4)
    kernel_size, stride, padding = shape
    fine = (grid_coord + shift * stride, offsets)
    coarse = (coarse_coord + shift, coarse_offsets)
    found = strided_map(*fine, *coarse, kernel_size=kernel_size, stride=stride, padding=padding)
    assert taps(found) == brute_force(fine, coarse, *shape)
    assert (found.num_sources, found.num_targets) == (sum(counts), sum(coarse_counts))
    assert (found.kernel_size, found.stride) == (kernel_size, stride)


@given(counts=COUNTS, seed=SEEDS)
def test_a_kernel_as_wide_as_its_stride_reads_each_voxel_once(packed, counts, seed):
    grid_coord, offsets = packed(counts, seed)
    cells, cluster = torch.unique(
        torch.tensor(rows(grid_coord >> 1, offsets)).long().view(-1, 4), dim=0, return_inverse=True
    )
    coarse_offsets = offsets_from_counts(torch.bincount(cells[:, 0], minlength=len(counts)))
    found = strided_map(grid_coord, offsets, cells[:, 1:], coarse_offsets, kernel_size=2, stride=2)
    assert sorted(found.source.tolist()) == list(range(sum(counts)))
    assert torch.equal(found.target, cluster[found.source])


def test_clouds_that_touch_never_meet():
    # The last voxel of one cloud lies where the next begins.
    grid_coord = torch.tensor([[0, 0, 0], [1, 1, 1], [2, 2, 2], [3, 3, 3]])
    offsets = torch.tensor([0, 2, 4])
    coarse, coarse_offsets = (
        torch.tensor([[0, 0, 0], [0, 0, 0], [1, 1, 1]]),
        torch.tensor([0, 1, 3]),
    )
    found = strided_map(grid_coord, offsets, coarse, coarse_offsets, kernel_size=2, stride=2)
    assert sorted(zip(found.source.tolist(), found.target.tolist(), strict=True)) == [
        (0, 0),
        (1, 0),
        (2, 2),
        (3, 2),
    ]


def test_it_refuses_what_is_no_stride():
    cells, offsets = torch.zeros(1, 3).long(), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="stride must be a whole number of at least 2, found 1"):
        strided_map(cells, offsets, cells, offsets, kernel_size=2, stride=1)
    with pytest.raises(ValueError, match="offsets has 1 clouds and coarse_offsets 2"):
        strided_map(cells, offsets, cells, torch.tensor([0, 0, 1]), kernel_size=2, stride=2)
    with pytest.raises(ValueError, match="grid_coord has 1 of 2 rows equal"):
        twice = torch.zeros(2, 3).long()
        strided_map(cells, offsets, twice, torch.tensor([0, 2]), kernel_size=2, stride=2)


def test_maps_of_both_kinds_say_their_rows():
    cells, offsets = torch.zeros(1, 3).long(), torch.tensor([0, 1])
    assert kernel_map(cells, offsets, 3).stride == 1
    assert strided_map(cells, offsets, cells, offsets, kernel_size=2, stride=2).stride == 2
