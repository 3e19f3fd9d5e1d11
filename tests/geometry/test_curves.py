import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pctx.geometry import automaton
from pctx.geometry.curves import CURVES, decode, encode, encode_curves

ORDERS = ["".join(axes) for axes in itertools.permutations("xyz")]
EVERY = (*CURVES, *(f"{family}-{axes}" for family in ("z", "hilbert") for axes in ORDERS), "random")
curves = pytest.mark.parametrize("curve", EVERY)
local = pytest.mark.parametrize("curve", EVERY[:-1])


def full_cube(depth):
    axis = torch.arange(1 << depth)
    return torch.cartesian_prod(axis, axis, axis)


def skilling(cell, depth):
    """Skilling's transform as published, one voxel and one bit at a time."""
    axes = list(cell)
    top = 1 << (depth - 1)
    bit = top
    while bit > 1:
        for axis in range(3):
            if axes[axis] & bit:
                axes[0] ^= bit - 1
            else:
                swap = (axes[0] ^ axes[axis]) & (bit - 1)
                axes[0] ^= swap
                axes[axis] ^= swap
        bit >>= 1
    axes[1] ^= axes[0]
    axes[2] ^= axes[1]
    flip = 0
    bit = top
    while bit > 1:
        if axes[2] & bit:
            flip ^= bit - 1
        bit >>= 1
    axes = [axis ^ flip for axis in axes]
    code = 0
    for level in reversed(range(depth)):
        for axis in axes:
            code = code << 1 | (axis >> level) & 1
    return code


@curves
@given(depth=st.integers(1, 21), data=st.data())
def test_decode_undoes_encode_at_every_depth(curve, depth, data):
    cell = st.integers(0, 2**depth - 1)
    cells = torch.tensor(data.draw(st.lists(st.tuples(cell, cell, cell), min_size=1, max_size=20)))
    codes = encode(cells, depth, curve)
    assert int(codes.min()) >= 0 and int(codes.max()) < 8**depth
    assert torch.equal(decode(codes, depth, curve), cells)


@curves
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_a_curve_visits_every_voxel_once(curve, depth):
    codes = encode(full_cube(depth), depth, curve)
    assert torch.equal(codes.sort().values, torch.arange(8**depth))


@pytest.mark.parametrize("curve", [curve for curve in EVERY if curve.startswith("hilbert")])
@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
def test_neighbours_along_a_hilbert_curve_share_a_face(curve, depth):
    cells = decode(torch.arange(8**depth), depth, curve)
    assert (cells.diff(dim=0).abs().sum(1) == 1).all()


@pytest.mark.parametrize("depth", range(1, 22))
def test_hilbert_codes_are_those_of_skillings_transform(depth):
    cells = np.random.default_rng(depth).integers(0, 2**depth, (20, 3))
    codes = encode(torch.from_numpy(cells), depth, "hilbert")
    assert codes.tolist() == [skilling([int(v) for v in cell], depth) for cell in cells]


@given(st.integers(0, 2**21 - 1), st.integers(0, 2**21 - 1), st.integers(0, 2**21 - 1))
def test_morton_codes_interleave_bits_with_x_highest(x, y, z):
    expected = sum(
        ((x >> i) & 1) << (3 * i + 2) | ((y >> i) & 1) << (3 * i + 1) | ((z >> i) & 1) << (3 * i)
        for i in range(21)
    )
    assert encode(torch.tensor([[x, y, z]]), 21, "z").item() == expected


@pytest.mark.parametrize(("curve", "plain"), [("z-trans", "z"), ("hilbert-trans", "hilbert")])
def test_trans_curves_exchange_x_and_y(curve, plain):
    cells = full_cube(3)
    assert torch.equal(encode(cells, 3, curve), encode(cells[:, [1, 0, 2]], 3, plain))


@pytest.mark.parametrize("axes", ORDERS)
@pytest.mark.parametrize("family", ["z", "hilbert"])
def test_a_curve_takes_the_axes_in_the_order_of_its_name(family, axes):
    cells = full_cube(3)
    swapped = cells[:, ["xyz".index(axis) for axis in axes]]
    assert torch.equal(encode(cells, 3, f"{family}-{axes}"), encode(swapped, 3, family))


@given(depth=st.integers(2, 21), seeds=st.tuples(st.integers(0), st.integers(0)))
def test_the_random_curve_is_told_by_its_seed(depth, seeds):
    here, there = (seed % 2**62 for seed in seeds)
    cells = torch.from_numpy(np.random.default_rng(0).integers(0, 2**depth, (64, 3)))
    codes = encode(cells, depth, "random", seed=here)
    assert torch.equal(decode(codes, depth, "random", seed=here), cells)
    if here % 8**depth != there % 8**depth:
        assert not torch.equal(codes, encode(cells, depth, "random", seed=there))


def test_the_random_curve_has_no_locality():
    steps = decode(torch.arange(8**5), 5, "random").diff(dim=0).abs().sum(1)
    # Two voxels drawn from a cube of 32 lie 32 apart on average.
    assert 30 < steps.float().mean() < 34


@local
@pytest.mark.parametrize("depth", [1, 5, 12, 21])
def test_a_code_without_its_last_digit_is_that_of_the_coarser_voxel(curve, depth):
    cells = torch.from_numpy(np.random.default_rng(0).integers(0, 2**depth, (100, 3)))
    assert torch.equal(encode(cells, depth, curve) >> 3, encode(cells >> 1, depth - 1, curve))


@given(st.lists(st.integers(0, 21), min_size=1, max_size=30), st.integers(0, 2**32 - 1))
def test_curves_of_several_depths_are_read_together(depths, seed):
    rng = np.random.default_rng(seed)
    cells = torch.from_numpy(np.stack([rng.integers(0, 2**depth, 3) for depth in depths]))
    together = encode_curves(cells, max(depths), EVERY, own_depth=torch.tensor(depths), seed=seed)
    for i, depth in enumerate(depths):
        alone = [encode(cells[i : i + 1], depth, curve, seed=seed).item() for curve in EVERY]
        assert together[:, i].tolist() == alone


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_any_integer_dtype_and_strides(dtype):
    cells = full_cube(3)
    strided = cells.t().contiguous().t().to(dtype)
    for curve in EVERY:
        assert torch.equal(encode(strided, 3, curve), encode(cells, 3, curve))


@given(st.lists(st.integers(0, 21), min_size=1, max_size=30), st.integers(0, 2**32 - 1))
def test_both_ways_of_translating_are_one(depths, seed):
    rng = np.random.default_rng(seed)
    word = torch.tensor([int(rng.integers(0, 8**depth)) for depth in depths])
    start = torch.tensor(depths) % 3
    for table in automaton.automaton("cpu"):
        for first in (start, max(depths) % 3):
            ways = (automaton.translate, automaton._translate_by_torch)
            here, there = (way(table, word, max(depths), first) for way in ways)
            assert torch.equal(here, there)


def test_pieces_join_without_a_seam():
    # More voxels than are encoded at a time.
    cells = torch.from_numpy(np.random.default_rng(0).integers(0, 2**12, (70_000, 3)))
    codes = encode_curves(cells, 12, CURVES)
    picked = torch.tensor([0, 32_767, 32_768, 65_535, 65_536, 69_999])
    assert torch.equal(codes[:, picked], encode_curves(cells[picked], 12, CURVES))


@curves
def test_no_voxels_have_no_codes(curve):
    assert encode(torch.zeros(0, 3, dtype=torch.int32), 5, curve).shape == (0,)
    assert decode(torch.zeros(0, dtype=torch.int64), 5, curve).shape == (0, 3)


def test_voxels_outside_the_cube_are_refused():
    for cell in ([8, 0, 0], [0, -1, 0]):
        with pytest.raises(ValueError, match=r"grid_coord must lie in \[0, 8\) for depth 3"):
            encode(torch.tensor([cell]), 3, "z")


def test_unknown_curves_and_depths_are_refused():
    cells = torch.zeros(1, 3, dtype=torch.int64)
    for name in ("peano", "z-", "z-xy", "hilbert-xxy", "random-yxz", "trans", "plain", ""):
        with pytest.raises(ValueError, match=f"unknown curve '{name}'; choose from z, z-trans"):
            encode(cells, 3, name)
    with pytest.raises(ValueError, match="at least one"):
        encode_curves(cells, 3, ())
    for depth, verb in itertools.product((-1, 22), (encode, decode)):
        with pytest.raises(ValueError, match="depth must be from 0 to 21 levels"):
            verb(cells if verb is encode else cells[:, 0], depth, "z")


@pytest.mark.parametrize("depth", [1, 2, 7, 10, 16])
def test_codes_equal_the_published_ones(golden, depth):
    with np.load(golden / "serialization.npz") as data:
        cells = torch.from_numpy(data[f"depth{depth}/grid_coord"])
        within_cloud = data[f"depth{depth}/codes"] & ((1 << 3 * depth) - 1)
    codes = encode_curves(cells, depth, CURVES)
    assert np.array_equal(codes.numpy(), within_cloud)


@pytest.mark.parametrize(("cube", "depth"), [("full2", 1), ("full4", 2)])
def test_codes_of_full_cubes_equal_the_published_ones(golden, cube, depth):
    with np.load(golden / "serialization.npz") as data:
        cells, codes = torch.from_numpy(data[f"{cube}/grid_coord"]), data[f"{cube}/codes"]
    assert np.array_equal(encode_curves(cells, depth, CURVES).numpy(), codes)
