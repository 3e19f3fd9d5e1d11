import numpy as np
import pytest

from pctx.data.labels import LabelSet
from pctx.engine.metrics import Scores, confusion_matrix


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
