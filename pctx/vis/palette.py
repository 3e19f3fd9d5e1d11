"""Colours: of classes by number, of ids, of measured values, of right and wrong.

n points.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from pctx.data.labels import LabelSet

RGB = tuple[int, int, int]
"""Red, green, blue, 0..255."""

UNLABELED: RGB = (132, 136, 142)
"""Points of no class, no instance or no value."""

RIGHT: RGB = (110, 130, 170)
WRONG: RGB = (255, 120, 40)
NOT_COUNTED: RGB = (60, 64, 72)


class Ramp(Enum):
    """A run of colours from low to high, by its corners; between them OKLab is straight."""

    HEIGHT = ((92, 116, 226), (40, 166, 206), (84, 196, 134), (206, 208, 100), (252, 236, 196))
    INTENSITY = ((112, 84, 176), (176, 76, 152), (228, 96, 98), (250, 156, 74), (253, 238, 172))
    ENTROPY = ((84, 104, 136), (82, 150, 170), (200, 194, 146), (246, 146, 62), (232, 40, 44))
    CONFIDENCE = ((232, 40, 44), (246, 146, 62), (200, 194, 146), (82, 150, 170), (84, 104, 136))
    ATTENTION = ((78, 84, 98), (112, 84, 156), (206, 66, 128), (250, 140, 70), (255, 244, 176))
    ORDER = (
        (66, 72, 206),
        (44, 152, 240),
        (44, 204, 176),
        (132, 212, 82),
        (244, 224, 84),
        (250, 148, 52),
        (222, 52, 48),
        (150, 20, 84),
    )


ASPRS = LabelSet(
    names=(
        "never classified",
        "unclassified",
        "ground",
        "low vegetation",
        "medium vegetation",
        "high vegetation",
        "building",
        "low noise",
        "model key point",
        "water",
        "rail",
        "road surface",
        "overlap",
        "wire guard",
        "wire conductor",
        "transmission tower",
        "wire connector",
        "bridge deck",
        "high noise",
    ),
    colors=(
        (150, 150, 150),
        (190, 190, 190),
        (134, 104, 52),
        (209, 204, 128),
        (116, 188, 90),
        (0, 87, 63),
        (221, 95, 104),
        (255, 0, 200),
        (240, 220, 160),
        (52, 125, 221),
        (122, 96, 150),
        (116, 122, 134),
        (206, 196, 170),
        (250, 200, 60),
        (255, 160, 0),
        (150, 74, 190),
        (230, 120, 220),
        (99, 179, 211),
        (200, 0, 255),
    ),
    raw=tuple((code,) for code in range(19)),
)
"""Classes 0..18 of the LAS 1.4 specification (ASPRS), in colours of our own."""

DISTINCT: tuple[RGB, ...] = (
    (30, 30, 255),
    (230, 105, 30),
    (155, 255, 205),
    (255, 230, 30),
    (155, 80, 180),
    (180, 80, 80),
    (230, 180, 255),
    (130, 55, 30),
    (180, 130, 255),
    (230, 180, 130),
    (105, 30, 155),
    (230, 105, 155),
)
"""Colours of neighbours, all well apart, for eyes that lack red or green cones too: found as
farthest points in OKLab as they see it (Machado et al. 2009)."""

_HUE, _LIGHT = (0.7105, 0.08), (0.1085, 0.633)
"""Turns of the hue and steps of the lightness from number to number, and where they begin: of a few
hundred pairs, the one that keeps the ids of common datasets furthest apart, as DISTINCT does."""


def class_colors(label: np.ndarray, labels: LabelSet) -> np.ndarray:
    """Colour class numbers (n,) by the label set, whatever classes are present; (n, 3) uint8.

    Raises:
        ValueError: a class number is outside -1 .. classes - 1.
    """
    if len(label) and not -1 <= label.min() <= label.max() < len(labels):
        raise ValueError(
            f"class numbers run from {label.min()} to {label.max()}, "
            f"the label set has {len(labels)} classes (0..{len(labels) - 1}, -1 for none)"
        )
    return np.array([*labels.colors, UNLABELED], dtype=np.uint8)[label]


def id_colors(ids: np.ndarray) -> np.ndarray:
    """Colour any whole numbers (n,), the same number always alike; negative ones are grey.

    Returns:
        (n, 3) uint8. The first dozen are `DISTINCT`; then hue and lightness go by the number.
    """
    value, position = np.unique(ids, return_inverse=True)
    number = value.astype(np.float64)
    hue = 2 * np.pi * ((number * _HUE[0] + _HUE[1]) % 1.0)
    light = 0.42 + 0.5 * ((number * _LIGHT[0] + _LIGHT[1]) % 1.0)
    chroma = 0.15 - 0.1 * np.abs(light - 0.68) / 0.3
    lab = np.stack([light, chroma * np.cos(hue), chroma * np.sin(hue)], axis=1)
    color = _rgb(lab)
    few = (value >= 0) & (value < len(DISTINCT))
    color[few] = np.array(DISTINCT, np.uint8)[value[few]]
    color[value < 0] = UNLABELED
    return color[position.reshape(-1)]


def ramp_colors(value: np.ndarray, ramp: Ramp) -> np.ndarray:
    """Colour values (n,), clipped to 0..1, along a ramp; NaN is grey. (n, 3) uint8."""
    corner = _lab(np.array(ramp.value, dtype=np.float64))
    place = np.linspace(0, 1, 256) * (len(corner) - 1)
    lab = [np.interp(place, np.arange(len(corner)), corner[:, axis]) for axis in range(3)]
    table = np.concatenate([_rgb(np.stack(lab, axis=1)), np.array([UNLABELED], dtype=np.uint8)])
    known = np.isfinite(value)
    step = np.round(np.clip(np.where(known, value, 0.0), 0, 1) * 255).astype(np.int64)
    return table[np.where(known, step, 256)]


# OKLab (Ottosson, 2020, "A perceptual color space for image processing"): equal steps look equal.
_TO_LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def _lab(rgb: np.ndarray) -> np.ndarray:
    x = rgb / 255
    linear = np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)
    return np.cbrt(linear @ _TO_LMS.T) @ _TO_LAB.T


def _rgb(lab: np.ndarray) -> np.ndarray:
    linear = (lab @ np.linalg.inv(_TO_LAB).T) ** 3 @ np.linalg.inv(_TO_LMS).T
    linear = np.clip(linear, 0, 1)
    x = np.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.round(x * 255).astype(np.uint8)
