import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pctx.geometry.grid import voxelize

COORDS = arrays(
    np.float32,
    st.tuples(st.integers(0, 60), st.just(3)),
    elements=st.floats(-8, 8, width=32),
)
GRID_SIZES = st.sampled_from([0.05, 0.1, 0.5, 1.0, 3.0])


@given(COORDS, GRID_SIZES)
def test_every_point_is_mapped_to_its_own_voxel(coord, grid_size):
    voxels = voxelize(coord, grid_size)
    cells = np.floor(coord.astype(np.float64) / grid_size).astype(np.int64)
    cells -= cells.min(axis=0, initial=2**40)
    assert np.array_equal(voxels.grid_coord[voxels.inverse], cells)


@given(COORDS, GRID_SIZES)
def test_voxels_are_distinct_sorted_and_start_at_zero(coord, grid_size):
    grid_coord = voxelize(coord, grid_size).grid_coord
    assert grid_coord.dtype == np.int64 and grid_coord.shape[1] == 3
    rows = [tuple(row) for row in grid_coord]
    assert rows == sorted(set(rows))
    assert len(coord) == 0 or (grid_coord.min(axis=0) == 0).all()


@given(COORDS, GRID_SIZES)
def test_a_voxel_keeps_its_lowest_point(coord, grid_size):
    voxels = voxelize(coord, grid_size)
    expected = [int(np.flatnonzero(voxels.inverse == i)[0]) for i in range(len(voxels.first))]
    assert voxels.first.tolist() == expected


def test_coordinates_are_divided_in_float64():
    # The float32 nearest 0.7 lies below it, in voxel 6; divided in float32 it would round up to 7.
    coord = np.array([[0, 0, 0], [0.7, 0, 0]], np.float32)
    assert voxelize(coord, 0.1).grid_coord[1, 0] == 6


@pytest.mark.parametrize("grid_size", [0, -0.1, float("nan"), float("inf"), [0.1, 0.1, 0.2]])
def test_grid_size_must_be_one_positive_number(grid_size):
    with pytest.raises(ValueError, match="grid_size must be one number above 0"):
        voxelize(np.zeros((1, 3), np.float32), grid_size)


def test_points_that_are_not_finite_are_counted():
    coord = np.zeros((5, 3), np.float32)
    coord[1, 0], coord[3, 2] = np.nan, -np.inf
    with pytest.raises(ValueError, match="2 of 5 points are not finite"):
        voxelize(coord, 0.1)


def test_a_grid_size_that_overflows_is_named():
    with pytest.raises(ValueError, match="grid_size 1e-300 m is too small"):
        voxelize(np.full((1, 3), 1e38, np.float32), 1e-300)


@given(st.floats(1e-4, 1e6), st.floats(-1e6, 1e6))
def test_the_grid_size_that_an_error_recommends_works(extent, start):
    coord = np.array([[start, 0, 0], [start + extent, 0, 0]])
    grid_size = extent / 2**22
    with pytest.raises(ValueError, match=r"needs 2[23] bits an axis, more than 21") as error:
        voxelize(coord, grid_size)
    found = re.search(r"grid_size of at least (\S+) m", str(error.value))
    assert found is not None
    smallest = float(found[1])
    assert len(voxelize(coord, smallest).first) == 2
    # Rounded up to three digits, it is at most 1 % above what is needed.
    assert smallest <= 1.01 * extent / (2**21 - 2)


def test_all_bits_of_three_axes_hold_many_points():
    corners = np.array([[0.0, 0, 0], [2**21 - 1] * 3])
    coord = np.concatenate([corners, corners[::-1], corners])
    voxels = voxelize(coord, 1.0)
    assert voxels.grid_coord.tolist() == [[0, 0, 0], [2**21 - 1] * 3]
    assert voxels.inverse.tolist() == [0, 1, 1, 0, 0, 1]


def test_many_points_are_sorted_as_few_are():
    # 40,000 points are sorted by radix where that is built in, two halves of them are not.
    rng = np.random.default_rng(0)
    coord = rng.uniform(0, 4, (40_000, 3)).astype(np.float32)
    coord[0] = coord[20_000] = 0
    whole = voxelize(coord, 0.1)
    cells = np.floor(coord.astype(np.float64) / 0.1).astype(np.int64)
    expected, first, inverse = np.unique(cells, axis=0, return_index=True, return_inverse=True)
    assert np.array_equal(whole.grid_coord, expected)
    assert np.array_equal(whole.first, first)
    assert np.array_equal(whole.inverse, inverse.reshape(-1))


def test_a_span_beyond_float64_is_named():
    coord = np.array([[-1e308, 0, 0], [1e308, 0, 0]])
    with pytest.raises(ValueError, match="coord spans more than float64 holds"):
        voxelize(coord, 1.0)
