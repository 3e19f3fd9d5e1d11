"""What a model made of the points, as colours: features that are alike look alike.

n points, c channels.
"""

from __future__ import annotations

import numpy as np

from pctx.geometry.points import PointCloud
from pctx.vis.palette import UNLABELED
from pctx.vis.scene import Scene, color_scene

SAMPLE = 50_000
"""Points from which the axes are found."""

_RANGE = (1.0, 99.0)
"""Percentiles along an axis that become the ends of a colour channel."""

_LEAST = 0.15  # of the first axis' width: a channel of hardly any spread is not stretched further


def feature_scene(cloud: PointCloud, features: np.ndarray, *, title: str = "") -> Scene:
    """Colour points by the three directions in which their features (n, c) vary most."""
    return color_scene(
        cloud, feature_colors(features), title=title, subject="features: three main directions"
    )


def feature_colors(features: np.ndarray) -> np.ndarray:
    """Give the first three principal components of features (n, c) as red, green and blue.

    Of each axis the largest weight is made positive, so that equal features have equal colours.
    Rows all 0, which stand for no prediction, and rows that are not finite, are grey.

    Returns:
        (n, 3) uint8. Pearson 1901, "On lines and planes of closest fit".
    """
    known = np.isfinite(features).all(axis=1)
    known &= np.where(known[:, None], features, 0).any(axis=1)
    color = np.tile(np.array(UNLABELED, np.uint8), (len(features), 1))
    if not known.any():
        return color
    rows = features[known].astype(np.float32)
    sample = rows[:: max(1, len(rows) // SAMPLE)].astype(np.float64)
    center = sample.mean(axis=0)
    power, axes = np.linalg.eigh(np.cov((sample - center).T, bias=True).reshape(2 * rows.shape[1:]))
    axes = axes[:, ::-1][:, :3]  # (c, 3), the strongest first
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    axes = axes * (power[::-1][:3] > 1e-12 * max(power[-1], 1e-30))
    place = (rows - center.astype(np.float32)) @ axes.astype(np.float32)
    low, high = np.percentile(place, _RANGE, axis=0)
    width = np.maximum(high - low, max(_LEAST * float((high - low)[0]), 1e-30))
    unit = 0.5 + (place - (low + high) / 2) / width
    unit = np.pad(unit, ((0, 0), (0, 3 - unit.shape[1])), constant_values=0.5)
    color[known] = np.round(40 + 215 * np.clip(unit, 0, 1)).astype(np.uint8)
    return color
