import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pctx.geometry.packed import (
    batch_from_offsets,
    cloud_maximum,
    cloud_minimum,
    counts_from_offsets,
    from_corner,
    group_rows,
    offsets_from_counts,
    scatter_max,
    scatter_mean,
    scatter_min,
    scatter_softmax,
    scatter_sum,
    segment_max,
    segment_mean,
    segment_min,
    segment_softmax,
    segment_sum,
)

COUNTS = st.lists(st.integers(0, 5), max_size=6)
REDUCTIONS = {
    segment_sum: lambda rows: rows.sum(0),
    segment_mean: lambda rows: rows.mean(0),
    segment_max: lambda rows: rows.amax(0),
    segment_min: lambda rows: rows.amin(0),
}
BY_INDEX = {
    scatter_sum: segment_sum,
    scatter_mean: segment_mean,
    scatter_max: segment_max,
    scatter_min: segment_min,
    scatter_softmax: segment_softmax,
}
STARTS = torch.tensor([0, 3, 3, 4, 6])
INDEX = torch.tensor([3, 0, 2, 0, 3, 0])


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


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
@given(counts=COUNTS, shape=st.sampled_from([(), (3,), (2, 3), (0,)]))
def test_segments_reduce_as_one_by_one_and_empty_ones_to_zero(reduce, counts, shape):
    starts = offsets_from_counts(torch.tensor(counts, dtype=torch.int64))
    values = torch.randn(sum(counts), *shape, dtype=torch.float64)
    reduced = reduce(values, starts)
    assert reduced.shape == (len(counts), *shape)
    for row, rows in zip(reduced, values.split(counts), strict=True):
        expected = REDUCTIONS[reduce](rows) if len(rows) else torch.zeros_like(row)
        torch.testing.assert_close(row, expected)


@given(counts=COUNTS, shape=st.sampled_from([(), (3,), (2, 3)]))
def test_softmax_of_segments_is_that_of_each(counts, shape):
    starts = offsets_from_counts(torch.tensor(counts, dtype=torch.int64))
    # As large as to overflow, if it were not for the maximum taken away.
    values = 500 * torch.randn(sum(counts), *shape, dtype=torch.float64)
    weights = segment_softmax(values, starts)
    assert weights.shape == values.shape
    for found, rows in zip(weights.split(counts), values.split(counts), strict=True):
        torch.testing.assert_close(found, rows.softmax(0))


@pytest.mark.parametrize("scatter", BY_INDEX)
@given(index=st.lists(st.integers(0, 4), max_size=12), shape=st.sampled_from([(), (3,), (2, 3)]))
def test_rows_in_any_order_reduce_as_those_sorted(scatter, index, shape):
    place = torch.tensor(index, dtype=torch.int64)
    order, starts = group_rows(place, 6)
    assert order.tolist() == sorted(range(len(index)), key=lambda row: index[row])
    assert starts.tolist() == [sum(i < segment for i in index) for segment in range(7)]
    values = torch.randn(len(index), *shape, requires_grad=True)
    found = scatter(values, place, 6)
    expected = BY_INDEX[scatter](values[order], starts)
    if scatter is scatter_softmax:
        expected = torch.zeros_like(values).index_copy(0, order, expected)
    assert torch.equal(found, expected)
    upstream = torch.randn_like(found)
    (grad,) = torch.autograd.grad(found, values, upstream)
    torch.testing.assert_close(grad, torch.autograd.grad(expected, values, upstream)[0])


def test_no_segments_have_no_rows():
    none, nothing = torch.zeros(1, dtype=torch.int64), torch.zeros(0, 3)
    for reduce in REDUCTIONS:
        assert reduce(nothing, none).shape == (0, 3)
    for scatter in BY_INDEX:
        assert scatter(nothing, none[1:], 0).shape == (0, 3)


@pytest.mark.parametrize("reduce", [*REDUCTIONS, segment_softmax])
def test_segment_gradients_are_those_of_finite_differences(reduce):
    values = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: reduce(v, STARTS), values)


@pytest.mark.parametrize("scatter", BY_INDEX)
def test_gradients_by_index_are_those_of_finite_differences(scatter):
    values = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: scatter(v, INDEX, 5), values)


@pytest.mark.parametrize("reduce", [*REDUCTIONS, segment_softmax])
def test_segments_have_second_derivatives(reduce):
    values = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda v: reduce(v, STARTS).square(), values)


@pytest.mark.parametrize("reduce", [*REDUCTIONS, segment_softmax])
def test_segments_take_rows_of_any_stride(reduce):
    starts = torch.tensor([0, 2, 5])
    values = torch.randn(3, 5).t()
    torch.testing.assert_close(reduce(values, starts), reduce(values.contiguous(), starts))


@pytest.mark.parametrize("dtype, least", [(torch.float16, 2049), (torch.bfloat16, 257)])
def test_half_precision_is_computed_in_float32_and_rounded_once(dtype, least):
    # The least integer that the dtype does not hold: sums in it would stay below, and so the mean.
    values, index = torch.ones(least, 1, dtype=dtype), torch.zeros(least, dtype=torch.int64)
    starts = torch.tensor([0, least])
    for mean in (segment_mean(values, starts), scatter_mean(values, index, 1)):
        assert mean.dtype == dtype and mean.item() == 1
    for reduce in [*REDUCTIONS, segment_softmax]:
        rows = torch.randn(500, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
        limits = torch.tensor([0, 200, 500])
        assert torch.equal(reduce(rows, limits), reduce(rows.float(), limits).to(dtype))


@pytest.mark.parametrize("extreme", [segment_max, segment_min])
def test_equal_extremes_share_the_gradient(extreme):
    sign = 1 if extreme is segment_max else -1
    values = sign * torch.tensor([[2.0, 1.0], [2.0, 3.0], [0.0, 3.0], [2.0, 3.0], [1.0, 1.0]])
    values.requires_grad_()
    extreme(values, torch.tensor([0, 4, 5])).backward(torch.tensor([[6.0, -3.0], [-5.0, 7.0]]))
    assert values.grad is not None
    # Negative gradients too, which torch.segment_reduce gives to each in full.
    assert values.grad.tolist() == [[2, 0], [2, -1], [0, -1], [2, -1], [-5, 7]]


@pytest.mark.parametrize("reduce", [*REDUCTIONS, segment_softmax])
def test_a_row_that_is_no_number_spoils_its_segment_alone(reduce):
    values = torch.ones(6, 1)
    values[1] = torch.nan
    result = reduce(values, STARTS)
    spoilt = [0, 1, 2] if reduce is segment_softmax else [0]
    assert result.isnan().flatten().nonzero().flatten().tolist() == spoilt


def test_no_byte_depends_on_the_number_of_threads(threads):
    generator = torch.Generator().manual_seed(0)
    counts = torch.randint(0, 9, (20_000,), generator=generator)
    starts = offsets_from_counts(counts)
    n = int(starts[-1])
    index = torch.randint(20_000, (n,), generator=generator)
    values = torch.randn(n, 8, generator=generator, requires_grad=True)
    runs = []
    for count in (1, 2, 4):
        threads(count)
        found = [reduce(values, starts) for reduce in [*REDUCTIONS, segment_softmax]]
        found += [scatter(values, index, 20_000) for scatter in BY_INDEX]
        grads = [torch.autograd.grad(result.square().sum(), values)[0] for result in found]
        runs.append([*found, *grads])
    for other in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], other, strict=True))


def test_an_index_outside_the_segments_is_named():
    for scatter in BY_INDEX:
        for index in ([0, 3], [-1, 2]):
            message = r"index must be from 0 to below num_segments = 3, found (0 to 3|-1 to 2)"
            with pytest.raises(ValueError, match=message):
                scatter(torch.ones(2, 1), torch.tensor(index), 3)


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


def test_integer_extremes_are_exact_whatever_the_other_clouds():
    cells = torch.tensor([[2**53 + 1, -(2**60) - 1, 0], [2**53 + 3, 7, 5], [1, 1, 1]])
    alone, packed = torch.tensor([0, 2]), torch.tensor([0, 0, 2, 3, 3])
    for extreme in (cloud_minimum, cloud_maximum):
        expected = extreme(cells[:2], alone)[0]
        assert torch.equal(extreme(cells, packed)[1], expected)
        assert extreme(cells, packed)[[0, 3]].tolist() == [[0, 0, 0], [0, 0, 0]]


def test_from_corner_begins_at_zero_in_each_cloud():
    coord = torch.tensor([[3, -1, 2], [1, 5, 2], [-7, 7, 9]])
    found = from_corner(coord, torch.tensor([0, 2, 2, 3]))
    assert found.tolist() == [[2, 0, 0], [0, 6, 0], [0, 0, 0]]
    assert torch.equal(from_corner(coord[:2], torch.tensor([0, 2])), found[:2])
