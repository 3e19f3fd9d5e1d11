import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pctx.geometry.curves import CURVES
from pctx.geometry.grid import voxelize
from pctx.geometry.hierarchy import Hierarchy, serial_hierarchy
from pctx.geometry.neighbors import knn
from pctx.geometry.packed import (
    batch_from_offsets,
    offsets_from_counts,
    segment_max,
    segment_mean,
    segment_sum,
)
from pctx.geometry.points import PointBatch, pack

COUNTS = st.lists(st.integers(0, 40), max_size=3)
SEEDS = st.integers(0, 2**32 - 1)
PLAN = {
    "curves": CURVES,
    "strides": (2, 4),
    "window_sizes": (8, 8, 4),
    "kernel_sizes": ((3, 5), (3,), ()),
}


def points_of(grid_coord, offsets, grid_size=0.5):
    coord = (grid_coord.float() + 0.25) * grid_size
    return PointBatch(coord=coord, grid_coord=grid_coord, feat=coord, offsets=offsets)


def tensors_of(level):
    """Return every tensor of a level, by name."""
    found = {"coord": level.coord, "grid_coord": level.grid_coord, "offsets": level.offsets}
    for i, windows in enumerate(level.windows):
        found |= {f"index {i}": windows.index, f"slot {i}": windows.slot}
    for size, pairs in level.kernel_maps.items():
        found |= {f"source {size}": pairs.source, f"target {size}": pairs.target}
    if level.neighbors is not None:
        around = level.neighbors
        found |= {"neighbors": around.index, "valid": around.valid, "distance": around.distance}
    if level.pooling is not None:
        found |= {f"pooling {k}": v for k, v in vars(level.pooling).items()}
    return found


@given(counts=COUNTS, seed=SEEDS)
def test_levels_agree_with_each_other(packed, counts, seed):
    points = points_of(*packed(counts, seed))
    levels = serial_hierarchy(points, **PLAN).levels
    assert torch.equal(levels[0].coord, points.coord)
    assert torch.equal(levels[0].offsets, points.offsets)
    assert [sorted(level.kernel_maps) for level in levels] == [[3, 5], [3], []]
    for fine, coarse, stride in zip(levels[:-1], levels[1:], PLAN["strides"], strict=True):
        assert fine.pooling is not None and fine.pooling.num_coarse == coarse.num_points
        cluster = fine.pooling.cluster
        assert torch.equal(fine.grid_coord // stride, coarse.grid_coord[cluster])
        assert coarse.offsets[-1] == coarse.num_points
    assert levels[-1].pooling is None
    for level in levels:
        assert len(level.windows) == len(CURVES)
        for windows in level.windows:
            assert windows.slot.shape == (level.num_points,)


@given(counts=COUNTS, seed=SEEDS)
def test_pooling_a_constant_gives_the_constant(packed, counts, seed):
    for level in serial_hierarchy(points_of(*packed(counts, seed)), **PLAN).levels[:-1]:
        assert level.pooling is not None
        ones = torch.ones(level.num_points, 2).index_select(0, level.pooling.order)
        for reduce in (segment_mean, segment_max):
            assert (reduce(ones, level.pooling.starts) == 1).all()
        assert segment_sum(ones, level.pooling.starts)[:, 0].sum() == level.num_points


@given(counts=COUNTS, seed=SEEDS)
def test_coarse_positions_are_the_mean_of_their_points(packed, counts, seed):
    levels = serial_hierarchy(points_of(*packed(counts, seed)), **PLAN).levels
    for level, coarse in pairwise(levels):
        assert level.pooling is not None
        for i, position in enumerate(coarse.coord):
            expected = level.coord[level.pooling.cluster == i].mean(0)
            torch.testing.assert_close(position, expected)


@given(counts=st.lists(st.integers(0, 40), min_size=2, max_size=3), seed=SEEDS)
def test_a_plan_of_a_batch_is_the_plans_of_its_clouds(packed, counts, seed):
    clouds = [points_of(*packed([n], seed + i, (8, 9, 20)[i])) for i, n in enumerate(counts)]
    together = serial_hierarchy(pack(clouds), **PLAN).levels
    for i, cloud in enumerate(clouds):
        for whole, alone in zip(together, serial_hierarchy(cloud, **PLAN).levels, strict=True):
            rows = slice(int(whole.offsets[i]), int(whole.offsets[i + 1]))
            assert torch.equal(whole.grid_coord[rows], alone.grid_coord)
            assert torch.equal(whole.coord[rows], alone.coord)
            if whole.pooling is not None and alone.pooling is not None:
                found = whole.pooling.cluster[rows]
                first = int(found.min()) if len(found) else 0
                assert torch.equal(found - first, alone.pooling.cluster)


@given(counts=COUNTS, seed=SEEDS, shift=st.tuples(*[st.integers(-100, 100)] * 3))
def test_whole_voxel_translations_leave_the_plan_as_it_is(packed, counts, seed, shift):
    grid_coord, offsets = packed(counts, seed)
    here = points_of(grid_coord, offsets)
    there = PointBatch(
        coord=here.coord,
        grid_coord=grid_coord + torch.tensor(shift),
        feat=here.feat,
        offsets=offsets,
    )
    for a, b in zip(
        serial_hierarchy(here, **PLAN).levels,
        serial_hierarchy(there, **PLAN).levels,
        strict=True,
    ):
        mine, other = tensors_of(a), tensors_of(b)
        assert mine.keys() == other.keys()
        assert all(torch.equal(mine[name], other[name]) for name in mine)


def test_curves_are_shuffled_only_by_a_generator(packed):
    points = points_of(*packed([60, 40], 0))

    def plan(generator=None):
        levels = serial_hierarchy(points, **PLAN, generator=generator).levels
        return [windows.slot for level in levels for windows in level.windows]

    def same(a, b):
        return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))

    def seeded(seed):
        return torch.Generator().manual_seed(seed)

    assert same(plan(), plan())
    assert same(plan(seeded(1)), plan(seeded(1)))
    assert not all(same(plan(seeded(seed)), plan()) for seed in range(5))


def test_to_moves_every_tensor(packed):
    levels = serial_hierarchy(points_of(*packed([30, 5], 0)), **PLAN).levels
    around = [knn(level.coord, level.offsets, 6) for level in levels]  # 6: some places are masked
    hierarchy = Hierarchy(
        levels=tuple(replace(a, neighbors=b) for a, b in zip(levels, around, strict=True))
    )
    for level, moved in zip(hierarchy.levels, hierarchy.to("meta").levels, strict=True):
        here, there = tensors_of(level), tensors_of(moved)
        assert {name: t.shape for name, t in here.items()} == {
            name: t.shape for name, t in there.items()
        }
        assert all(t.device.type == "meta" for t in there.values())
        for windows, same in zip(level.windows, moved.windows, strict=True):
            assert (windows.valid is None) == (same.valid is None)
            assert same.valid is None or same.valid.device.type == "meta"


def test_lists_of_different_lengths_are_refused(packed):
    with pytest.raises(ValueError, match="2 strides make 3 levels, but window_sizes has 2"):
        serial_hierarchy(points_of(*packed([3], 0)), **(PLAN | {"window_sizes": (8, 8)}))


@pytest.mark.parametrize("name", ["ptv3_k32", "ptv3_k128", "ptv3_rpe_k32", "ptv3_encoder_only"])
def test_levels_equal_the_published_ones(golden, name):
    with np.load(golden / f"{name}.npz") as data:
        meta = json.loads(str(data["meta/json"]))
        arrays = {key: torch.from_numpy(data[f"input/{key}"]) for key in ("coord", "grid_coord")}
        ends = torch.from_numpy(data["input/offset"])
    backbone = meta["config"].get("backbone", meta["config"])
    strides = backbone["stride"]
    points = PointBatch(
        **arrays, feat=arrays["coord"], offsets=torch.cat([ends.new_zeros(1), ends])
    )
    levels = serial_hierarchy(
        points,
        curves=backbone["order"],
        strides=strides,
        window_sizes=backbone["enc_patch_size"],
        kernel_sizes=[()] * len(backbone["enc_patch_size"]),
        depth=meta["serialization_depth"],
    ).levels
    with np.load(golden / f"{name}_stages.npz") as stages:
        for i, level in enumerate(levels):
            assert level.offsets.diff().tolist() == stages["level/counts"][i].tolist()
            if i == 0:
                continue
            pooling = levels[i - 1].pooling
            assert pooling is not None
            assert np.array_equal(pooling.cluster, stages[f"level/{i}/pooling_inverse"])
            assert np.array_equal(level.grid_coord, stages[f"level/{i}/grid_coord"])
            batch = batch_from_offsets(level.offsets, level.num_points)
            assert np.array_equal(batch, stages[f"level/{i}/batch"])
            # The published mean adds in another order; positions reach 6 m.
            np.testing.assert_allclose(level.coord, stages[f"level/{i}/coord"], atol=2e-6)


def test_a_real_scan_is_planned(real_data):
    path = "open-mmlab__mmdetection3d/tests/data/semantickitti/sequences/00/velodyne/000000.bin"
    scan = np.fromfile(real_data / path, np.float32).reshape(-1, 4)[:, :3]
    voxels = voxelize(scan, 0.05)
    points = PointBatch(
        coord=torch.from_numpy(scan[voxels.first]),
        grid_coord=torch.from_numpy(voxels.grid_coord),
        feat=torch.zeros(len(voxels.first), 1),
        offsets=offsets_from_counts(torch.tensor([len(voxels.first)])),
    )
    levels = serial_hierarchy(
        points,
        curves=CURVES,
        strides=(2, 2, 2, 2),
        window_sizes=(1024,) * 5,
        kernel_sizes=((3, 5), (3,), (3,), (3,), (3,)),
    ).levels
    sizes = [level.num_points for level in levels]
    assert sizes == sorted(set(sizes), reverse=True)
    for fine, coarse in pairwise(levels):
        distinct = np.unique(fine.grid_coord.numpy() // 2, axis=0)
        assert len(distinct) == coarse.num_points
    for level in levels:
        pairs = level.kernel_maps[3]
        step = level.grid_coord[pairs.source] - level.grid_coord[pairs.target]
        tap = ((step[:, 0] + 1) * 3 + step[:, 1] + 1) * 3 + step[:, 2] + 1
        assert torch.equal(tap, batch_from_offsets(torch.tensor(pairs.starts), len(tap)))
