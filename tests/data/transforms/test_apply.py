"""Named steps in their order, and mixes that draw from the training scans."""

import numpy as np
import pytest

from pctx.data.dataset import ScanDataset
from pctx.data.features import FeatureSpec
from pctx.data.labels import Card, LabelSet
from pctx.data.loader import TrainingSet, training_loader
from pctx.data.pipeline import Pipeline
from pctx.data.sampler import Draw
from pctx.data.transforms import Jitter, Mix3D, Scale, apply
from pctx.geometry.points import PointCloud

LABELS = LabelSet(names=("low", "high"), colors=((1, 1, 1), (2, 2, 2)), raw=((0, 1, 2), (3, 4)))


class Numbered(ScanDataset):
    """Scan i is a cube of points i metres above the last, all labelled i."""

    card = Card(name="numbered", labels=LABELS)

    def __init__(self):
        self.reads = []

    def scans(self, split):
        return list("01234")

    def read(self, scan):
        self.reads.append(scan)
        coord = np.random.default_rng(int(scan)).random((50, 3)).astype(np.float32)
        coord[:, 2] += 10 * int(scan)
        return PointCloud(coord=coord, label=np.full(50, int(scan)))


def pipeline(**augment):
    features = FeatureSpec(fields=("height",))
    return Pipeline(dataset=Numbered(), grid_size=0.05, features=features, augment=augment)


@pytest.fixture
def cloud():
    return Numbered().read("1")


def test_apply_leaves_out_steps_that_are_none(cloud):
    steps = {"rotate": None, "scale": Scale(low=2, high=2)}
    result = apply(steps, cloud, np.random.default_rng(0))
    np.testing.assert_allclose(result.coord, cloud.coord * 2)


def test_what_a_mix_adds_has_gone_through_the_steps_before_it(cloud):
    steps = {
        "scale": Scale(low=2, high=2),
        "mix": Mix3D(probability=1),
        "more": Scale(low=3, high=3),
    }
    other = Numbered().read("2")
    result = apply(steps, cloud, np.random.default_rng(0), lambda _: other)
    wanted = np.concatenate([cloud.coord, other.coord]) * 6
    np.testing.assert_allclose(result.coord, wanted, rtol=1e-6)
    jittered = apply(
        {"jitter": Jitter(), "mix": Mix3D(probability=1)},
        cloud,
        np.random.default_rng(0),
        lambda _: cloud,
    )
    # Its own numbers: the same cloud twice, moved in two ways.
    assert (jittered.coord[:50] != jittered.coord[50:]).any()


def test_a_mix_needs_clouds_to_draw(cloud):
    with pytest.raises(ValueError, match="the step mix mixes two clouds"):
        apply({"mix": Mix3D()}, cloud, np.random.default_rng(0))


def test_the_coin_is_tossed_before_a_scan_is_read():
    made = pipeline(mix=Mix3D(probability=0.3))
    data = TrainingSet(made, made.dataset.scans("train"), seed=0)
    for draw in range(400):
        data[[Draw(draw, draw % 5, None)]]
    assert (len(made.dataset.reads) - 400) / 400 == pytest.approx(0.3, abs=0.08)


def test_a_scan_is_mixed_with_any_other_but_never_with_itself():
    made = pipeline(mix=Mix3D(probability=1))
    data = TrainingSet(made, made.dataset.scans("train"), seed=0)
    for draw in range(200):
        data[[Draw(draw, 2, None)]]
    others = made.dataset.reads[1::2]
    assert set(made.dataset.reads[::2]) == {"2"}
    assert set(others) == set("0134")
    assert min(others.count(scan) for scan in "0134") > 25


def test_what_is_mixed_hangs_on_seed_and_draw_alone():
    made = pipeline(jitter=Jitter(), mix=Mix3D(probability=0.8))
    sets = [TrainingSet(made, made.dataset.scans("train"), seed=s) for s in (0, 0, 1)]
    order = [Draw(3, 1, None), Draw(7, 4, None), Draw(2, 0, None), Draw(9, 1, None)]
    first = {key: sets[0][[key]].points.feat for key in order}
    again = {key: sets[1][[key]].points.feat for key in reversed(order)}
    for key in order:
        assert first[key].equal(again[key])
    assert any(not first[key].equal(sets[2][[key]].points.feat) for key in order)


def test_a_mixed_scan_is_one_cloud_of_a_batch():
    made = pipeline(mix=Mix3D(probability=1))
    for batch in training_loader(made, made.dataset.scans("train"), batch_size=2):
        assert batch.points.offsets.diff().min() > 90


def test_a_lone_scan_is_mixed_with_itself():
    made = pipeline(mix=Mix3D(probability=1))
    points = TrainingSet(made, ["3"], seed=0)[[Draw(0, 0, None)]].points
    assert len(points) <= 50
    assert made.dataset.reads == ["3", "3"]
