import itertools

import numpy as np
import pytest
import torch

from pctx.geometry.curves import encode
from pctx.geometry.octree import cube_leaves, octree_levels, parent_maps, voxel_leaves
from pctx.geometry.packed import batch_from_offsets
from pctx.geometry.points import PointBatch
from tests.models.clouds import random_batch

COUNTS = [[40, 0, 9], [1], [0], []]


def nodes_of(level):
    batch = batch_from_offsets(level.offsets, level.num_points)
    return torch.cat([batch[:, None], level.grid_coord], 1)


@pytest.mark.parametrize("counts", COUNTS)
def test_a_level_has_each_node_that_holds_points_once_along_the_z_curve(counts):
    points = random_batch(counts)
    levels = octree_levels(points, voxel_leaves(points), 3)
    assert len(levels) == 4 and levels[-1].pooling is None
    leaves = nodes_of(levels[0])
    for height, level in enumerate(levels[1:]):
        expected = leaves.clone()
        expected[:, 1:] >>= height
        assert len(nodes_of(level)) == len(expected.unique(dim=0)) == level.num_points
        code = encode(level.grid_coord, 10, "z")
        for start, stop in itertools.pairwise(level.offsets.tolist()):
            assert (code[start:stop].diff() > 0).all()


@pytest.mark.parametrize("counts", COUNTS)
def test_nodes_pool_into_their_parents(counts):
    points = random_batch(counts)
    levels = octree_levels(points, voxel_leaves(points), 3)
    for height, (fine, coarse) in enumerate(itertools.pairwise(levels)):
        cluster, pooling = fine.pooling.cluster, fine.pooling
        expected = nodes_of(fine)
        expected[:, 1:] >>= min(height, 1)  # a point is in its leaf
        assert torch.equal(nodes_of(coarse)[cluster], expected)
        assert torch.equal(cluster[pooling.order], cluster.sort().values)
        assert torch.equal(pooling.starts.diff(), cluster.bincount(minlength=coarse.num_points))
        sums = torch.zeros(coarse.num_points, 3).index_add_(0, cluster, fine.coord)
        means = sums / pooling.starts.diff()[:, None]
        torch.testing.assert_close(coarse.coord, means)


def test_the_first_level_has_the_rows_of_the_batch():
    points = random_batch([20, 5])
    level = octree_levels(points, voxel_leaves(points), 1)[0]
    assert torch.equal(level.coord, points.coord)
    assert torch.equal(level.offsets, points.offsets)


def test_points_of_one_leaf_become_one_node():
    leaf = torch.tensor([[1, 0, 0], [0, 3, 1], [1, 0, 0], [0, 3, 1]])
    points = PointBatch(
        coord=torch.arange(12.0).view(4, 3),
        grid_coord=leaf,
        feat=torch.zeros(4, 1),
        offsets=torch.tensor([0, 3, 4]),
    )
    fine, coarse = octree_levels(points, leaf, 1)
    # Codes 4 and 19; the second cloud begins with the code that the first ends with.
    assert coarse.grid_coord.tolist() == [[1, 0, 0], [0, 3, 1], [0, 3, 1]]
    assert fine.pooling.cluster.tolist() == [0, 1, 0, 2]
    assert coarse.coord.tolist() == [[3, 4, 5], [3, 4, 5], [9, 10, 11]]


def test_voxels_are_leaves_from_the_lowest_corner():
    points = random_batch([30, 4])
    leaf = voxel_leaves(points)
    assert leaf[:30].amin(0).tolist() == leaf[30:].amin(0).tolist() == [0, 0, 0]
    assert torch.equal(leaf[:30].diff(dim=0), points.grid_coord[:30].diff(dim=0))


def test_the_cube_is_cut_into_halves_depth_times():
    coord = torch.tensor([[-2.0, 0.0, 1.9], [-1.01, 1.0, -0.01]])
    assert cube_leaves(coord, 2.0, 2).tolist() == [[0, 2, 3], [0, 3, 1]]
    assert cube_leaves(coord, 2.0, 1).tolist() == [[0, 1, 1], [0, 1, 0]]
    assert cube_leaves(coord[:0], 2.0, 2).shape == (0, 3)


@pytest.mark.parametrize("outside", [2.0, -2.01, float("nan"), float("inf")])
def test_points_outside_the_cube_are_refused(outside):
    coord = torch.tensor([[0.0, 0.0, 0.0], [0.0, outside, 0.0]])
    with pytest.raises(ValueError, match="1 of 2 points are outside the octree, which reaches 2 m"):
        cube_leaves(coord, 2.0, 3)


@pytest.mark.parametrize("size", [2, 3])
def test_kernels_meet_parents_as_they_are_aligned(size):
    points = random_batch([50, 0, 12])
    levels = octree_levels(points, voxel_leaves(points), 2)
    level, parent = levels[1:]
    pairs = parent_maps(level, parent, [size])[size]
    found = set()
    for tap, (start, stop) in enumerate(itertools.pairwise(pairs.starts)):
        for source, target in zip(pairs.source[start:stop], pairs.target[start:stop], strict=True):
            found.add((tap, int(source), int(target)))
    expected = set()
    for source, fine in enumerate(nodes_of(level)):
        for target, coarse in enumerate(nodes_of(parent)):
            tap = fine[1:] - 2 * coarse[1:] + (size - 1) // 2
            if fine[0] == coarse[0] and (tap >= 0).all() and (tap < size).all():
                x, y, z = tap.tolist()
                expected.add(((x * size + y) * size + z, source, target))
    assert found == expected


@pytest.mark.parametrize("file", ["octformer_small", "octformer_two_stage"])
def test_octrees_are_the_published_ones(golden, file):
    data, stages = np.load(golden / f"{file}.npz"), np.load(golden / f"{file}_stages.npz")
    depth, scale = {"octformer_small": (8, 5.12), "octformer_two_stage": (6, 3.0)}[file]
    coord = torch.from_numpy(data["input/coord"])
    points = PointBatch(
        coord=coord,
        grid_coord=torch.zeros_like(coord, dtype=torch.long),
        feat=coord,
        offsets=torch.tensor([0, *data["input/offset"]]),
    )
    levels = octree_levels(points, cube_leaves(coord, scale, depth), depth - 2)
    for height, level in enumerate(levels[1:]):
        batch, cell = nodes_of(level).tensor_split([1], 1)
        key = batch[:, 0] << 48 | encode(cell, depth - height, "z")
        assert np.array_equal(key, stages[f"level/{depth - height}/key_nonempty"])
        assert np.array_equal(level.offsets.diff(), stages["level/counts"][depth - height])
    leaves = (levels[1].coord / scale + 1) * 2 ** (depth - 1)
    assert np.abs(leaves.numpy() - stages["level/points_leaf"]).max() < 1e-3


def test_cube_leaves_need_a_cube_and_levels():
    coord = torch.zeros(2, 3)
    for depth in (0, 22, 2.5):
        with pytest.raises(ValueError, match="depth must be from 1 to 21 levels, found"):
            cube_leaves(coord, 1.0, depth)
    for scale in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="scale must be one number above 0 metres, found"):
            cube_leaves(coord, scale, 3)
