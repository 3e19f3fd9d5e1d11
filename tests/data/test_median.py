import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pctx.data.median import Median

INT32 = st.integers(-(2**31), 2**31 - 1)


@given(st.lists(INT32, min_size=1, max_size=30), st.integers(1, 10))
def test_the_median_is_exact_in_any_parts(values, size):
    median, array = Median(), np.array(values, np.int64)
    for look in (median.count, median.refine):
        for start in range(0, len(array), size):
            look(array[start : start + size])
    assert median.value == np.median(array)


def test_there_is_a_median_of_nothing():
    median = Median()
    assert median.value == pytest.approx(0)
