"""EpochSampler: batches that hang on seed and epoch alone."""

from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pctx.data.sampler import EpochSampler


def test_an_epoch_hangs_on_its_number_alone():
    sampler = EpochSampler(5, num_samples=8, seed=1)
    first = list(sampler)
    sampler.set_epoch(1)
    second = list(sampler)
    assert first != second
    draws = list(chain(*first))
    assert sorted({draw.scan for draw in draws}) == list(range(5))
    assert {d.number for d in draws}.isdisjoint({d.number for d in chain(*second)})
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert list(EpochSampler(5, num_samples=8, seed=2)) != first


def test_each_pass_draws_every_scan_once():
    draws = list(chain(*EpochSampler(7, num_samples=21, batch_size=4)))
    passes = [draws[i : i + 7] for i in range(0, 21, 7)]
    assert all(sorted(draw.scan for draw in each) == list(range(7)) for each in passes)
    assert len({draw.number for draw in draws}) == 21


@given(
    sizes=st.lists(st.integers(0, 50), min_size=1, max_size=20),
    budget=st.integers(1, 120),
    samples=st.integers(1, 60),
    epoch=st.integers(0, 5),
)
def test_clouds_fill_a_budget_and_never_exceed_it(sizes, budget, samples, epoch):
    sampler = EpochSampler(
        len(sizes), num_samples=samples, sizes=sizes, batch_points=budget, seed=3
    )
    count = len(sampler)
    sampler.set_epoch(epoch)
    batches = list(sampler)
    assert len(batches) == count
    for batch in batches:
        assert batch
        assert sum(draw.max_points for draw in batch) <= budget
    for batch, following in pairwise(batches):
        room = budget - sum(draw.max_points for draw in batch)
        assert max(1, min(sizes[following[0].scan], budget)) > room


def test_a_resumed_epoch_lacks_its_first_batches_and_the_next_does_not():
    sampler = EpochSampler(5, num_samples=10, batch_size=2)
    whole = sampler.batches()
    sampler.resume(epoch=0, start=3)
    sampler.set_epoch(0)
    assert list(sampler) == whole[3:]
    assert len(sampler) == 5
    sampler.set_epoch(1)
    assert len(list(sampler)) == 5


def test_a_budget_needs_sizes():
    with pytest.raises(ValueError, match="need the sizes"):
        EpochSampler(3, num_samples=3, batch_points=10)
