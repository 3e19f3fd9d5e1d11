"""Prediction: what a model says of each raw point of a cloud."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pctx.data.labels import LabelSet


@dataclass(frozen=True, kw_only=True, eq=False)
class Prediction:
    """Class numbers of every raw point, in the cloud's order.

    Attributes:
        label: (n,) int64 class numbers; -1 where nothing could be predicted (non-finite points).
        labels: the classes they number.
        probability: (n, classes) float32, rows sum to 1.
        entropy: (n,) float32 in [0, 1], relative to the entropy of equal probabilities.
        variance: (n,) float32, of the probabilities from view to view, summed over the classes; 0
            where there is one view.
        votes: (n,) int64, forward passes that saw the point.
        features: (n, channels) float32, what the model's head read; 0 where nothing could be
            predicted.
        kept: (n,) int64, raw ids to write instead of the predicted class's; -1 where that is.
    """

    label: np.ndarray
    labels: LabelSet
    probability: np.ndarray | None = None
    entropy: np.ndarray | None = None
    variance: np.ndarray | None = None
    votes: np.ndarray | None = None
    features: np.ndarray | None = None
    kept: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.label)

    @property
    def confidence(self) -> np.ndarray | None:
        """(n,) float32: the probability of the likeliest class."""
        return None if self.probability is None else self.probability.max(axis=1)

    @property
    def margin(self) -> np.ndarray | None:
        """(n,) float32: by how much the likeliest class is likelier than the next."""
        if self.probability is None:
            return None
        second, first = np.partition(self.probability, -2, axis=1)[:, -2:].T
        return first - second

    def column(self, name: str) -> np.ndarray | None:
        """Give the entropy, confidence, margin or variance (n,), where the prediction has it.

        Raises:
            ValueError: there is no such measure.
        """
        match name:
            case "entropy":
                return self.entropy
            case "confidence":
                return self.confidence
            case "margin":
                return self.margin
            case "variance":
                return self.variance
        raise ValueError(f"{name!r} is no measure: there are entropy, confidence, margin, variance")

    @property
    def raw(self) -> np.ndarray:
        """(n,) int64: the raw ids to write into a file."""
        raw = self.labels.decode(self.label)
        return raw if self.kept is None else np.where(self.kept >= 0, self.kept, raw)
