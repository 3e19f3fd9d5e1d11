"""Confidence, its error, and the temperature that makes it right."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.calibration import calibration_curve

from pctx.engine.calibration import (
    BINS,
    MAX_POINTS,
    TEMPERATURES,
    Calibration,
    CalibrationMetric,
    calibrate,
    no_calibration,
)
from pctx.engine.figures import save_reliability


def model_of(temperature, n=20000, classes=5, seed=0):
    """Logits that are right as often as they say, then divided by 1 / temperature."""
    random = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, classes, generator=random)
    label = torch.multinomial(logits.softmax(1), 1, generator=random)[:, 0]
    return logits * temperature, label


def fitted(logits, label):
    """The best temperature by L-BFGS, in float64."""
    log_t = torch.zeros((), dtype=torch.float64, requires_grad=True)
    logits = logits.double()
    optimizer = torch.optim.LBFGS([log_t], line_search_fn="strong_wolfe", max_iter=100)

    def loss():
        optimizer.zero_grad()
        value = F.cross_entropy(logits / log_t.exp(), label)
        value.backward()
        return value

    optimizer.step(loss)
    return float(log_t.detach().exp())


@pytest.mark.parametrize("temperature", [0.4, 0.9, 1.0, 1.37, 3.0, 7.0])
def test_the_temperature_is_that_of_lbfgs(temperature):
    logits, label = model_of(temperature)
    found = calibrate(logits, label).temperature
    assert found == pytest.approx(fitted(logits, label), rel=0.005)
    assert found == pytest.approx(temperature, rel=0.03)


def test_at_its_temperature_a_model_is_as_sure_as_it_is_right():
    logits, label = model_of(3.0)
    result = calibrate(logits, label)
    best = result.temperature
    assert result.ece() > 0.1
    assert result.ece(best) < 0.015
    assert result.nll(best) < result.nll()


def test_the_error_and_the_curve_are_those_of_all_points_by_hand():
    logits, label = model_of(2.0, n=3000)
    result = calibrate(logits, label)
    probability, predicted = logits.softmax(1).max(1)
    right = (predicted == label).numpy()
    place = np.ceil(probability.numpy().astype(np.float64) * BINS).astype(int) - 1
    error = sum(
        abs(right[place == b].mean() - probability.numpy()[place == b].mean()) * (place == b).mean()
        for b in set(place.tolist())
    )
    assert result.ece() == pytest.approx(error, abs=1e-6)
    assert result.nll() == pytest.approx(F.cross_entropy(logits, label).item(), rel=1e-5)
    share, confidence = calibration_curve(right, probability, n_bins=BINS)
    ours = result.reliability()
    some = ours[2] > 0
    np.testing.assert_allclose(ours[0][some], confidence, rtol=1e-5)
    np.testing.assert_allclose(ours[1][some], share)
    assert np.isnan(ours[0][~some]).all()
    assert ours[2].sum() == 3000
    rows = result.bins()
    off = sum(row["points"] * abs(row["accuracy"] - row["confidence"]) for row in rows)
    assert off / 3000 == pytest.approx(result.ece())


def test_log_probabilities_are_logits():
    logits, label = model_of(2.0, n=500)
    one, two = calibrate(logits, label), calibrate(logits.softmax(1).log(), label)
    np.testing.assert_allclose(one.loss, two.loss, rtol=1e-5)
    np.testing.assert_array_equal(one.hits.sum(axis=1), two.hits.sum(axis=1))


def test_ignored_points_are_left_out_and_sums_add_up():
    logits, label = model_of(2.0, n=600)
    label[::3] = -1
    whole = calibrate(logits, label)
    parts = no_calibration() + calibrate(logits[:200], label[:200])
    parts += calibrate(logits[200:], label[200:])
    assert whole.num_points == parts.num_points == 400
    np.testing.assert_array_equal(whole.points, parts.points)
    np.testing.assert_allclose(whole.loss, parts.loss)
    metric = CalibrationMetric()
    metric.update(logits[:200], label[:200])
    metric.update(logits[200:], label[200:])
    found = Calibration(**metric.compute())
    np.testing.assert_allclose(found.confidence, parts.confidence)
    assert found.temperature == parts.temperature


def test_of_many_points_some_are_taken_evenly():
    n = 3 * MAX_POINTS
    logits, label = torch.zeros(n, 2), torch.zeros(n, dtype=torch.int64)
    label[1::3] = label[2::3] = 1
    result = calibrate(logits, label)
    assert result.num_points == MAX_POINTS
    assert result.hits.sum(axis=1).tolist() == [MAX_POINTS] * len(TEMPERATURES)


def test_nothing_to_see_gives_a_temperature_of_one(tmp_path):
    for result in (no_calibration(), calibrate(torch.zeros(3, 2), torch.full((3,), -1))):
        assert result.temperature == 1
        assert math.isnan(result.ece()) and math.isnan(result.nll())
    assert calibrate(torch.full((3, 2), torch.nan), torch.zeros(3).long()).temperature == 1
    save_reliability(no_calibration(), tmp_path / "none.png")
    assert (tmp_path / "none.png").is_file()


def test_a_model_that_is_always_right_is_made_as_sure_as_can_be():
    label = torch.tensor([0, 1])
    assert calibrate(F.one_hot(label).float(), label).temperature == TEMPERATURES[0]
