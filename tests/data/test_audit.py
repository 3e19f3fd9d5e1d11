"""Audit and findings: what is wrong with a dataset is found, and named once."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pctx.data.audit import Question, ScanFacts, digest, look, sizes, survey
from pctx.data.dataset import ScanDataset
from pctx.data.features import FeatureSpec
from pctx.data.findings import class_counts, findings
from pctx.data.labels import Card, LabelSet
from pctx.data.spacing import median_spacing, suggest_grid_size
from pctx.geometry.points import PointCloud

LABELS = LabelSet(
    names=("a", "b"), colors=((1, 1, 1), (2, 2, 2)), raw=((1,), (2,)), ignore=(7,), unlabeled=7
)
SPLITS = {"train": ["t"], "val": ["v"]}


def fact(split="train", scan="t", **changed):
    values = {
        "points": 100,
        "size": 10.0,
        "extent": 10.0,
        "codes": {1: 60, 2: 40},
        "digest": scan,
        "spacing": 0.25,
        "voxels": 50,
    }
    return ScanFacts(split=split, scan=scan, **values | changed)


def found_in(*facts, splits=SPLITS, grid_size=0.5, features=None):
    both = [*facts]
    both += [fact("train", "t")] if not any(f.split == "train" for f in facts) else []
    both += [fact("val", "v")] if not any(f.split == "val" for f in facts) else []
    return findings(both, splits, LABELS, grid_size, features)


def test_a_sound_set_has_no_findings():
    found = found_in()
    assert found.wrong == found.notes == ()
    assert (found.spacing, found.grid_size, found.voxels) == (0.25, 0.5, 50)


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ([fact(error="t.las: broken")], "t.las: broken"),
        ([fact(points=0, codes={})], "t: it holds no point"),
        ([fact(not_finite=100)], "t: no point of it is finite"),
        ([fact(codes=None)], "t: it has no labels, and is for train"),
        ([fact(extent=2e6)], r"t: 2,000,000 m wide, more than 2,097,152 voxels of 0.5 m"),
        ([fact(stray=3, extent=500.0)], r"t: 3 stray points .* \(10.0 m\) away; it is 500 m wide"),
        ([fact(codes={1: 5, 2: 5, 65: 4})], r"raw id 65 \(4 points in t\) is in no class"),
        ([fact(missing=("color",))], r"t lacks color, which data.features names"),
        (
            [fact(scan="t"), fact(scan="u", digest="u", size=900.0)],
            "u: 900 m wide, where others are 10.0 m",
        ),
        (
            [fact(digest="same"), fact("val", "v", digest="same")],
            r"v \(val\) holds the same points as t \(train\)",
        ),
    ],
)
def test_each_fault_is_one_sentence(facts, says):
    found = found_in(*facts)
    assert len(found.wrong) == 1
    assert re.search(says, found.wrong[0]), found.wrong


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ([fact(not_finite=5)], "5 points are not finite, in t"),
        ([fact(), fact(scan="u", digest="t")], "t and u hold the same points, all for train"),
        ([fact(codes={1: 5, 7: 1})], "b: no point in train; it cannot be learned"),
        ([fact("val", "v", codes={2: 5})], "a: no point in val; it is not evaluated"),
    ],
)
def test_what_is_only_odd_is_a_note(facts, says):
    found = found_in(*facts)
    assert found.wrong == ()
    assert len(found.notes) == 1 and says in found.notes[0]


def test_faults_of_many_scans_are_told_once():
    facts = [fact(scan=f"{i}", codes={1: 1, 2: 1, 9: 2}, missing=("color",)) for i in range(50)]
    wrong = found_in(*facts).wrong
    assert len(wrong) == 2
    assert "raw id 9 (100 points in 50 scans, first 0)" in wrong[0]
    assert wrong[1].startswith("50 of 51 scans (first 0) lack color")


def test_a_broken_scan_of_two_splits_is_named_once():
    both = [fact(split, "t", error="t.las: broken") for split in SPLITS]
    found = found_in(*both, splits={"train": ["t", "u"], "val": ["t", "u"]})
    assert found.wrong == ("t.las: broken",)


def test_a_scan_of_two_splits_is_wrong_unless_the_splits_are_the_same():
    found = found_in(splits={"train": ["t", "v"], "val": ["v"]})
    assert found.wrong == ("v: it is in the splits train and val at once",)
    found = found_in(splits={"train": ["t"], "val": ["v"], "test": ["v"]})
    assert found.wrong == () and found.notes == ("the splits val and test are the same scans",)
    found = found_in(splits={"train": ["t"], "val": ["v"], "test": [], "more": []})
    assert found.wrong == found.notes == ()


def test_a_split_that_training_needs_may_not_be_empty():
    assert "the split val holds no scan" in found_in(splits={"train": ["t"], "val": []}).wrong[0]
    assert found_in(splits={**SPLITS, "test": []}).wrong == ()


def test_values_that_drown_others_or_never_change_are_noted():
    features = FeatureSpec(fields=("intensity", "color"), scales={"intensity": 10.0})
    loud = fact(reach={"intensity": 400.0, "color": 1.0})
    assert "data.features.scales.intensity=4000" in found_in(loud, features=features).notes[0]
    still = [
        fact(s, n, reach={"color": 0.0}, constant=("color",))
        for s, n in zip(SPLITS, "tv", strict=True)
    ]
    assert "color has one value" in found_in(*still, features=features).notes[0]


def test_a_grid_far_from_the_spacing_is_noted():
    assert "try data.grid_size=0.5" in found_in(grid_size=5.0).notes[0]
    assert "try data.grid_size=0.5" in found_in(grid_size=0.05).notes[0]


def test_counts_are_by_class_and_what_is_unmapped_is_in_none():
    counts = class_counts([fact(codes={1: 5, 7: 2, 9: 1})], ["train"], LABELS)
    assert counts == {"train": {"a": 5, "b": 0, "ignored": 2}}


@given(st.integers(0, 2**16), st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_stray_points_are_those_far_outside_and_change_no_size(seed, strays):
    rng = np.random.default_rng(seed)
    coord = rng.uniform(0, [50, 40, 5], (2000, 3))
    far = rng.choice([-1, 1], (strays, 3)) * rng.uniform(600, 5000, (strays, 3))
    stray, size, extent = sizes(np.concatenate([coord, far]).astype(np.float32))
    assert stray == strays and 48 < size < 50.1 and extent > 600
    assert sizes(coord.astype(np.float32))[0] == 0


def test_few_points_and_none_have_no_stray_ones():
    assert sizes(np.zeros((0, 3), np.float32)) == (0, 0.0, 0.0)
    assert sizes(np.array([[0, 0, 0], [9e5, 0, 0]], np.float32)) == (0, 9e5, 9e5)


def test_a_digest_tells_points_apart_and_passes_over_labels():
    rng = np.random.default_rng(0)
    cloud = PointCloud(coord=rng.random((50, 3), dtype=np.float32))
    assert digest(cloud) == digest(PointCloud(coord=cloud.coord.copy(), label=np.arange(50)))
    assert digest(cloud) != digest(PointCloud(coord=cloud.coord, origin=np.ones(3)))
    assert digest(cloud) != digest(cloud.select(np.arange(50)[::-1]))


def test_the_grid_size_is_twice_the_spacing_in_round_numbers():
    grid = np.stack(np.meshgrid(*[np.arange(12) * 0.1] * 3), axis=-1).reshape(-1, 3)
    spacing = median_spacing(np.repeat(grid, 2, axis=0).astype(np.float32))
    assert spacing == pytest.approx(0.1, abs=1e-4)
    assert [suggest_grid_size(s) for s in (0.1, 0.03, 0.0244, 1.2)] == [0.2, 0.05, 0.05, 2.0]
    assert median_spacing(np.zeros((5, 3), np.float32)) is None


class Numbers(ScanDataset):
    """Scans that say in every point which number they have; "broken" cannot be read."""

    card = Card(name="numbers", labels=LABELS)

    def scans(self, split):
        return ["0", "1", "broken"]

    def read(self, scan):
        if scan == "broken":
            raise ValueError("broken: it is\n broken")
        coord = np.random.default_rng(int(scan)).random((40, 3), dtype=np.float32)
        coord[0] = np.nan
        return PointCloud(coord=coord, label=np.full(40, int(scan) + 1))


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_every_scan_is_looked_at_in_order(workers):
    question = Question(features=FeatureSpec(fields=("height", "color")), grid_size=10.0)
    facts = list(survey(Numbers(), {"train": ["0", "1", "broken"]}, question, workers))
    assert [f.scan for f in facts] == ["0", "1", "broken"]
    assert [f.codes for f in facts] == [{1: 40}, {2: 40}, None]
    assert facts[0].not_finite == 1 and facts[0].voxels == 1 and facts[0].missing == ("color",)
    assert facts[2].error == "broken: it is broken"


def test_only_some_scans_are_measured_and_filled_fields_are_not_missing():
    question = Question(features=FeatureSpec(fields=("color",)), filled=("color",), grid_size=0.1)
    facts = list(survey(Numbers(), {"train": ["0"] * 100}, question))
    assert sum(f.spacing is not None for f in facts) == 20
    assert facts[0].missing == ()
    assert look(Numbers(), question, ("train", "1", False)).voxels is None
