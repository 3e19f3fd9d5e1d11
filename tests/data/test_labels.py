"""LabelSet: raw ids to class numbers and back."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pctx.data.labels import IGNORE_INDEX, LabelSet

LABELS = LabelSet(
    names=("car", "road", "tree"),
    colors=((1, 2, 3), (4, 5, 6), (7, 8, 9)),
    raw=((10, 252), (40,), (70, -5)),
    ignore=(0, 65),
    unlabeled=99,
)
IDS = [10, 252, 40, 70, -5, 0, 65]


@given(st.lists(st.sampled_from(IDS)))
def test_encoding_gives_the_class_that_names_the_id(raw):
    number = LABELS.encode(np.array(raw, dtype=np.int64))
    assert number.dtype == np.int64 and number.shape == (len(raw),)
    for code, found in zip(raw, number, strict=True):
        named = [i for i, ids in enumerate(LABELS.raw) if code in ids]
        assert found == (named[0] if named else IGNORE_INDEX)


@given(st.lists(st.integers(0, 2)))
def test_encoding_undoes_decoding(label):
    label = np.array(label, dtype=np.int64)
    assert np.array_equal(LABELS.encode(LABELS.decode(label)), label)


def test_decoding_gives_the_first_raw_id_and_unlabeled():
    assert LABELS.decode(np.array([0, 2, 1, -1])).tolist() == [10, 70, 40, 99]


def test_ids_of_no_class_are_named_with_their_counts():
    with pytest.raises(ValueError, match=r"7 \(2 points\), 300 \(1 points\)"):
        LABELS.encode(np.array([10, 7, 300, 7]))


def test_ids_far_apart_are_encoded_too():
    labels = replace(LABELS, raw=((10,), (40,), (2**40, -5)))
    assert labels.encode(np.array([2**40, -5, 10, 0])).tolist() == [2, 2, 0, -1]
    with pytest.raises(ValueError, match=r"41 \(1 points\)"):
        labels.encode(np.array([2**40, 41]))


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint32, np.int64])
def test_any_whole_type_is_encoded(dtype):
    assert LABELS.encode(np.array([70, 0, 65], dtype=dtype)).tolist() == [2, -1, -1]
    assert LABELS.encode(np.zeros(0, dtype=dtype)).dtype == np.int64


def test_the_plain_form_gives_the_set_back():
    assert LabelSet.from_dict(LABELS.to_dict()) == LABELS


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"names": ("car",), "colors": ((1, 2, 3),), "raw": ((1,),)}, "at least 2 classes"),
        ({"names": ("car", "car", "tree")}, "names repeat"),
        ({"colors": ((1, 2, 3),)}, "do not agree"),
        ({"raw": ((10,), (), (70,))}, "road has no raw id"),
        ({"raw": ((10,), (40,), (40,))}, r"twice: \[40\]"),
        ({"ignore": (0, 10)}, r"twice: \[10\]"),
    ],
)
def test_a_set_that_contradicts_itself_is_refused(change, says):
    with pytest.raises(ValueError, match=says):
        replace(LABELS, **change)
