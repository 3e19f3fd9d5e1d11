"""Evaluation: everything that is counted of predictions on labelled scans.

n raw points, c classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pctx.data.labels import LabelSet
from pctx.data.prediction import Prediction
from pctx.engine.breakdown import band_names, bands, density_of, near_change, range_of
from pctx.engine.calibration import Calibration, calibrate, no_calibration
from pctx.engine.metrics import Scores, confusion_matrix
from pctx.geometry.points import PointCloud


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Which parts of the scans are scored apart too.

    Attributes:
        boundary: metres around changes of the true class; None for no such scores.
        ranges: limits of bands of the distance to the sensor, metres.
        densities: limits of bands of the points a cubic metre.
    """

    boundary: float | None = None
    ranges: tuple[float, ...] = ()
    densities: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.boundary is not None and not self.boundary > 0:
            raise ValueError(f"boundary must be above 0 metres, found {self.boundary}")
        _names(self)

    @property
    def names(self) -> tuple[str, ...]:
        """What the parts are called, in their order."""
        return _names(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """Counts of some scans; those of several add up.

    Attributes:
        labels: the classes.
        confusion: (c, c + 1) int64 of every raw point.
        parts: such a matrix for each part, by name.
        calibration: of the probabilities.
    """

    labels: LabelSet
    confusion: np.ndarray
    parts: dict[str, np.ndarray]
    calibration: Calibration

    def __add__(self, other: Evaluation) -> Evaluation:
        return Evaluation(
            labels=self.labels,
            confusion=self.confusion + other.confusion,
            parts={name: counts + other.parts[name] for name, counts in self.parts.items()},
            calibration=self.calibration + other.calibration,
        )

    @property
    def scores(self) -> Scores:
        """Of every raw point."""
        return Scores(confusion=self.confusion, labels=self.labels)

    @property
    def part_scores(self) -> dict[str, Scores]:
        """Of each part, by name."""
        return {
            name: Scores(confusion=counts, labels=self.labels)
            for name, counts in self.parts.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Give plain values for a JSON file."""
        found, best = self.calibration, self.calibration.temperature
        if found.num_points:
            calibration: dict[str, Any] = {
                "points": found.num_points,
                "ece": found.ece(),
                "nll": found.nll(),
                "temperature": best,
                "ece_at_temperature": found.ece(best),
                "nll_at_temperature": found.nll(best),
                "reliability": found.bins(),
            }
        else:
            calibration = {"points": 0}
        parts = {name: scores.to_dict() for name, scores in self.part_scores.items()}
        return {**self.scores.to_dict(), "parts": parts, "calibration": calibration}


def nothing_yet(labels: LabelSet, parts: Parts) -> Evaluation:
    """Give the counts of no scan."""
    empty = np.zeros((len(labels), len(labels) + 1), dtype=np.int64)
    return Evaluation(
        labels=labels,
        confusion=empty,
        parts=dict.fromkeys(parts.names, empty),
        calibration=no_calibration(),
    )


def evaluate(
    cloud: PointCloud, truth: np.ndarray, prediction: Prediction, parts: Parts
) -> Evaluation:
    """Count one scan.

    Args:
        cloud: where the points lie.
        truth: (n,) class numbers, -1 ignored.
        prediction: of the cloud's points.
        parts: what is scored apart.
    """
    labels, found = prediction.labels, prediction.label
    masks = _masks(cloud, truth, parts)
    return Evaluation(
        labels=labels,
        confusion=confusion_matrix(truth, found, len(labels)),
        parts={
            name: confusion_matrix(truth[mask], found[mask], len(labels))
            for name, mask in masks.items()
        },
        calibration=_calibration(truth, prediction),
    )


def _masks(cloud: PointCloud, truth: np.ndarray, parts: Parts) -> dict[str, np.ndarray]:
    masks = []
    if parts.boundary is not None:
        masks.append(near_change(cloud.coord, truth, parts.boundary))
    for measure, edges in ((range_of, parts.ranges), (density_of, parts.densities)):
        if edges:
            band = bands(measure(cloud), edges)
            masks += [band == number for number in range(len(edges) + 1)]
    return dict(zip(parts.names, masks, strict=True))


def _names(parts: Parts) -> tuple[str, ...]:
    names = [] if parts.boundary is None else [f"within {parts.boundary:g} m of another class"]
    if parts.ranges:
        names += [f"range {name}" for name in band_names(parts.ranges, "m")]
    if parts.densities:
        names += [f"density {name}" for name in band_names(parts.densities, "points/m3")]
    return tuple(names)


def _calibration(truth: np.ndarray, prediction: Prediction) -> Calibration:
    """Take the logarithms of probabilities as logits; points without a prediction have none."""
    if prediction.probability is None:
        return no_calibration()
    label = np.where(prediction.label < 0, -1, truth)
    tiny = np.finfo(np.float32).tiny
    logits = np.log(np.maximum(prediction.probability, tiny))
    return calibrate(torch.from_numpy(logits), torch.from_numpy(label))
