"""Every loss: the published numbers, ignored points, the settings and the weights of classes."""

import functools
import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hydra.utils import instantiate

from pctx.cli.config import compose, config_folder
from pctx.data.dataset import ScanDataset
from pctx.data.labels import Card
from pctx.engine.losses import (
    BoundaryCrossEntropy,
    CrossEntropy,
    Dice,
    Focal,
    HardCrossEntropy,
    Lovasz,
    WeightedSum,
    loss_of,
    lovasz_softmax,
    weigh_classes,
)
from pctx.engine.losses.class_weights import MAX_SCANS, training_histogram
from pctx.engine.losses.pointwise import beside_other_class
from pctx.geometry.points import PointBatch
from tests.toy import LABELS, toy_cloud

CASES = ("plain", "ignored", "absent", "single_class", "one_point")
CRITERIA = sorted(p.stem for p in (config_folder() / "criterion").glob("*.yaml"))


@functools.cache
def config_of(name):
    return compose("train", [f"criterion={name}", "name=x"]).criterion


def criterion_of(name):
    return instantiate(config_of(name), _convert_="all")


def batch_of(coord, label, counts=None):
    coord = torch.as_tensor(coord, dtype=torch.float32)
    ends = torch.tensor(counts or [len(coord)]).cumsum(0)
    return PointBatch(
        coord=coord,
        grid_coord=torch.stack([torch.arange(len(coord))] * 3, dim=1),
        feat=torch.zeros(len(coord), 1),
        offsets=torch.cat([torch.zeros(1, dtype=torch.int64), ends]),
        label=torch.as_tensor(label),
    )


def random_batch(n=60, classes=5, seed=0, dtype=torch.float32):
    random = torch.Generator().manual_seed(seed)
    label = torch.randint(-1, classes, (n,), generator=random)
    logits = torch.randn(n, classes, generator=random, dtype=dtype, requires_grad=True)
    return logits, batch_of(torch.rand(n, 3, generator=random), label)


PUBLISHED = {
    ("lovasz", "lovasz"): WeightedSum({"it": Lovasz()}),
    ("lovasz", "lovasz_w"): WeightedSum({"it": Lovasz()}, {"it": 0.4}),
    ("focal", "focal"): Focal(),
    ("focal", "focal_a"): WeightedSum({"it": Focal(gamma=1.5, alpha=0.25)}, {"it": 2.0}),
    ("dice", "dice"): Dice(),
    ("dice", "dice_e1"): WeightedSum({"it": Dice(smooth=0.5, exponent=1.0)}, {"it": 0.5}),
    ("cross_entropy", "ce"): CrossEntropy(),
    ("cross_entropy", "ce_smooth"): CrossEntropy(label_smoothing=0.2),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("file", "key"), sorted(PUBLISHED))
def test_losses_equal_the_published_values_and_gradients(golden, case, file, key):
    with np.load(golden / f"{file}.npz") as data:
        logits = torch.from_numpy(data[f"{case}/logits"]).double().requires_grad_()
        label = torch.from_numpy(data[f"{case}/labels"])
        expected = data[f"f64/{case}/{key}/loss"], data[f"f64/{case}/{key}/grad"]
        assert key in json.loads(str(data["meta/json"]))["losses"]
    loss = PUBLISHED[file, key](logits, label)
    loss.backward()
    np.testing.assert_allclose(loss.item(), expected[0], rtol=1e-12)
    np.testing.assert_allclose(logits.grad.numpy(), expected[1], rtol=1e-9, atol=1e-15)
    single = PUBLISHED[file, key](logits.detach().float(), label)
    np.testing.assert_allclose(single.item(), expected[0], rtol=3e-6)


@pytest.mark.parametrize("name", CRITERIA)
def test_ignored_points_have_no_gradient_and_change_nothing(name):
    criterion = criterion_of(name)
    logits, points = random_batch()
    keep = points.label != -1
    assert 0 < keep.sum() < len(points)
    loss = loss_of(criterion, logits, points.label, points)
    loss.backward()
    assert logits.grad[~keep].eq(0).all()
    assert logits.grad[keep].ne(0).any()
    # Whatever stands at them, not a number included.
    broken = logits.detach().masked_fill(~keep[:, None], torch.nan).requires_grad_()
    again = loss_of(criterion, broken, points.label, points)
    again.backward()
    assert torch.equal(again, loss)
    assert torch.equal(broken.grad, logits.grad)


@pytest.mark.parametrize("name", CRITERIA)
@pytest.mark.parametrize("count", [0, 3])
def test_a_batch_without_labels_gives_zero_and_a_gradient_of_zeros(name, count):
    logits = torch.randn(count, 4, requires_grad=True)
    points = batch_of(torch.rand(count, 3), torch.full((count,), -1))
    loss = loss_of(criterion_of(name), logits, points.label, points)
    loss.backward()
    assert loss == 0
    assert logits.grad.shape == (count, 4) and not logits.grad.any()


@pytest.mark.parametrize("name", CRITERIA)
def test_gradients_are_those_of_differences(name):
    logits, points = random_batch(n=12, classes=3, dtype=torch.float64)
    criterion = criterion_of(name)
    assert torch.autograd.gradcheck(
        lambda z: loss_of(criterion, z, points.label, points), (logits,)
    )


@pytest.mark.parametrize("name", CRITERIA)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened_first(name, dtype):
    logits, points = random_batch()
    half = (8 * logits.detach()).to(dtype).requires_grad_()
    criterion = criterion_of(name)
    loss = loss_of(criterion, half, points.label, points)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, loss_of(criterion, half.detach().float(), points.label, points))
    loss.backward()
    assert half.grad.dtype == dtype and half.grad.isfinite().all()


@pytest.mark.parametrize("name", CRITERIA)
def test_extreme_logits_give_finite_losses_and_gradients(name):
    logits, points = random_batch()
    far = (1e4 * logits.detach()).requires_grad_()
    loss = loss_of(criterion_of(name), far, points.label, points)
    loss.backward()
    assert loss.isfinite() and far.grad.isfinite().all()


def test_cross_entropy_divides_by_the_weights_of_the_points_as_torch_does():
    logits, points = random_batch()
    weights = [0.5, 0.0, 2.0, 3.0, 1.0]
    ours = CrossEntropy(class_weights=weights, label_smoothing=0.1)(logits, points.label)
    torchs = F.cross_entropy(
        logits, points.label, torch.tensor(weights), ignore_index=-1, label_smoothing=0.1
    )
    torch.testing.assert_close(ours, torchs)


def test_points_of_classes_without_weight_give_zero():
    criterion = CrossEntropy(class_weights=[0.0, 1.0])
    loss = criterion(torch.randn(3, 2, requires_grad=True), torch.zeros(3, dtype=torch.int64))
    assert loss == 0


def test_a_perfect_prediction_has_no_lovasz_loss():
    label = torch.tensor([0, 2, 1, 1])
    probability = F.one_hot(label, 4).float()
    assert lovasz_softmax(probability, label) == 0


def test_lovasz_of_hard_wrong_predictions_is_one_minus_the_iou():
    label = torch.tensor([0, 0, 0, 1])
    predicted = torch.tensor([0, 0, 1, 1])
    probability = F.one_hot(predicted, 2).double()
    # class 0: 2 of 3 in the union; class 1: 1 of 2.
    assert lovasz_softmax(probability, label) == pytest.approx((1 / 3 + 1 / 2) / 2)


def test_hard_points_are_those_below_the_threshold_or_the_worst():
    logits, points = random_batch()
    keep = points.label != -1
    each = F.cross_entropy(logits[keep], points.label[keep], reduction="none")
    hard = each[each > -np.log(0.3)]
    assert 0.1 * len(each) < len(hard) < len(each)
    found = HardCrossEntropy(threshold=0.3)(logits, points.label)
    torch.testing.assert_close(found, hard.mean())
    worst = each.sort(descending=True).values[: -(-len(each) // 2)]
    found = HardCrossEntropy(threshold=1e-9, least_share=0.5)(logits, points.label)
    torch.testing.assert_close(found, worst.mean())
    every = HardCrossEntropy(threshold=1.0)(logits, points.label)
    torch.testing.assert_close(every, each.mean())


def test_points_beside_another_class_weigh_more():
    # A row: two classes, an ignored point, and another cloud at the same place.
    coord = [[float(x), 0, 0] for x in (0, 1, 2, 3, 4, 9, 10, 11)] * 2
    label = torch.tensor([0, 0, 0, 1, 1, -1, 1, 1] + [1] * 8)
    points = batch_of(coord, label, counts=[8, 8])
    beside = beside_other_class(points, label, neighbors=3)
    assert beside.nonzero()[:, 0].tolist() == [2, 3, 4]
    small = batch_of(coord[:3], label[[0, 3, 3]], counts=[1, 2])
    assert not beside_other_class(small, small.label, neighbors=9).any()
    logits = torch.randn(16, 2)
    keep = label != -1
    each = F.cross_entropy(logits, label.clamp_min(0), reduction="none")[keep]
    weight = torch.where(beside[keep], 4.0, 1.0)
    found = BoundaryCrossEntropy(factor=4.0, neighbors=3)(logits, label, points)
    torch.testing.assert_close(found, (each * weight).sum() / weight.sum())
    with pytest.raises(ValueError, match="needs the points"):
        BoundaryCrossEntropy()(logits, label)


def test_a_sum_counts_each_term_by_its_weight():
    logits, points = random_batch()
    terms = {"ce": CrossEntropy(), "edge": BoundaryCrossEntropy(), "dice": Dice(), "none": None}
    total = WeightedSum(terms, {"ce": 0.5, "dice": 0.0})(logits, points.label, points)
    ce, edge = (loss_of(terms[n], logits, points.label, points) for n in ("ce", "edge"))
    torch.testing.assert_close(total, 0.5 * ce + edge)
    with pytest.raises(ValueError, match=r"weights names focal, and the terms are ce"):
        WeightedSum({"ce": CrossEntropy()}, {"focal": 1.0})
    with pytest.raises(ValueError, match="at least one loss"):
        WeightedSum({"ce": None})


def test_a_loss_of_torch_is_called_with_logits_and_labels():
    logits, points = random_batch()
    plain = torch.nn.CrossEntropyLoss(ignore_index=-1)
    torch.testing.assert_close(
        loss_of(plain, logits, points.label, points), CrossEntropy()(logits, points.label)
    )


@pytest.mark.parametrize("kind", [CrossEntropy, HardCrossEntropy])
def test_class_weights_of_the_wrong_length_are_refused_by_both_numbers(kind):
    criterion = kind(class_weights=[1.0] * 8)
    with pytest.raises(ValueError, match="8 class weights for 19 classes"):
        criterion(torch.zeros(2, 19), torch.zeros(2, dtype=torch.int64))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CrossEntropy("automatic"), "null, auto or a list"),  # type: ignore[arg-type]
        (lambda: CrossEntropy(class_weights=[1.0, -1.0]), "must be 0 or more"),
        (lambda: CrossEntropy(label_smoothing=1.0), r"label_smoothing must be in \[0, 1\)"),
        (lambda: HardCrossEntropy(threshold=0), "threshold must be above 0"),
        (lambda: HardCrossEntropy(least_share=1.5), "least_share must be above 0"),
        (lambda: BoundaryCrossEntropy(factor=0.5), "factor must be 1 or more"),
        (lambda: BoundaryCrossEntropy(neighbors=1), "neighbors must be 2 or more"),
        (lambda: Focal(gamma=-1), "gamma >= 0"),
        (lambda: Dice(smooth=0), "smooth > 0"),
    ],
)
def test_settings_out_of_range_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


class Scans(ScanDataset):
    card = Card(name="toy", labels=LABELS)

    def __init__(self, count=3):
        self.count, self.reads = count, []

    def scans(self, split):
        assert split == "train"
        return [str(i) for i in range(self.count)]

    def read(self, scan):
        self.reads.append(int(scan))
        return toy_cloud(200, seed=int(scan))


def test_auto_weights_follow_the_training_histogram(caplog):
    scans = Scans()
    raw = np.concatenate([scans.read(s).label for s in scans.scans("train")])
    counts = np.array([np.isin(raw, ids).sum() for ids in LABELS.raw])
    np.testing.assert_array_equal(training_histogram(scans), counts)
    criterion = WeightedSum({"ce": CrossEntropy("auto"), "given": CrossEntropy([1.0, 2.0, 3.0])})
    with pytest.raises(ValueError, match="call weigh_classes first"):
        criterion(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64))
    with caplog.at_level("INFO", "pctx"):
        weigh_classes(criterion, scans)
    expected = 1 / np.log(1.02 + counts / counts.sum())
    torch.testing.assert_close(
        criterion.terms["ce"].class_weights, torch.tensor(expected, dtype=torch.float32)
    )
    assert criterion.terms["given"].class_weights.tolist() == [1, 2, 3]
    assert f"ground {expected[0]:.2f}" in caplog.text
    with pytest.raises(ValueError, match="8 class weights for 3 classes"):
        weigh_classes(CrossEntropy([1.0] * 8), scans)


def test_of_a_large_set_scans_evenly_spread_are_counted():
    scans = Scans(5 * MAX_SCANS)
    scans.read = lambda scan, reads=scans.reads: reads.append(int(scan)) or toy_cloud(5)
    training_histogram(scans)
    assert len(scans.reads) == MAX_SCANS
    assert (scans.reads[0], scans.reads[-1]) == (0, 5 * MAX_SCANS - 1)
    assert set(np.diff(scans.reads)) <= {5, 6}
