import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pctx.geometry import sorting
from pctx.geometry.sorting import argsort_pairs, changes, places, search, stable_sort


@pytest.mark.parametrize("radix", [False, True])
@given(keys=st.lists(st.integers(0, 20)), shift=st.sampled_from([0, 26, 27, 58]))
def test_both_sorts_keep_equal_keys_in_row_order(radix, keys, shift):
    key = torch.tensor(keys, dtype=torch.int64) << shift
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "_RADIX_FROM", 0)
        patch.setattr(sorting, "_radix_is_faster", lambda: radix)
        ascending, order = stable_sort(key, 5 + shift)
    assert order.tolist() == sorted(range(len(keys)), key=keys.__getitem__)
    assert ascending.dtype == torch.int64 and torch.equal(ascending, key[order])


def test_one_of_the_two_sorts_is_faster():
    assert sorting._radix_is_faster() in (False, True)


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7))), st.sampled_from([0, 30, 59]))
def test_pairs_sort_by_major_then_minor_then_row(pairs, shift):
    major = torch.tensor([a for a, _ in pairs], dtype=torch.int64)
    minor = torch.tensor([b for _, b in pairs], dtype=torch.int64) << shift
    order = argsort_pairs(major, 3, minor, 3 + shift)
    assert order.tolist() == sorted(range(len(pairs)), key=pairs.__getitem__)


def test_one_major_key_needs_no_bits():
    minor = torch.tensor([2**63 - 1, 0, 5])
    assert argsort_pairs(torch.zeros(3, dtype=torch.int64), 0, minor, 63).tolist() == [1, 2, 0]


@given(st.lists(st.integers(0, 50)), st.lists(st.integers(-2, 52)))
def test_search_finds_the_first_key_not_below(keys, queries):
    ascending = torch.tensor(sorted(keys), dtype=torch.int64)
    query = torch.tensor(queries, dtype=torch.int64)
    assert torch.equal(search(ascending, query), torch.searchsorted(ascending, query))


@given(st.lists(st.integers(0, 2)))
def test_changes_mark_the_heads_of_runs(values):
    head = changes(torch.tensor(values, dtype=torch.int64))
    expected = [i for i, v in enumerate(values) if i == 0 or v != values[i - 1]]
    assert places(head).tolist() == expected
