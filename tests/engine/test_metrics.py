import warnings

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn import metrics as sklearn

from pctx.data.labels import LabelSet
from pctx.data.prediction import Prediction
from pctx.engine.breakdown import band_names, bands, density_of, near_change, range_of
from pctx.engine.evaluation import Parts, evaluate, nothing_yet
from pctx.engine.metrics import Scores, confusion_matrix
from pctx.geometry.points import PointCloud


def label_set(count):
    return LabelSet(
        names=tuple(f"class {i}" for i in range(count)),
        colors=((0, 0, 0),) * count,
        raw=tuple((i + 1,) for i in range(count)),
    )


def scores(truth, predicted, count=3):
    matrix = confusion_matrix(np.array(truth, int), np.array(predicted, int), count)
    return Scores(confusion=matrix, labels=label_set(count))


def test_iou_by_hand():
    result = scores([0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 2, 2])
    np.testing.assert_allclose(result.iou, [2 / 3, 1 / 3, 1 / 2])
    assert result.miou == pytest.approx(0.5)
    assert result.oa == pytest.approx(4 / 6)
    np.testing.assert_allclose(result.accuracy, [2 / 3, 1 / 2, 1])


def test_ignored_points_do_not_count():
    assert scores([0, 1, -1], [0, 1, 2]).miou == 1


def test_an_absent_class_is_left_out_of_the_mean_even_if_predicted():
    result = scores([0, 0, 1], [0, 2, 1])
    assert np.isnan(result.iou[2])
    assert result.num_present == 2
    assert result.miou == pytest.approx((1 / 2 + 1) / 2)
    assert result.to_dict()["classes"]["class 2"]["iou"] is None


def test_a_point_without_prediction_is_a_miss_and_no_false_alarm():
    result = scores([0, 0, 1], [0, -1, 1], count=2)
    np.testing.assert_allclose(result.iou, [1 / 2, 1])


def test_nothing_to_count_gives_nan_and_no_warning():
    result = scores([], [])
    assert np.isnan(result.miou)
    assert np.isnan(result.oa)


def random_pair(classes=6, n=500, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.integers(-1, classes - 1, n)  # the last class is absent, and predicted
    return truth, np.where(rng.random(n) < 0.6, truth, rng.integers(0, classes, n))


def test_every_score_is_that_of_scikit_learn():
    truth, predicted = random_pair()
    predicted = np.maximum(predicted, 0)
    result = scores(truth, predicted, count=6)
    known = truth >= 0
    pair, present = (truth[known], predicted[known]), list(range(5))
    np.testing.assert_array_equal(
        result.confusion[:, :6], sklearn.confusion_matrix(*pair, labels=range(6))
    )
    iou = sklearn.jaccard_score(*pair, labels=present, average=None)
    np.testing.assert_allclose(result.iou[:5], iou)
    assert result.miou == pytest.approx(iou.mean())
    assert result.fwiou == pytest.approx(sklearn.jaccard_score(*pair, average="weighted"))
    assert result.oa == pytest.approx(sklearn.accuracy_score(*pair))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # predicted classes that the truth lacks
        assert result.macc == pytest.approx(sklearn.balanced_accuracy_score(*pair))
    recall = sklearn.recall_score(*pair, labels=present, average=None)
    np.testing.assert_allclose(result.accuracy[:5], recall)
    precision = sklearn.precision_score(*pair, labels=range(6), average=None, zero_division=0)
    np.testing.assert_allclose(result.precision, precision)
    assert result.absent == ["class 5"]
    assert np.isnan(result.iou[5]) and np.isnan(result.accuracy[5]) and result.precision[5] == 0


def test_a_class_never_predicted_has_no_precision():
    result = scores([0, 1, 1], [0, 0, -1], count=2)
    np.testing.assert_array_equal(result.precision, [0.5, np.nan])
    assert result.to_dict()["classes"]["class 1"]["precision"] is None


def test_plain_values_say_what_is_absent_and_hold_no_nan():
    content = scores([], []).to_dict()
    assert content["absent"] == ["class 0", "class 1", "class 2"]
    assert content["miou"] is None and content["fwiou"] is None


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("radius", [0.05, 0.2, 1.0])
def test_points_near_a_change_are_those_of_all_distances(seed, radius):
    rng = np.random.default_rng(seed)
    coord = rng.random((300, 3)).astype(np.float32)
    label = rng.integers(-1, 4, 300)
    coord[:3] = np.nan
    near = near_change(coord, label, radius)
    known = (label >= 0) & np.isfinite(coord).all(axis=1)
    other = (label[:, None] != label[None]) & known[:, None] & known[None]
    distance = cdist(np.nan_to_num(coord), np.nan_to_num(coord))
    np.testing.assert_array_equal(near, ((distance <= radius) & other).any(axis=1))
    assert 0 < near.sum() < 300


def test_the_radius_itself_is_near_and_one_class_has_no_change():
    coord = np.array([[0, 0, 0], [0.5, 0, 0], [1.1, 0, 0]])
    np.testing.assert_array_equal(near_change(coord, np.array([0, 1, 1]), 0.5), [1, 1, 0])
    assert not near_change(coord, np.zeros(3, int), 9.0).any()
    assert near_change(np.zeros((0, 3)), np.zeros(0, int), 1.0).shape == (0,)


def test_bands_take_their_lower_edge_and_leave_out_what_is_no_number():
    values = np.array([0.0, 9.9, 10.0, 20.0, np.nan, np.inf])
    np.testing.assert_array_equal(bands(values, [10, 20]), [0, 0, 1, 2, -1, -1])
    assert band_names([10, 20], "m") == ["below 10 m", "10 to 20 m", "20 and more m"]
    with pytest.raises(ValueError, match="must ascend"):
        band_names([20, 10], "m")


def test_density_counts_the_points_of_a_cubic_metre_and_range_is_horizontal():
    coord = np.array([[3, 4, 9], [3.9, 4.9, 9.9], [-0.1, 0, 0], [np.nan, 0, 0]], np.float32)
    cloud = PointCloud(coord=coord)
    np.testing.assert_array_equal(density_of(cloud), [2, 2, 1, np.nan])
    np.testing.assert_allclose(range_of(cloud)[:3], [5, np.hypot(3.9, 4.9), 0.1], rtol=1e-6)


def evaluated(parts, seed=0, n=400):
    rng = np.random.default_rng(seed)
    truth, predicted = random_pair(classes=3, n=n, seed=seed)
    probability = rng.dirichlet([1, 1, 1], n).astype(np.float32)
    prediction = Prediction(label=predicted, labels=label_set(3), probability=probability)
    cloud = PointCloud(coord=rng.uniform(-3, 3, (n, 3)).astype(np.float32))
    return cloud, truth, predicted, evaluate(cloud, truth, prediction, parts)


def test_parts_are_scored_as_if_they_were_all_and_bands_make_up_the_whole():
    parts = Parts(boundary=0.5, ranges=(1.0, 2.0), densities=(2.0,))
    cloud, truth, predicted, result = evaluated(parts)
    near = near_change(cloud.coord, truth, 0.5)
    assert list(result.parts) == list(parts.names)
    expected = confusion_matrix(truth[near], predicted[near], 3)
    np.testing.assert_array_equal(result.parts["within 0.5 m of another class"], expected)
    for what in ("range", "density"):
        counts = [c for name, c in result.parts.items() if name.startswith(what)]
        assert len(counts) == {"range": 3, "density": 2}[what]
        np.testing.assert_array_equal(sum(counts), result.confusion)
        assert all(c.any() for c in counts)
    middle = (range_of(cloud) >= 1) & (range_of(cloud) < 2)
    expected = confusion_matrix(truth[middle], predicted[middle], 3)
    np.testing.assert_array_equal(result.parts["range 1 to 2 m"], expected)


def test_evaluations_add_up():
    parts = Parts(boundary=0.5, ranges=(1.0,))
    one, two = (evaluated(parts, seed=seed)[-1] for seed in (0, 1))
    total = nothing_yet(label_set(3), parts) + one + two
    np.testing.assert_array_equal(total.confusion, one.confusion + two.confusion)
    for name in parts.names:
        np.testing.assert_array_equal(total.parts[name], one.parts[name] + two.parts[name])
    assert total.calibration.num_points == sum(e.calibration.num_points for e in (one, two)) > 0
    assert total.part_scores[parts.names[0]].confusion is total.parts[parts.names[0]]


@pytest.mark.parametrize("options", [{"boundary": 0.0}, {"ranges": (2.0, 1.0)}])
def test_parts_that_cannot_be_are_refused(options):
    with pytest.raises(ValueError, match="must"):
        Parts(**options)
