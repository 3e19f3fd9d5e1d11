"""Named steps in their order, and mixes that draw from the training scans."""

import numpy as np
import pytest

from pctx.data.dataset import ScanDataset
from pctx.data.features import FeatureSpec
from pctx.data.labels import Card, LabelSet
from pctx.data.loader import training_loader
from pctx.data.pipeline import Pipeline
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


def reads(made, num_samples, seed=0, scans=None):
    """Load an epoch of single clouds; give the scans that were read for it, in turn."""
    made.dataset.reads.clear()
    scans = made.dataset.scans("train") if scans is None else scans
    loader = training_loader(made, scans, batch_size=1, num_samples=num_samples, seed=seed)
    assert sum(1 for _ in loader) == num_samples
    return list(made.dataset.reads)


def test_the_coin_is_tossed_before_a_scan_is_read():
    seen = reads(pipeline(mix=Mix3D(probability=0.3)), 400)
    assert (len(seen) - 400) / 400 == pytest.approx(0.3, abs=0.08)


def test_a_scan_is_mixed_with_any_other_but_never_with_itself():
    seen = reads(pipeline(mix=Mix3D(probability=1)), 500)
    pairs = list(zip(seen[::2], seen[1::2], strict=True))
    assert len(set(pairs)) == 20
    assert all(one != other for one, other in pairs)
    # Binomial: 25 of each pair, a standard deviation of 4.9.
    assert all(5 < pairs.count(pair) < 50 for pair in set(pairs))


def test_what_is_mixed_hangs_on_the_seed_alone():
    made = pipeline(jitter=Jitter(), mix=Mix3D(probability=0.8))
    assert reads(made, 40) == reads(made, 40)
    assert reads(made, 40) != reads(made, 40, seed=1)
    one, other = (
        made.training_points("3", np.random.default_rng(5), lambda rng: str(rng.integers(3)))
        for _ in range(2)
    )
    assert one.feat.equal(other.feat)
    assert one.coord.equal(other.coord)


def test_a_mixed_scan_is_one_cloud_of_both():
    made = pipeline(mix=Mix3D(probability=1))
    points = made.training_points("3", np.random.default_rng(0), lambda _: "0")
    assert points.num_clouds == 1
    assert len(points) > 90
    assert set(points.label.tolist()) == {0, 1}


def test_a_lone_scan_is_mixed_with_itself():
    assert reads(pipeline(mix=Mix3D(probability=1)), 1, scans=["3"]) == ["3", "3"]
