import sys

import pytest
import torch

from pctx.geometry.packed import offsets_from_counts
from pctx.nn import backend, segment
from pctx.nn.segment import segment_reduce, segment_softmax

REDUCTIONS = ("sum", "mean", "max", "min")


@pytest.fixture
def scatter():
    try:
        backend.scatter_library()
    except ImportError as error:
        pytest.skip(str(error))


def case(shape=(3,), dtype=torch.float32, seed=0):
    """Give values with ties, and segments of 0 to 8 rows."""
    generator = torch.Generator().manual_seed(seed)
    starts = offsets_from_counts(torch.randint(0, 9, (50,), generator=generator))
    values = torch.randint(-3, 4, (int(starts[-1]), *shape), generator=generator)
    return values.to(dtype).requires_grad_(), starts


def with_gradient(function, values, starts, *options):
    result = function(values, starts, *options)
    upstream = torch.randn(result.shape, generator=torch.Generator().manual_seed(1))
    return result, *torch.autograd.grad(result, values, upstream.to(result.dtype))


@pytest.mark.usefixtures("scatter")
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_both_engines_give_the_same_values_and_gradients_ties_included(shape, dtype):
    values, starts = case(shape, dtype)
    for reduction in REDUCTIONS:
        one = with_gradient(segment_reduce, values, starts, reduction, "torch")
        two = with_gradient(segment_reduce, values, starts, reduction, "torch_scatter")
        assert one[0].dtype == two[0].dtype == dtype
        torch.testing.assert_close(two, one)
    one = with_gradient(segment_softmax, values, starts, "torch")
    two = with_gradient(segment_softmax, values, starts, "torch_scatter")
    torch.testing.assert_close(two, one)


@pytest.mark.usefixtures("scatter")
def test_both_engines_know_empty_input():
    for counts in ([], [0, 0]):
        starts = offsets_from_counts(torch.tensor(counts, dtype=torch.int64))
        values = torch.zeros(0, 3, requires_grad=True)
        for engine in ("torch", "torch_scatter"):
            for reduction in REDUCTIONS:
                found, grad = with_gradient(segment_reduce, values, starts, reduction, engine)
                assert found.tolist() == [[0.0] * 3] * len(counts) and grad.shape == (0, 3)
            assert with_gradient(segment_softmax, values, starts, engine)[0].shape == (0, 3)


def test_torch_is_chosen_and_torch_scatter_not_even_loaded(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_scatter", None)
    values, starts = case()
    for reduction in REDUCTIONS:
        torch.testing.assert_close(
            segment_reduce(values, starts, reduction),
            segment_reduce(values, starts, reduction, "torch"),
            rtol=0,
            atol=0,
        )
    assert segment_softmax(values, starts).shape == values.shape


def test_an_engine_that_is_not_here_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_scatter", None)
    values, starts = case()
    for reduce in (
        lambda: segment_reduce(values, starts, "max", "torch_scatter"),
        lambda: segment_softmax(values, starts, "torch_scatter"),
    ):
        with pytest.raises(
            ImportError, match=r"pip install --no-build-isolation 'pctx\[scatter\]'"
        ):
            reduce()
    with pytest.raises(
        ValueError, match="backend must be auto, torch or torch_scatter, found cuda"
    ):
        segment_reduce(values, starts, "max", "cuda")


def test_the_engine_asked_for_is_the_one_that_runs(monkeypatch):
    class Library:
        @staticmethod
        def segment_csr(values, starts, reduce):
            return torch.full((len(starts) - 1, *values.shape[1:]), 7.0)

    monkeypatch.setattr(segment, "scatter_library", lambda: Library)
    values, starts = case()
    assert (segment_reduce(values, starts, "max", "torch_scatter") == 7).all()
    assert not (segment_reduce(values, starts, "max") == 7).any()
