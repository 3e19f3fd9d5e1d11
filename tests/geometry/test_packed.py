import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pctx.geometry.packed import (
    batch_from_offsets,
    cloud_maximum,
    cloud_minimum,
    counts_from_offsets,
    offsets_from_counts,
    segment_max,
    segment_mean,
    segment_sum,
)

COUNTS = st.lists(st.integers(0, 5), max_size=6)
REDUCTIONS = {
    segment_sum: lambda rows: rows.sum(0),
    segment_mean: lambda rows: rows.mean(0),
    segment_max: lambda rows: rows.amax(0),
}


@given(COUNTS)
def test_offsets_and_counts_are_inverse(counts):
    offsets = offsets_from_counts(torch.tensor(counts, dtype=torch.int64))
    assert offsets[0] == 0 and offsets.dtype == torch.int64
    assert counts_from_offsets(offsets).tolist() == counts


@given(COUNTS)
def test_batch_names_the_cloud_of_each_row(counts):
    offsets = offsets_from_counts(torch.tensor(counts, dtype=torch.int64))
    batch = batch_from_offsets(offsets, sum(counts))
    assert batch.tolist() == [cloud for cloud, n in enumerate(counts) for _ in range(n)]


@pytest.mark.parametrize("reduce", REDUCTIONS)
@given(counts=COUNTS)
def test_segments_reduce_as_one_by_one_and_empty_ones_to_zero(reduce, counts):
    starts = offsets_from_counts(torch.tensor(counts, dtype=torch.int64))
    values = torch.randn(sum(counts), 3, dtype=torch.float64)
    expected = [
        REDUCTIONS[reduce](rows) if len(rows) else torch.zeros(3, dtype=torch.float64)
        for rows in values.split(counts)
    ]
    reduced = reduce(values, starts)
    assert reduced.shape == (len(counts), 3)
    if counts:
        torch.testing.assert_close(reduced, torch.stack(expected))


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_segment_gradients_are_those_of_finite_differences(reduce):
    starts = torch.tensor([0, 3, 3, 4, 6])
    values = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: reduce(v, starts), values)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_segments_take_rows_of_any_stride(reduce):
    starts = torch.tensor([0, 2, 5])
    values = torch.randn(3, 5).t()
    torch.testing.assert_close(reduce(values, starts), reduce(values.contiguous(), starts))


def test_half_precision_sums_in_float32():
    # bfloat16 holds no 257, so a running sum in it would stay at 256.
    values = torch.ones(4096, 1, dtype=torch.bfloat16)
    total = segment_sum(values, torch.tensor([0, 4096]))
    assert total.dtype == torch.bfloat16 and total.item() == 4096


def test_equal_maxima_share_the_gradient():
    values = torch.ones(4, 1, requires_grad=True)
    segment_max(values, torch.tensor([0, 4])).backward()
    assert values.grad is not None and values.grad.flatten().tolist() == [0.25] * 4


@given(COUNTS)
def test_cloud_extremes_are_those_of_each_cloud(counts):
    offsets = offsets_from_counts(torch.tensor(counts, dtype=torch.int64))
    cells = torch.randint(-(2**40), 2**40, (sum(counts), 3))
    for extreme, expected in ((cloud_minimum, torch.amin), (cloud_maximum, torch.amax)):
        found = extreme(cells, offsets)
        assert found.shape == (len(counts), 3)
        for cloud, rows in enumerate(cells.split(counts)):
            wanted = expected(rows, 0).tolist() if len(rows) else [0, 0, 0]
            assert found[cloud].tolist() == wanted
