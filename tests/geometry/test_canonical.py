from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st

from pctx.geometry.canonical import canonical_level, level_as_given, restore_rows
from pctx.geometry.neighbors import knn
from pctx.geometry.packed import batch_from_offsets
from pctx.geometry.points import PointBatch
from pctx.geometry.pooling import voxel_pooling
from pctx.geometry.serialization import serialize

COUNTS = st.lists(st.integers(0, 12), max_size=4)
SEEDS = st.integers(0, 2**32 - 1)
VOXEL = 0.125


def scene(packed, counts, seed):
    """Points somewhere in their voxels, on a lattice so fine that there are few ties."""
    grid_coord, offsets = packed(counts, seed)
    generator = torch.Generator().manual_seed(seed)
    within = torch.randint(0, 1024, grid_coord.shape, generator=generator) / 1024
    return PointBatch(
        coord=(grid_coord + within) * VOXEL,
        grid_coord=grid_coord,
        feat=torch.zeros(len(grid_coord), 1),
        offsets=offsets,
    )


def shuffled(points, seed):
    """The same clouds in another order of rows, and moved by whole voxels; and the order."""
    generator = torch.Generator().manual_seed(seed)
    cloud = batch_from_offsets(points.offsets, len(points))
    order = (cloud + torch.rand(len(points), generator=generator)).argsort()
    step = torch.tensor([5, -90, 1000])
    coord, grid_coord = points.coord[order] + step * VOXEL, points.grid_coord[order] + step
    return replace(points, coord=coord, grid_coord=grid_coord), order


@given(counts=COUNTS, seed=SEEDS)
def test_rows_follow_the_curve_from_the_lowest_corner(packed, counts, seed):
    points = scene(packed, counts, seed)
    level, order = canonical_level(points)
    cloud = batch_from_offsets(points.offsets, len(points))
    assert torch.equal(level.offsets, points.offsets) and torch.equal(cloud[order], cloud)
    along = serialize(level.grid_coord, level.offsets, ("z",))
    assert torch.equal(along.order[0], torch.arange(len(points)))
    for position, given_ in (
        (level.coord, points.coord),
        (level.grid_coord, points.grid_coord),
    ):
        for i, n in enumerate(points.offsets.diff().tolist()):
            if n:
                own, shift = position[cloud == i], given_[order][cloud == i] - position[cloud == i]
                assert (own.amin(0) == 0).all() and (shift == shift[0]).all()


@given(counts=COUNTS, seed=SEEDS)
def test_order_and_whole_voxels_do_not_matter(packed, counts, seed):
    points = scene(packed, counts, seed)
    level, order = canonical_level(points)
    other, relation = shuffled(points, seed)
    moved, moved_order = canonical_level(other)
    assert torch.equal(level.coord, moved.coord) and torch.equal(level.grid_coord, moved.grid_coord)
    assert torch.equal(relation[moved_order], order)


@given(counts=COUNTS, seed=SEEDS, k=st.integers(1, 8))
def test_restored_rows_mean_the_same_points(packed, counts, seed, k):
    points = shuffled(scene(packed, counts, seed), seed)[0]
    sorted_level, order = canonical_level(points)
    coord, offsets = sorted_level.coord, sorted_level.offsets
    pooling, coarse = voxel_pooling(coord, offsets, 0.3)
    middle = coord[pooling.order[pooling.starts[:-1]]]
    rows = torch.arange(len(points))[::2]
    level = restore_rows(
        replace(
            sorted_level,
            neighbors=knn(coord, offsets, k),
            pooling=pooling,
            sampled=rows,
            nearest_coarse=knn(middle, coarse, 3, query=coord, query_offsets=offsets),
        ),
        order,
    )
    corner = points.coord - level.coord
    cloud = batch_from_offsets(offsets, len(points))
    for i, n in enumerate(offsets.diff().tolist()):
        if n:
            assert (corner[cloud == i] == corner[cloud == i][0]).all()
    found = knn(points.coord, offsets, k)
    assert torch.equal(level.neighbors.distance, found.distance)
    valid = torch.ones_like(found.index, dtype=torch.bool) if found.valid is None else found.valid
    far = (points.coord[level.neighbors.index] - points.coord[:, None]).double().norm(dim=-1)
    torch.testing.assert_close(far[valid], found.distance.double()[valid])
    assert (cloud[level.neighbors.index] == cloud[:, None]).all()
    assert torch.equal(points.coord[level.sampled], points.coord[order][rows])
    assert torch.equal(level.pooling.cluster[order], pooling.cluster)
    assert torch.equal(level.pooling.cluster[level.pooling.order], pooling.cluster[pooling.order])
    near = knn(middle, coarse, 3, query=level.coord, query_offsets=offsets)
    assert torch.equal(level.nearest_coarse.index, near.index)


def test_rows_may_stay_as_given(packed):
    points = scene(packed, [9, 0, 4], 0)
    level = level_as_given(points)
    assert level.coord is points.coord and level.grid_coord is points.grid_coord
    assert level.offsets is points.offsets


def test_a_level_takes_what_it_has_to_another_device(packed):
    points = scene(packed, [9, 4], 0)
    level, order = canonical_level(points)
    near = knn(level.coord, level.offsets, 3)
    moved = replace(level, sampled=order, nearest_coarse=near, neighbors=near).to("meta")
    assert moved.sampled.is_meta and moved.neighbors.index.is_meta
    assert moved.nearest_coarse.distance.is_meta
    assert moved.sampled.shape == order.shape
