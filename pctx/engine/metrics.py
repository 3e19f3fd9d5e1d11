"""Scores of semantic segmentation, from a confusion matrix of raw points.

c classes; rows of a matrix are the truth, columns the prediction, the last one for no prediction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pctx.data.labels import LabelSet


@dataclass(frozen=True, kw_only=True, eq=False)
class Scores:
    """IoU, precision and recall of each class; NaN where they are of nothing.

    A class that the truth lacks is left out of the means, and is said to be absent.

    Attributes:
        confusion: (c, c + 1) int64.
        labels: the classes.
    """

    confusion: np.ndarray
    labels: LabelSet

    @property
    def support(self) -> np.ndarray:
        """(c,) int64: true points of each class."""
        result: np.ndarray = self.confusion.sum(axis=1)
        return result

    @property
    def iou(self) -> np.ndarray:
        """(c,) intersection over union."""
        predicted = self.confusion.sum(axis=0)[:-1]
        return _ratio(self._hits, self.support + predicted - self._hits, self.support)

    @property
    def accuracy(self) -> np.ndarray:
        """(c,) share of the true points that were found, also called recall."""
        return _ratio(self._hits, self.support, self.support)

    @property
    def precision(self) -> np.ndarray:
        """(c,) share right of the points predicted to be of the class; NaN where there is none."""
        predicted = self.confusion.sum(axis=0)[:-1]
        return _ratio(self._hits, predicted, predicted)

    @property
    def miou(self) -> float:
        """Mean IoU over the classes present; NaN where there is none."""
        return _mean(self.iou)

    @property
    def macc(self) -> float:
        """Mean accuracy over the classes present."""
        return _mean(self.accuracy)

    @property
    def fwiou(self) -> float:
        """Mean IoU weighted by the true points of each class."""
        total = self.support.sum()
        weighted = np.nansum(self.iou * self.support)
        return float(weighted / total) if total else float("nan")

    @property
    def oa(self) -> float:
        """Share of all points that were labelled right."""
        total = self.confusion.sum()
        return float(self._hits.sum() / total) if total else float("nan")

    @property
    def num_present(self) -> int:
        """How many classes the means are over."""
        return int((self.support > 0).sum())

    @property
    def absent(self) -> list[str]:
        """Names of the classes without a true point, which the means leave out."""
        points = self.support.tolist()
        return [name for name, n in zip(self.labels.names, points, strict=True) if not n]

    @property
    def _hits(self) -> np.ndarray:
        return np.diag(self.confusion)

    def to_dict(self) -> dict[str, Any]:
        """Give plain values for a JSON file; None where a class is absent."""
        columns = {"iou": self.iou, "precision": self.precision, "recall": self.accuracy}
        classes: dict[str, dict[str, Any]] = {
            name: {
                **{key: _plain(values[row]) for key, values in columns.items()},
                "points": int(self.support[row]),
            }
            for row, name in enumerate(self.labels.names)
        }
        return {
            "miou": _plain(self.miou),
            "fwiou": _plain(self.fwiou),
            "macc": _plain(self.macc),
            "oa": _plain(self.oa),
            "classes_present": self.num_present,
            "absent": self.absent,
            "points": int(self.confusion.sum()),
            "classes": classes,
            "confusion": self.confusion.tolist(),
        }


def confusion_matrix(truth: np.ndarray, predicted: np.ndarray, num_classes: int) -> np.ndarray:
    """Count (c, c + 1) pairs of truth (n,) and prediction (n,), each -1 or a class number.

    Points of truth -1 do not count; those of prediction -1 stand in the last column.
    """
    counted = truth >= 0
    columns = num_classes + 1
    column = np.where(predicted[counted] < 0, num_classes, predicted[counted])
    pairs = np.bincount(truth[counted] * columns + column, minlength=num_classes * columns)
    return pairs.reshape(num_classes, columns)


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _ratio(part: np.ndarray, whole: np.ndarray, support: np.ndarray) -> np.ndarray:
    return np.where(support > 0, part / np.maximum(whole, 1), np.nan)


def _mean(values: np.ndarray) -> float:
    present = values[~np.isnan(values)]
    return float(present.mean()) if len(present) else float("nan")
