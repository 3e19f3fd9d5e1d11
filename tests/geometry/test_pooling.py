import json
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pctx.geometry.packed import batch_from_offsets, cloud_minimum, offsets_from_counts
from pctx.geometry.pooling import stride_pooling, voxel_pooling

COUNTS = st.lists(st.sampled_from([0, 1, 2, 9, 40]), max_size=4)
SEEDS = st.integers(0, 2**16)
SIZES = st.sampled_from([0.1, 0.15, 0.3, 1.0, 2.34375, 100.0])
STRIDES = st.integers(2, 7)
PTV2 = ["ptv2m1_base", "ptv2m2_base", "ptv2m2_interp_missing_neighbours"]
LITEPT = ["litept_small", "litept_conv_attn_mix"]


def metres(counts, seed):
    generator = torch.Generator().manual_seed(seed)
    coord = torch.rand(sum(counts), 3, generator=generator) * 4 - 2
    return coord, offsets_from_counts(torch.tensor(counts, dtype=torch.int64))


def voxels(counts, seed):
    generator = torch.Generator().manual_seed(seed)
    grid_coord = torch.randint(-20, 20, (sum(counts), 3), generator=generator)
    return grid_coord, offsets_from_counts(torch.tensor(counts, dtype=torch.int64))


def assert_merges(cell, pooling, coarse_offsets, offsets):
    """Rows of one cloud and cell merge, coarse rows ascend by both, clusters are segments."""
    batch = batch_from_offsets(offsets, len(cell)).tolist()
    key = list(zip(batch, map(tuple, cell.tolist()), strict=True))
    coarse = sorted(set(key))
    assert [coarse[i] for i in pooling.cluster.tolist()] == key
    assert pooling.num_coarse == len(coarse)
    assert coarse_offsets.tolist() == [
        sum(cloud < i for cloud, _ in coarse) for i in range(len(offsets))
    ]
    assert pooling.order.tolist() == sorted(range(len(key)), key=lambda row: (key[row], row))
    assert torch.equal(
        pooling.cluster[pooling.order], batch_from_offsets(pooling.starts, len(cell))
    )
    assert (pooling.starts.diff() > 0).all()


@given(counts=COUNTS, seed=SEEDS, size=SIZES)
def test_points_of_one_cell_merge_in_the_order_of_z_y_x(counts, seed, size):
    coord, offsets = metres(counts, seed)
    pooling, coarse_offsets = voxel_pooling(coord, offsets, size)
    low = cloud_minimum(coord, offsets)[batch_from_offsets(offsets, len(coord))]
    cell = ((coord - low) / torch.tensor(size)).floor().long()
    assert_merges(cell.flip(1), pooling, coarse_offsets, offsets)


@given(counts=COUNTS, seed=SEEDS, size=SIZES)
def test_voxel_numbers_merge_by_any_size(counts, seed, size):
    grid_coord, offsets = voxels(counts, seed)
    pooling, coarse_offsets = voxel_pooling(grid_coord, offsets, size)
    low = cloud_minimum(grid_coord, offsets)[batch_from_offsets(offsets, len(grid_coord))]
    cell = torch.from_numpy(np.floor((grid_coord - low).numpy() / size)).long()
    assert_merges(cell.flip(1), pooling, coarse_offsets, offsets)


@given(counts=COUNTS, seed=SEEDS, stride=STRIDES)
def test_voxels_of_one_cube_merge_in_the_order_of_x_y_z(counts, seed, stride):
    grid_coord, offsets = voxels(counts, seed)
    pooling, coarse_offsets, coarse = stride_pooling(grid_coord, offsets, stride)
    cell = torch.tensor([[v // stride for v in row] for row in grid_coord.tolist()])
    cell = cell.reshape(-1, 3)
    assert_merges(cell, pooling, coarse_offsets, offsets)
    assert torch.equal(coarse[pooling.cluster], cell)


@given(counts=COUNTS, seed=SEEDS)
def test_a_cloud_is_pooled_as_alone(counts, seed):
    coord, offsets = metres(counts, seed)
    coord = (
        coord * 10.0 ** torch.arange(len(counts))[batch_from_offsets(offsets, len(coord))][:, None]
    )
    grid_coord = (coord * 7).long()
    by_size, size_offsets = voxel_pooling(coord, offsets, 0.3)
    by_stride, stride_offsets, coarse = stride_pooling(grid_coord, offsets, 3)
    for i in range(len(counts)):
        rows = slice(int(offsets[i]), int(offsets[i + 1]))
        own = torch.tensor([0, rows.stop - rows.start])
        alone, ends = voxel_pooling(coord[rows], own, 0.3)
        assert torch.equal(by_size.cluster[rows] - size_offsets[i], alone.cluster)
        assert torch.equal(by_size.order[rows] - offsets[i], alone.order)
        assert ends[-1] == size_offsets[i + 1] - size_offsets[i]
        alone, _, cells = stride_pooling(grid_coord[rows], own, 3)
        assert torch.equal(by_stride.cluster[rows] - stride_offsets[i], alone.cluster)
        assert torch.equal(coarse[stride_offsets[i] : stride_offsets[i + 1]], cells)


@given(counts=COUNTS, seed=SEEDS, shift=st.tuples(*[st.integers(-(2**20), 2**20)] * 3))
def test_translations_by_whole_cubes_change_no_pooling(counts, seed, shift):
    grid_coord, offsets = voxels(counts, seed)
    shift = torch.tensor(shift)
    here, _, coarse = stride_pooling(grid_coord, offsets, 3)
    there, _, moved = stride_pooling(grid_coord + 3 * shift, offsets, 3)
    assert torch.equal(here.cluster, there.cluster) and torch.equal(moved, coarse + shift)
    here, _ = voxel_pooling(grid_coord, offsets, 2.5)
    there, _ = voxel_pooling(grid_coord + shift, offsets, 2.5)  # cells begin at the cloud's minimum
    assert torch.equal(here.cluster, there.cluster)


def test_negative_voxels_floor():
    grid_coord = torch.tensor([[-4, 0, 0], [-3, 0, 0], [-1, 0, 0], [0, 0, 0], [2, 0, 0], [3, 0, 0]])
    pooling, _, coarse = stride_pooling(grid_coord.int(), torch.tensor([0, 6]), 3)
    assert coarse[:, 0].tolist() == [-2, -1, 0, 1]
    assert pooling.cluster.tolist() == [0, 1, 1, 2, 2, 3]


def test_float32_is_divided_in_float32_and_float64_in_float64():
    # 0.7 / 0.1 is 7 in float32; in float64, the float32 nearest 0.7 lies below.
    # 4.5 / 0.3 is just below 15 in float32, 15 in float64 and by the rounded reciprocal.
    for low, high, size in [(0.7, 0.75, 0.1), (4.4, 4.5, 0.3)]:
        coord, offsets = torch.tensor([[0, 0, 0], [low, 0, 0], [high, 0, 0]]), torch.tensor([0, 3])
        assert voxel_pooling(coord, offsets, size)[0].cluster.tolist() == [0, 1, 1]
        assert voxel_pooling(coord.double(), offsets, size)[0].cluster.tolist() == [0, 1, 2]


def test_pooling_leaves_its_input_alone():
    coord = torch.rand(5, 3, dtype=torch.float64, requires_grad=True)
    grid_coord = torch.arange(15).reshape(5, 3)
    before = coord.clone(), grid_coord.clone()
    voxel_pooling(coord, torch.tensor([0, 5]), 0.5)
    stride_pooling(grid_coord, torch.tensor([0, 5]), 2)
    assert torch.equal(coord, before[0]) and torch.equal(grid_coord, before[1])


def test_all_bits_of_three_axes_hold_many_clouds():
    # 63 bits of cell leave none for the cloud.
    corner = 2**21 - 1
    cells = torch.tensor([[corner] * 3, [0, 0, 0], [corner, 0, 0], [0, 0, corner]]).repeat(5, 1)
    offsets = torch.arange(0, 21, 4)
    pooling, coarse_offsets = voxel_pooling(cells, offsets, 1)
    assert coarse_offsets.tolist() == offsets.tolist()
    assert pooling.cluster.tolist() == [c + 4 * i for i in range(5) for c in (3, 0, 1, 2)]
    pooling, coarse_offsets, coarse = stride_pooling(2 * cells + 1, offsets, 2)
    assert coarse_offsets.tolist() == offsets.tolist()
    assert pooling.cluster.tolist() == [c + 4 * i for i in range(5) for c in (3, 0, 2, 1)]
    assert torch.equal(coarse[pooling.cluster], cells)


@pytest.mark.parametrize("counts", [[], [0], [0, 0]])
def test_no_points_pool_to_none(counts):
    grid_coord, offsets = voxels(counts, 0)
    pooling, coarse_offsets, coarse = stride_pooling(grid_coord, offsets, 2)
    assert coarse_offsets.tolist() == offsets.tolist() and coarse.shape == (0, 3)
    by_size, size_offsets = voxel_pooling(grid_coord.float(), offsets, 0.1)
    assert size_offsets.tolist() == offsets.tolist()
    for empty in (pooling, by_size):
        assert empty.cluster.shape == (0,) and empty.starts.tolist() == [0]


@pytest.mark.parametrize("size", [0, -0.1, float("nan"), float("inf")])
def test_size_must_be_positive(size):
    with pytest.raises(ValueError, match="size must be one number above 0, found"):
        voxel_pooling(torch.zeros(1, 3), torch.tensor([0, 1]), size)


@pytest.mark.parametrize("stride", [1, 0, -2])
def test_stride_must_be_at_least_two(stride):
    with pytest.raises(ValueError, match="stride must be a whole number of at least 2, found"):
        stride_pooling(torch.zeros(1, 3).long(), torch.tensor([0, 1]), stride)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_points_that_are_not_finite_are_counted(value):
    coord = torch.zeros(5, 3)
    coord[1, 0] = coord[3, 2] = value
    for offsets in (torch.tensor([0, 5]), torch.tensor([0, 2, 5])):
        with pytest.raises(ValueError, match="2 of 5 points are not finite"):
            voxel_pooling(coord, offsets, 0.1)


@given(extent=st.floats(1e-4, 1e6), start=st.floats(-1e6, 1e6))
def test_the_size_that_an_error_recommends_works(extent, start):
    coord = torch.tensor([[start, 0, 0], [start + extent, 0, 0], [7, 0, 0]], dtype=torch.float64)
    offsets = torch.tensor([0, 2, 3])
    with pytest.raises(ValueError, match=r"needs 2[23] bits an axis, more than 21") as error:
        voxel_pooling(coord, offsets, extent / 2**22)
    found = re.search(r"an extent of (\S+) .* size of at least (\S+)$", str(error.value))
    assert found is not None
    assert float(found[1]) == pytest.approx(extent, rel=1e-4, abs=1e-9)
    for cloud in (coord, (coord - start).float()):
        assert voxel_pooling(cloud, offsets, float(found[2]))[0].cluster.tolist() == [0, 1, 2]


def test_a_size_too_small_to_count_cells_is_refused():
    coord = torch.tensor([[0, 0, 0], [1e30, 0, 0]])
    with pytest.raises(ValueError, match="needs over 21 bits an axis, more than 21"):
        voxel_pooling(coord, torch.tensor([0, 2]), 1e-30)


def test_voxels_beyond_21_bits_are_refused():
    grid_coord = torch.tensor([[0, 0, 0], [0, 2**22, 0]])
    with pytest.raises(ValueError, match="stride 2 leaves clouds of up to 2097153 voxels an axis"):
        stride_pooling(grid_coord, torch.tensor([0, 2]), 2)


@pytest.mark.parametrize("name", PTV2)
def test_cells_equal_the_published_ones(golden, name):
    with np.load(golden / f"{name}.npz") as data:
        sizes = json.loads(str(data["meta/json"]))["config"]["grid_sizes"]
        coord = torch.from_numpy(data["input/coord"])
        offsets = offsets_from_counts(torch.from_numpy(np.diff(data["input/offset"], prepend=0)))
    with np.load(golden / f"{name}_stages.npz") as stages:
        for level, size in enumerate(sizes, 1):
            pooling, offsets = voxel_pooling(coord, offsets, size)
            assert np.array_equal(pooling.cluster, stages[f"level/{level}/cluster"])
            assert np.array_equal(offsets[1:], stages[f"level/{level}/offset"])
            coord = torch.from_numpy(stages[f"level/{level}/coord"])


@pytest.mark.parametrize("name", LITEPT)
def test_strides_equal_the_published_ones(golden, name):
    with np.load(golden / f"{name}.npz") as data:
        strides = json.loads(str(data["meta/json"]))["config"]["stride"]
        cells = torch.from_numpy(data["input/grid_coord"])
        offsets = offsets_from_counts(torch.from_numpy(np.diff(data["input/offset"], prepend=0)))
    with np.load(golden / f"{name}_stages.npz") as stages:
        for level, stride in enumerate(strides, 1):
            pooling, offsets, cells = stride_pooling(cells, offsets, stride)
            assert np.array_equal(pooling.cluster, stages[f"level/{level}/pooling_inverse"])
            assert np.array_equal(cells, stages[f"level/{level}/grid_coord"])
            batch = batch_from_offsets(offsets, len(cells))
            assert np.array_equal(batch, stages[f"level/{level}/batch"])


def test_many_points_are_pooled_as_few_are():
    # 40,000 points are sorted by radix where that is built in, two halves of them are not.
    coord, offsets = metres([20_000, 20_000], 0)
    pooling, coarse_offsets = voxel_pooling(coord, offsets, 0.3)
    halves = [
        voxel_pooling(cloud, torch.tensor([0, 20_000]), 0.3)[0] for cloud in coord.split(20_000)
    ]
    assert torch.equal(pooling.cluster[:20_000], halves[0].cluster)
    assert torch.equal(pooling.cluster[20_000:], halves[1].cluster + coarse_offsets[1])


def test_a_span_beyond_float64_is_named():
    coord = torch.tensor([[-1e308, 0, 0], [1e308, 0, 0]], dtype=torch.float64)
    with pytest.raises(ValueError, match="coord spans more than float64 holds"):
        voxel_pooling(coord, torch.tensor([0, 2]), 1.0)


def test_the_stride_advised_is_large_enough():
    cells, offsets = torch.tensor([[3, 0, 0], [2**40 + 1, 0, 0]]), torch.tensor([0, 2])
    with pytest.raises(ValueError, match="which take 39 bits, more than 21") as error:
        stride_pooling(cells, offsets, 3)
    enough = int(str(error.value).split()[-1])
    assert len(stride_pooling(cells, offsets, enough)[2]) == 2
    with pytest.raises(ValueError, match="more than 21"):
        stride_pooling(cells, offsets, enough * 99 // 100)
