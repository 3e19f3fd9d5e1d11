import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pctx.geometry.curves import CURVES, encode
from pctx.geometry.packed import batch_from_offsets, offsets_from_counts
from pctx.geometry.serialization import coarsen, serialize, shuffle_curves
from pctx.geometry.sorting import bit_length

COUNTS = st.lists(st.integers(0, 30), max_size=4)
SEEDS = st.integers(0, 2**32 - 1)
EVERY = (*CURVES, "random", "hilbert-zxy", "plain")
STAGES = ("ptv3_k32", "ptv3_k128", "ptv3_rpe_k32", "ptv3_small_cloud_varlen_k128")


@given(counts=COUNTS, seed=SEEDS)
def test_order_and_inverse_undo_each_other(packed, counts, seed):
    serialization = serialize(*packed(counts, seed), EVERY)
    rows = torch.arange(sum(counts))
    for order, inverse in zip(serialization.order, serialization.inverse, strict=True):
        assert torch.equal(order[inverse], rows) and torch.equal(inverse[order], rows)


@given(counts=COUNTS, seed=SEEDS)
def test_order_ascends_by_cloud_then_code(packed, counts, seed):
    grid_coord, offsets = packed(counts, seed)
    serialization = serialize(grid_coord, offsets, EVERY)
    batch = batch_from_offsets(offsets, sum(counts))
    for codes, order in zip(serialization.codes, serialization.order, strict=True):
        pairs = list(zip(batch[order].tolist(), codes[order].tolist(), strict=True))
        assert pairs == sorted(set(pairs))


@given(counts=COUNTS, seed=SEEDS, extents=st.lists(st.sampled_from([4, 5, 8, 9, 17]), min_size=4))
def test_a_cloud_is_ordered_as_alone(packed, counts, seed, extents):
    clouds = [packed([n], seed + i, extents[i])[0] for i, n in enumerate(counts)]
    offsets = offsets_from_counts(torch.tensor(counts, dtype=torch.int64))
    together = serialize(torch.cat([*clouds, torch.zeros(0, 3).long()]), offsets, EVERY)
    for i, cloud in enumerate(clouds):
        alone = serialize(cloud, torch.tensor([0, len(cloud)]), EVERY)
        rows = slice(int(offsets[i]), int(offsets[i + 1]))
        assert torch.equal(together.codes[:, rows], alone.codes)
        assert torch.equal(together.order[:, rows] - offsets[i], alone.order)
        assert together.depth[i] == alone.depth[0]


@given(counts=COUNTS, seed=SEEDS, shift=st.tuples(*[st.integers(-(2**30), 2**30)] * 3))
def test_whole_voxel_translations_change_nothing(packed, counts, seed, shift):
    grid_coord, offsets = packed(counts, seed)
    here = serialize(grid_coord, offsets, CURVES)
    there = serialize(grid_coord + torch.tensor(shift), offsets, CURVES)
    assert torch.equal(here.codes, there.codes) and torch.equal(here.order, there.order)


@given(counts=COUNTS, seed=SEEDS)
def test_the_order_of_points_changes_no_code(packed, counts, seed):
    grid_coord, offsets = packed(counts, seed)
    batch = batch_from_offsets(offsets, sum(counts))
    shuffled = torch.cat(
        [torch.zeros(0).long()]
        + [rows[torch.randperm(len(rows))] for rows in torch.arange(len(batch)).split(counts)]
    )
    codes = serialize(grid_coord, offsets, CURVES).codes
    assert torch.equal(serialize(grid_coord[shuffled], offsets, CURVES).codes, codes[:, shuffled])


@pytest.mark.parametrize(("largest", "depth"), [(0, 1), (1, 2), (2, 2), (3, 3), (62, 6), (63, 7)])
def test_the_depth_of_a_cloud_is_the_bit_length_of_its_largest_cell_and_one(largest, depth):
    cells = torch.tensor([[5, 5, 5], [5, 5 + largest, 5], [0, 0, 0]])[: 2 if largest else 1]
    assert serialize(cells, torch.tensor([0, len(cells)]), ("z",)).depth.tolist() == [depth]


def test_bit_lengths_are_exact_to_the_last_bit():
    values = [0] + [v for bit in range(63) for v in (2**bit - 1, 2**bit)] + [2**63 - 1]
    assert bit_length(torch.tensor(values)).tolist() == [v.bit_length() for v in values]


def test_full_depth_and_many_clouds_go_together():
    # 63 bits of code leave none for the cloud.
    corner = 2**21 - 1
    cells = torch.tensor([[corner, corner, corner], [0, 0, 0], [corner, 0, 0]]).repeat(5, 1)
    offsets = torch.arange(0, 16, 3)
    serialization = serialize(cells, offsets, CURVES)
    assert serialization.depth.tolist() == [21] * 5
    alone = serialize(cells[:3], torch.tensor([0, 3]), CURVES)
    assert torch.equal(serialization.order, torch.cat([alone.order + 3 * i for i in range(5)], 1))
    assert alone.codes[0, 0] == 2**63 - 1


def test_a_cloud_wider_than_its_curve_is_refused():
    offsets = torch.tensor([0, 2])
    with pytest.raises(ValueError, match=r"depth \[3\] does not hold .* up to 9 voxels"):
        serialize(torch.tensor([[0, 0, 0], [0, 0, 8]]), offsets, CURVES, 3)
    with pytest.raises(
        ValueError,
        match=r"spans 3000000 voxels an axis, which take 22 bits, more than 21; .* 1.44 ",
    ):
        serialize(torch.tensor([[0, 0, 0], [0, 0, 2_999_999]]), offsets, CURVES)
    for depth in (-1, 22):
        with pytest.raises(ValueError, match="depth must be from 0 to 21"):
            serialize(torch.zeros(1, 3).long(), torch.tensor([0, 1]), CURVES, depth)


@given(counts=COUNTS, seed=SEEDS, stride=st.sampled_from([2, 4, 8]), times=st.integers(1, 3))
def test_coarsening_equals_serializing_the_coarse_points(packed, counts, seed, stride, times):
    grid_coord, offsets = packed(counts, seed, extent=13)
    cells, serialization = (
        grid_coord,
        serialize(grid_coord, offsets, EVERY, origin=torch.zeros(len(counts), 3).long()),
    )
    for _ in range(times):
        coarse, pooling = coarsen(serialization, stride)
        cells = cells[pooling.order[pooling.starts[:-1]]] // stride
        anew = serialize(
            cells,
            coarse.offsets,
            EVERY,
            (serialization.depth - stride.bit_length() + 1).clamp(min=0),
            origin=torch.zeros(len(counts), 3).long(),
        )
        for name in ("codes", "order", "inverse", "depth"):
            assert torch.equal(getattr(coarse, name), getattr(anew, name)), name
        assert torch.equal(coarse.order[0], torch.arange(len(cells)))
        serialization = coarse


@given(counts=COUNTS, seed=SEEDS, stride=st.sampled_from([2, 4, 8]), first=st.sampled_from(CURVES))
def test_points_merge_exactly_where_their_coarse_voxel_is_one(packed, counts, seed, stride, first):
    grid_coord, offsets = packed(counts, seed)
    n = sum(counts)
    origin = torch.zeros(len(counts), 3).long()
    serialization = serialize(grid_coord, offsets, (first, "z"), origin=origin)
    coarse, pooling = coarsen(serialization, stride)
    batch = batch_from_offsets(offsets, n)
    cell = torch.cat([batch[:, None], grid_coord // stride], 1)
    same_cell = (cell[:, None] == cell).all(-1)
    assert torch.equal(same_cell, pooling.cluster[:, None] == pooling.cluster)
    # Each cluster is a segment of the fine rows in `order`, and stays in its cloud.
    m = len(pooling.starts) - 1
    assert torch.equal(pooling.cluster[pooling.order], batch_from_offsets(pooling.starts, n))
    assert (pooling.starts.diff() > 0).all()
    coarse_batch = batch_from_offsets(coarse.offsets, m)
    assert torch.equal(coarse_batch[pooling.cluster], batch)


def test_a_stride_that_is_no_power_of_two_is_refused(packed):
    serialization = serialize(*packed([5], 0), CURVES)
    for stride in (0, 1, 3, -2, 2**22):
        with pytest.raises(ValueError, match=r"stride must be a power of two from 2 to 2\*\*21"):
            coarsen(serialization, stride)


def test_shuffling_permutes_the_curves_and_nothing_else(packed):
    grid_coord, offsets = packed([20, 9], 0)
    plain = serialize(grid_coord, offsets, CURVES)
    seen = set()
    for seed in range(20):
        shuffled = shuffle_curves(plain, torch.Generator().manual_seed(seed))
        seen.add(shuffled.curves[0])
        rows = [CURVES.index(curve) for curve in shuffled.curves]
        assert sorted(rows) == [0, 1, 2, 3]
        for name in ("codes", "order", "inverse"):
            assert torch.equal(getattr(shuffled, name), getattr(plain, name)[rows])
    assert seen == set(CURVES)


def test_shuffling_repeats_under_one_seed(packed):
    plain = serialize(*packed([20], 0), CURVES)
    first, second = (shuffle_curves(plain, torch.Generator().manual_seed(7)) for _ in range(2))
    assert first.curves == second.curves


def test_codes_are_those_of_encode(packed):
    grid_coord, offsets = packed([20, 9], 0)
    serialization = serialize(grid_coord, offsets, CURVES, 5)
    lowest = torch.stack([cloud.amin(0) for cloud in grid_coord.split([20, 9])])
    cells = grid_coord - lowest[batch_from_offsets(offsets, 29)]
    for codes, curve in zip(serialization.codes, CURVES, strict=True):
        assert torch.equal(codes, encode(cells, 5, curve))


@pytest.mark.parametrize("depth", [1, 2, 7, 10, 16])
def test_codes_and_orders_equal_the_published_ones(golden, depth):
    with np.load(golden / "serialization.npz") as data:
        group = {key: data[f"depth{depth}/{key}"] for key in ("grid_coord", "batch", "codes")}
        argsort = data[f"depth{depth}/argsort"]
    batch = torch.from_numpy(group["batch"])
    offsets = offsets_from_counts(torch.bincount(batch))
    origin = torch.zeros(len(offsets) - 1, 3, dtype=torch.int64)
    cells = torch.from_numpy(group["grid_coord"])
    serialization = serialize(cells, offsets, CURVES, depth, origin=origin)
    assert np.array_equal(serialization.codes | (batch << 3 * depth), group["codes"])
    assert np.array_equal(serialization.order, argsort)


@pytest.mark.parametrize("name", [*STAGES, "ptv3_encoder_only"])
def test_levels_of_codes_equal_the_published_ones(golden, name):
    with np.load(golden / f"{name}.npz") as data:
        meta = json.loads(str(data["meta/json"]))
        cells = torch.from_numpy(data["input/grid_coord"])
        ends = torch.from_numpy(data["input/offset"])
    backbone = meta["config"].get("backbone", meta["config"])
    offsets = torch.cat([ends.new_zeros(1), ends])
    serialization = serialize(cells, offsets, backbone["order"], meta["serialization_depth"])
    with np.load(golden / f"{name}_stages.npz") as stages:
        for level in range(len(backbone["stride"]) + 1):
            if level:
                serialization, pooling = coarsen(serialization, backbone["stride"][level - 1])
                inverse = stages[f"level/{level}/pooling_inverse"]
                assert np.array_equal(pooling.cluster, inverse)
            n = serialization.codes.shape[1]
            batch = batch_from_offsets(serialization.offsets, n)
            codes = serialization.codes | (batch << 3 * int(serialization.depth[0]))
            published = stages[f"level/{level}/serialized_code"]
            assert np.array_equal(codes, published)
            assert np.array_equal(serialization.order, published.argsort(axis=1, kind="stable"))


def test_a_serialization_of_no_clouds_coarsens(packed):
    for counts in ([], [0], [0, 0]):
        coarse, pooling = coarsen(serialize(*packed(counts, 0), CURVES), 2)
        assert coarse.offsets.tolist() == [0] * (len(counts) + 1)
        assert pooling.cluster.shape == (0,) and pooling.starts.tolist() == [0]
        assert replace(coarse, curves=CURVES).order.shape == (4, 0)


def test_the_grid_size_advised_leaves_a_cell_for_where_the_cloud_begins():
    cells = torch.tensor([[0, 0, 0], [100 * (2**21 - 1) - 1, 0, 0]])
    with pytest.raises(ValueError, match=r"use a grid_size at least 100\.01 times as large"):
        serialize(cells, torch.tensor([0, 2]), ("z",))


def test_a_coarse_level_is_serialized_from_origin_zero_at_its_depth():
    cells = torch.unique(torch.randint(0, 7, (30, 3)), dim=0)
    cells -= cells.amin(0)
    coarse, pooling = coarsen(serialize(cells, torch.tensor([0, len(cells)]), ("hilbert",)), 2)
    merged = cells[pooling.order[pooling.starts[:-1]]] >> 1
    corner = torch.zeros(1, 3).long()
    again = serialize(merged, coarse.offsets, ("hilbert",), coarse.depth, origin=corner)
    assert torch.equal(again.codes, coarse.codes) and torch.equal(again.order, coarse.order)
