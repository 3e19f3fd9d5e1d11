"""Labelled: a cloud with the columns a prediction adds to it, ready to be written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from pctx.data.labels import LabelSet
from pctx.data.prediction import Prediction
from pctx.geometry.points import PointCloud

UNLABELED_COLOR = (132, 136, 142)
"""The colour of points without a predicted class."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Labelled:
    """What a writer gets. n points.

    Attributes:
        cloud: its `label` holds the raw ids to write.
        added: new columns float32 by name: `entropy`, `confidence`, `margin`, `variance` and
            `probability_CLASS` (n,), and `feat` (n, channels), which few formats hold.
        label_color: (n, 3) uint8, the colours of the classes that are written.
        source: the file the cloud was read from.
    """

    cloud: PointCloud
    added: Mapping[str, np.ndarray] = field(default_factory=dict)
    label_color: np.ndarray | None = None
    source: Path | None = None

    @property
    def whole(self) -> PointCloud:
        """The cloud with the new columns among its extra ones, in place of older ones."""
        return replace(self.cloud, extra={**self.cloud.extra, **self.added})


def label_cloud(
    cloud: PointCloud,
    prediction: Prediction | None,
    *,
    source: Path | None = None,
    probabilities: bool = False,
    entropy: bool = False,
    features: bool = False,
    also: Collection[str] = (),
) -> Labelled:
    """Put the raw ids of a prediction, and on demand its certainty and features, beside the points.

    Args:
        also: of `confidence`, `margin`, `variance`, the columns to add.

    Raises:
        ValueError: the prediction is of another number of points, or lacks what is asked for.
    """
    if prediction is None:
        if probabilities or entropy or features or also:
            raise ValueError("only a prediction has probabilities, entropy and features")
        return Labelled(cloud=cloud, source=source)
    if len(prediction) != len(cloud):
        raise ValueError(f"the prediction has {len(prediction)} points, the cloud {len(cloud)}")
    added = {}
    if entropy:
        if prediction.entropy is None:
            raise ValueError("the prediction has no entropy; ask the predictor for it (--entropy)")
        added["entropy"] = prediction.entropy.astype(np.float32)
    for name in also:
        column = prediction.column(name)
        if column is None:
            raise ValueError(f"the prediction has no {name}; ask the predictor for it (--{name})")
        added[name] = column.astype(np.float32)
    if probabilities:
        if prediction.probability is None:
            raise ValueError(
                "the prediction has no probabilities; ask the predictor for them (--probabilities)"
            )
        for name, column in zip(prediction.labels.names, prediction.probability.T, strict=True):
            added[f"probability_{name}"] = column.astype(np.float32)
    if features:
        if prediction.features is None:
            raise ValueError(
                "the prediction has no features; ask the predictor for them (--features)"
            )
        added["feat"] = prediction.features
    return Labelled(
        cloud=replace(cloud, label=prediction.raw),
        added=added,
        label_color=_colors(prediction.raw, prediction.labels),
        source=source,
    )


def _colors(raw: np.ndarray, labels: LabelSet) -> np.ndarray:
    known = {
        code: color for ids, color in zip(labels.raw, labels.colors, strict=True) for code in ids
    }
    codes, position = np.unique(raw, return_inverse=True)
    palette = [known.get(code, UNLABELED_COLOR) for code in codes.tolist()]
    return np.array(palette, dtype=np.uint8).reshape(-1, 3)[position.reshape(-1)]
