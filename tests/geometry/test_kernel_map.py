import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pctx.geometry.columns import sort_into_columns
from pctx.geometry.kernel_map import _map_by_torch, kernel_map, kernel_maps
from pctx.geometry.packed import batch_from_offsets, offsets_from_counts

COUNTS = st.lists(st.integers(0, 40), max_size=4)
KERNELS = st.sampled_from([1, 3, 5])
DILATIONS = st.sampled_from([1, 2, 3])
SEEDS = st.integers(0, 2**32 - 1)


def brute_force(grid_coord, offsets, kernel_size, dilation=1):
    """Return, tap by tap, the (target, source) pairs found by looking every voxel up."""
    batch = batch_from_offsets(offsets, len(grid_coord)).tolist()
    cells = [(b, *cell) for b, cell in zip(batch, grid_coord.tolist(), strict=True)]
    row = {cell: i for i, cell in enumerate(cells)}
    span = [dilation * (tap - kernel_size // 2) for tap in range(kernel_size)]
    return [
        [
            (target, row[b, x + i, y + j, z + k])
            for target, (b, x, y, z) in enumerate(cells)
            if (b, x + i, y + j, z + k) in row
        ]
        for i in span
        for j in span
        for k in span
    ]


def taps(pairs):
    """Return the (target, source) pairs of each tap."""
    rows = list(zip(pairs.target.tolist(), pairs.source.tolist(), strict=True))
    return [rows[a:b] for a, b in zip(pairs.starts[:-1], pairs.starts[1:], strict=True)]


@given(
    counts=COUNTS,
    kernel_size=KERNELS,
    dilation=DILATIONS,
    seed=SEEDS,
    extent=st.sampled_from([4, 8]),
)
def test_pairs_are_those_of_brute_force_ascending_by_target(
    packed, counts, kernel_size, dilation, seed, extent
):
    grid_coord, offsets = packed(counts, seed, extent)
    found = kernel_map(grid_coord, offsets, kernel_size, dilation)
    assert len(found.starts) == kernel_size**3 + 1
    assert (found.kernel_size, found.dilation, found.stride) == (kernel_size, dilation, 1)
    assert found.num_sources == found.num_targets == sum(counts)
    assert taps(found) == brute_force(grid_coord, offsets, kernel_size, dilation)


@given(height=st.integers(1, 60), lift=st.integers(-60, 60), seed=SEEDS)
def test_tall_columns_meet_however_far_up_their_neighbours_stand(height, lift, seed):
    # More voxels below the first neighbour than are stepped over.
    rng = np.random.default_rng(seed)
    z = [rng.choice(height, rng.integers(1, height + 1), replace=False) + lift * i for i in (0, 1)]
    cells = [np.stack([np.full(len(a), i), 0 * a, a], 1) for i, a in enumerate(z)]
    grid_coord = torch.from_numpy(np.concatenate(cells))
    offsets = torch.tensor([0, len(grid_coord)])
    assert taps(kernel_map(grid_coord, offsets, 3)) == brute_force(grid_coord, offsets, 3)


@given(counts=COUNTS, kernel_size=KERNELS, seed=SEEDS)
def test_sorted_voxels_are_paired_as_shuffled_ones(packed, counts, kernel_size, seed):
    grid_coord, offsets = packed(counts, seed)
    batch = batch_from_offsets(offsets, sum(counts))
    order = np.lexsort([*reversed(grid_coord.t().numpy()), batch.numpy()])
    grid_coord = grid_coord[torch.from_numpy(order)]
    assert taps(kernel_map(grid_coord, offsets, kernel_size)) == brute_force(
        grid_coord, offsets, kernel_size
    )


@given(counts=COUNTS, kernel_size=KERNELS, dilation=DILATIONS, seed=SEEDS)
def test_the_torch_twin_finds_the_same_pairs(packed, counts, kernel_size, dilation, seed):
    grid_coord, offsets = packed(counts, seed)
    columns = sort_into_columns(grid_coord, offsets, kernel_size // 2, dilation)
    expected = kernel_map(grid_coord, offsets, kernel_size, dilation)
    found = _map_by_torch(columns, kernel_size, dilation)
    assert torch.equal(found.source, expected.source)
    assert torch.equal(found.target, expected.target)
    assert found.starts == expected.starts


@given(counts=COUNTS, kernel_size=KERNELS, seed=SEEDS)
def test_the_reversed_tap_holds_the_pairs_turned_round(packed, counts, kernel_size, seed):
    by_tap = taps(kernel_map(*packed(counts, seed), kernel_size))
    for pairs, turned in zip(by_tap, reversed(by_tap), strict=True):
        assert sorted(pairs) == sorted((source, target) for target, source in turned)


@given(counts=COUNTS, kernel_size=KERNELS, seed=SEEDS)
def test_the_centre_tap_pairs_each_voxel_with_itself(packed, counts, kernel_size, seed):
    by_tap = taps(kernel_map(*packed(counts, seed), kernel_size))
    assert by_tap[kernel_size**3 // 2] == [(i, i) for i in range(sum(counts))]


@given(counts=COUNTS, seed=SEEDS, shift=st.tuples(*[st.integers(-(2**40), 2**40)] * 3))
def test_whole_voxel_translations_change_no_pair(packed, counts, seed, shift):
    grid_coord, offsets = packed(counts, seed)
    moved = grid_coord + torch.tensor(shift)
    assert taps(kernel_map(moved, offsets, 3)) == taps(kernel_map(grid_coord, offsets, 3))


@given(counts=COUNTS, seed=SEEDS)
def test_smaller_maps_lie_in_the_largest(packed, counts, seed):
    grid_coord, offsets = packed(counts, seed)
    maps = kernel_maps(grid_coord, offsets, [3, 5, 1])
    assert list(maps) == [3, 5, 1]
    for kernel_size, found in maps.items():
        assert found.kernel_size == kernel_size
        assert taps(found) == taps(kernel_map(grid_coord, offsets, kernel_size))
    assert kernel_maps(grid_coord, offsets, []) == {}


def test_the_far_corners_of_21_bits_and_many_clouds_never_meet():
    # The last row of one y, x or cloud is followed in memory by the first of the next.
    far = 2**21 - 1
    corners = torch.cartesian_prod(*[torch.tensor([0, 1, far - 1, far])] * 3)
    offsets = torch.arange(0, 64 * 9 + 1, 64)
    grid_coord = corners.repeat(9, 1)
    assert taps(kernel_map(grid_coord, offsets, 3)) == brute_force(grid_coord, offsets, 3)


def test_dtype_and_strides_do_not_matter(packed):
    grid_coord, offsets = packed([30, 20], 0)
    strided = grid_coord.to(torch.int16).t().contiguous().t()
    assert taps(kernel_map(strided, offsets, 3)) == taps(kernel_map(grid_coord, offsets, 3))


def test_equal_voxels_are_refused():
    cells = torch.tensor([[1, 2, 3], [0, 0, 0], [1, 2, 3]])
    with pytest.raises(ValueError, match="grid_coord has 1 of 3 rows equal to another"):
        kernel_map(cells, torch.tensor([0, 3]), 3)
    # In two clouds they are two voxels.
    kernel_map(cells, torch.tensor([0, 2, 3]), 3)


@pytest.mark.parametrize("kernel_size", [0, 2, -1])
def test_even_kernels_are_refused(kernel_size):
    with pytest.raises(ValueError, match="kernel_size must be odd and at least 1"):
        kernel_map(torch.zeros(1, 3).long(), torch.tensor([0, 1]), kernel_size)


def test_a_dilation_below_1_is_refused():
    with pytest.raises(ValueError, match="dilation must be a whole number of at least 1, found 0"):
        kernel_map(torch.zeros(1, 3).long(), torch.tensor([0, 1]), 3, 0)


@pytest.mark.parametrize("case", ["k3_bias", "k5", "k5_bias"])
def test_a_convolution_over_the_pairs_equals_the_published_one(golden, case):
    with np.load(golden / "subm_conv.npz") as data:
        arrays = {key: torch.from_numpy(data[key]) for key in ("input/feat", "input/indices")}
        weight = torch.from_numpy(data[f"{case}/weight"]).double()
        bias = torch.from_numpy(data[f"{case}/bias"]) if f"{case}/bias" in data else None
        expected = torch.from_numpy(data[f"f64/{case}/out"])
    indices = arrays["input/indices"].long()
    order = torch.argsort(indices[:, 0], stable=True)
    feat, indices = arrays["input/feat"].double()[order], indices[order]
    offsets = offsets_from_counts(torch.bincount(indices[:, 0]))
    pairs = kernel_map(indices[:, 1:], offsets, weight.shape[1])
    by_tap = weight.permute(1, 2, 3, 4, 0).flatten(0, 2)  # (taps, in, out)
    out = torch.zeros(len(feat), weight.shape[0], dtype=torch.float64)
    for tap, (a, b) in enumerate(zip(pairs.starts[:-1], pairs.starts[1:], strict=True)):
        out.index_add_(0, pairs.target[a:b], feat[pairs.source[a:b]] @ by_tap[tap])
    if bias is not None:
        out += bias
    # Both add in float64, in different orders.
    torch.testing.assert_close(out, expected[order], rtol=1e-12, atol=1e-12)


def test_a_cloud_too_large_to_number_is_named():
    for extent in (2**21, 2**62, 2**63 - 1):
        cells = torch.tensor([[0, 0, 0], [1, 0, extent]])
        with pytest.raises(ValueError, match=f"grid_coord spans {extent + 1} voxels an axis in a"):
            kernel_map(cells, torch.tensor([0, 2]), 3)
    cells = torch.tensor([[-(2**63), 0, 0], [5, 0, 0]])
    with pytest.raises(ValueError, match=r"grid_coord spans over 2\*\*63 voxels"):
        kernel_map(cells, torch.tensor([0, 2]), 3)


def test_a_dilation_too_large_to_number_is_named():
    cells, offsets = torch.tensor([[0, 0, 0], [1, 0, 2], [3, 3, 3]]), torch.tensor([0, 1, 3])
    with pytest.raises(ValueError, match=r"dilation must be below 2\*\*21, found 2097152"):
        kernel_map(cells, offsets, 3, 2**21)
    with pytest.raises(ValueError, match="dilation 2000000 parts the voxels into"):
        kernel_map(cells, offsets, 3, 2_000_000)


def test_an_inner_map_has_the_same_centre():
    pairs = kernel_map(torch.tensor([[0, 0, 0]]), torch.tensor([0, 1]), 3)
    for size in (2, 5, 0, -1):
        with pytest.raises(ValueError, match="kernel_size must be at most 3, and less by an even"):
            pairs.inner(size)
