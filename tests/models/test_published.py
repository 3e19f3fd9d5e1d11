"""Names of published weights, both ways."""

import pytest

from pctx.models.published import from_published, to_published
from pctx.models.published_v3 import ptv3_name

OWN = ["head.weight", "head.bias"]


def test_names_go_there_and_back():
    own = {"head.weight": 1, "head.bias": 2}
    published = to_published(own, ptv3_name)
    assert published == {"seg_head.weight": 1, "seg_head.bias": 2}
    assert from_published(published, own, ptv3_name) == own


def test_a_missing_or_an_unexpected_name_is_refused():
    with pytest.raises(ValueError, match=r"1 missing \(seg_head.bias\), 0 unexpected"):
        from_published({"seg_head.weight": 0}, OWN, ptv3_name)
    published = {"seg_head.weight": 0, "seg_head.bias": 0, "extra": 0}
    with pytest.raises(ValueError, match=r"0 missing, 1 unexpected \(extra\)"):
        from_published(published, OWN, ptv3_name)
