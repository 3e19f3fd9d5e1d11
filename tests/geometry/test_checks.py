import math

import pytest
import torch

from pctx.geometry.curves import encode
from pctx.geometry.kernel_map import kernel_map
from pctx.geometry.neighbors import knn
from pctx.geometry.packed import (
    cloud_maximum,
    cloud_minimum,
    scatter_max,
    scatter_sum,
    segment_max,
    segment_mean,
    segment_min,
    segment_softmax,
    segment_sum,
)
from pctx.geometry.points import PointBatch
from pctx.geometry.pooling import stride_pooling, voxel_pooling
from pctx.geometry.sampling import farthest_points, plain_farthest_points, strided_counts
from pctx.geometry.serialization import coarsen, serialize
from pctx.geometry.strided_map import strided_map
from pctx.geometry.windows import global_windows, grid_windows, octree_windows, serial_windows

COORD = torch.tensor([[0.0, 0, 0], [1, 2, 3], [4, 0, 2], [5, 5, 5], [7, 1, 0]])
CELLS = COORD.long()
GOOD = torch.tensor([0, 2, 5])
OF_OFFSETS = {
    "segment_sum": lambda offsets: segment_sum(COORD, offsets),
    "segment_mean": lambda offsets: segment_mean(COORD, offsets),
    "segment_max": lambda offsets: segment_max(COORD, offsets),
    "segment_min": lambda offsets: segment_min(COORD, offsets),
    "segment_softmax": lambda offsets: segment_softmax(COORD, offsets),
    "cloud_minimum": lambda offsets: cloud_minimum(COORD, offsets),
    "cloud_maximum": lambda offsets: cloud_maximum(CELLS, offsets),
    "serialize": lambda offsets: serialize(CELLS, offsets, ("z",)).order,
    "coarsen": lambda offsets: coarsen(serialize(CELLS, offsets, ("z",)), 2)[0].offsets,
    "serial_windows": lambda offsets: serial_windows(torch.arange(5), offsets, 2).index,
    "octree_windows": lambda offsets: octree_windows(torch.arange(5), offsets, 2).index,
    "grid_windows": lambda offsets: grid_windows(COORD, offsets, 2.0).index,
    "global_windows": lambda offsets: global_windows(offsets, 5).index,
    "voxel_pooling": lambda offsets: voxel_pooling(COORD, offsets, 2.0)[1],
    "stride_pooling": lambda offsets: stride_pooling(CELLS, offsets, 2)[1],
    "kernel_map": lambda offsets: kernel_map(CELLS, offsets, 3).source,
    "strided_map": lambda offsets: (
        strided_map(CELLS, offsets, CELLS, offsets, kernel_size=2, stride=2).source
    ),
    "knn": lambda offsets: knn(COORD, offsets, 2).index,
    "farthest_points": lambda offsets: farthest_points(
        COORD, offsets, torch.ones(len(offsets) - 1).long()
    )[0],
    "plain_farthest_points": lambda offsets: plain_farthest_points(
        COORD, offsets, torch.ones(len(offsets) - 1).long()
    )[0],
}
WRONG = ([0, 30], [0, 4], [0, 1], [1, 5], [0, 4, 2, 5], [0, 2, 9])
OF_CELLS = {
    "encode": lambda cells: encode(cells, 4, "z"),
    "serialize": lambda cells: serialize(cells, GOOD, ("z",)),
    "stride_pooling": lambda cells: stride_pooling(cells, GOOD, 2),
    "kernel_map": lambda cells: kernel_map(cells, GOOD, 3),
    "strided_map": lambda cells: strided_map(cells, GOOD, CELLS, GOOD, kernel_size=2, stride=2),
    "PointBatch": lambda cells: PointBatch(coord=COORD, grid_coord=cells, feat=COORD, offsets=GOOD),
}
OF_SIZES = {
    "serial_windows": lambda size: serial_windows(torch.arange(5), GOOD, size),
    "octree_windows": lambda size: octree_windows(torch.arange(5), GOOD, size),
    "dilation": lambda size: serial_windows(torch.arange(5), GOOD, 2, dilation=size),
    "slots": lambda size: grid_windows(COORD, GOOD, 2.0, slots=size),
    "stride_pooling": lambda size: stride_pooling(CELLS, GOOD, size),
    "strided_counts": lambda size: strided_counts(GOOD, size),
    "kernel_map": lambda size: kernel_map(CELLS, GOOD, 3, size),
    "strided_map": lambda size: strided_map(CELLS, GOOD, CELLS, GOOD, kernel_size=2, stride=size),
    "knn": lambda size: knn(COORD, GOOD, size),
}


@pytest.mark.parametrize("name", OF_OFFSETS)
def test_offsets_that_do_not_fit_are_named(name):
    for offsets in WRONG:
        with pytest.raises(ValueError, match=r"(offsets|starts) must be integers that ascend"):
            OF_OFFSETS[name](torch.tensor(offsets))


@pytest.mark.parametrize("name", OF_OFFSETS)
def test_strides_and_width_of_offsets_change_nothing(name):
    expected = OF_OFFSETS[name](GOOD)
    for same in (torch.tensor([0, 9, 2, 9, 5, 9])[::2], GOOD.int()):
        assert torch.equal(OF_OFFSETS[name](same), expected)


def test_all_points_need_a_cloud():
    with pytest.raises(ValueError, match="offsets must be integers that ascend from 0 to 0"):
        global_windows(torch.tensor([0, 5]), 0)


def test_of_many_wrong_offsets_the_first_are_shown():
    with pytest.raises(ValueError, match=r"found \[0, 3, 6, .* and 9993 more") as error:
        knn(torch.rand(9, 3), torch.arange(0, 30_001, 3), 2)
    assert len(str(error.value)) < 200
    with pytest.raises(ValueError, match="and 992 more") as error:
        serialize(torch.arange(9000).view(-1, 3) % 7, torch.arange(0, 3001, 3), ("z",), 2)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("name", OF_CELLS)
def test_voxel_numbers_are_three_integers(name):
    OF_CELLS[name](CELLS)
    OF_CELLS[name](CELLS.to(torch.uint8))
    wrong = (COORD, CELLS > 0, torch.cat([CELLS, CELLS], 1), CELLS[:, :2])
    for cells in wrong:
        with pytest.raises(ValueError, match=r"grid_coord must be \(n, 3\) integers, found"):
            OF_CELLS[name](cells)


@pytest.mark.parametrize("name", OF_SIZES)
def test_sizes_are_whole_numbers(name):
    OF_SIZES[name](2)
    for size in (2.5, math.nan):
        with pytest.raises(ValueError, match=f"must be a whole number of at least .*{size}"):
            OF_SIZES[name](size)


def test_what_must_be_whole_is_not_truncated():
    for depth in (4.7, torch.full((2,), 4.0), torch.tensor([4, 4, 4])):
        with pytest.raises(ValueError, match="depth must be a whole number, or one for each of 2"):
            serialize(CELLS, GOOD, ("z",), depth)
    with pytest.raises(ValueError, match="shift must be a whole number of points, found 0.5"):
        serial_windows(torch.arange(5), GOOD, 2, shift=0.5)
    with pytest.raises(ValueError, match="kernel_size must be odd"):
        kernel_map(CELLS, GOOD, 2.5)
    with pytest.raises(ValueError, match="stride must be a power of two"):
        coarsen(serialize(CELLS, GOOD, ("z",)), 2.5)


def test_an_index_names_a_segment_for_each_row():
    for scatter in (scatter_max, scatter_sum):
        with pytest.raises(ValueError, match=r"index must be \(5,\) integers, found \(3,\)"):
            scatter(COORD, torch.zeros(3).long(), 2)
        with pytest.raises(ValueError, match="below num_segments = 0, found 0 to 0"):
            scatter(COORD, torch.zeros(5).long(), 0)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_an_order_has_any_integer_type(dtype):
    order = torch.tensor([1, 0, 4, 2, 3])
    for cut in (
        lambda order: serial_windows(order, GOOD, 2),
        lambda order: octree_windows(order, GOOD, 2),
        lambda order: grid_windows(COORD, GOOD, 2.0, order=order),
    ):
        expected, found = cut(order), cut(order.to(dtype))
        assert torch.equal(found.index, expected.index) and torch.equal(found.slot, expected.slot)


def test_another_default_device_is_of_no_consequence():
    before = torch.get_default_device()
    along, pairs = serialize(CELLS, GOOD, ("z", "hilbert")), kernel_map(CELLS, GOOD, 3)
    torch.set_default_device("meta")
    try:
        assert torch.equal(serialize(CELLS, GOOD, ("z", "hilbert")).order, along.order)
        assert torch.equal(kernel_map(CELLS, GOOD, 3).source, pairs.source)
    finally:
        torch.set_default_device(before)
