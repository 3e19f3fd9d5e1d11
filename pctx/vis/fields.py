"""make_scene(): a cloud coloured by one of its fields, or by what was predicted.

n points.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeVar, get_args

import numpy as np

from pctx.data.io.predicted import PROBABILITY
from pctx.data.labels import IGNORE_INDEX, LabelSet
from pctx.data.prediction import Prediction
from pctx.geometry.points import PointCloud
from pctx.vis import palette
from pctx.vis.features import feature_scene
from pctx.vis.palette import Ramp
from pctx.vis.scene import (
    Chances,
    ColorScale,
    Scene,
    color_scene,
    entry_scene,
    id_scene,
    value_scene,
)

ColorBy = Literal[
    "label",
    "prediction",
    "error",
    "confidence",
    "entropy",
    "margin",
    "variance",
    "features",
    "rgb",
    "intensity",
    "height",
    "instance",
]
COLORS: tuple[str, ...] = get_args(ColorBy)
MEASURES = ("confidence", "entropy", "margin", "variance")
"""How sure a prediction is: of a `Prediction`, or columns that `pctx predict` wrote into a file."""
T = TypeVar("T")

WRONG = "wrong"
"""The legend's word for points whose class was missed."""

LAS_FIELDS = frozenset(("number_of_returns", "return_number"))
"""Columns by which a LAS file is known; its classes have names without a card."""


def make_scene(
    cloud: PointCloud,
    prediction: Prediction | None = None,
    *,
    color: str | None = None,
    labels: LabelSet | None = None,
    title: str = "",
) -> Scene:
    """Colour a cloud by one of its fields or by what was predicted.

    Points without a finite position are left out. Raw ids that are in no class of `labels` are
    shown as such, never refused. Without `labels` every raw id has a colour of its own, but those
    of LAS files are named as ASPRS does.

    Args:
        cloud: any points.
        prediction: of the same points, or None.
        color: one of `COLORS`; None takes the first there is of prediction, label, rgb,
            intensity, height.
        labels: the classes of the cloud's raw ids; None takes the prediction's.
        title: usually the file's name.

    Raises:
        ValueError: `color` is unknown, or needs a field or a prediction that is not there.
    """
    if prediction is not None and len(prediction) != len(cloud):
        raise ValueError(
            f"the prediction has {len(prediction)} rows, the cloud has {len(cloud)} points"
        )
    if color is None:
        color = _default_color(cloud, prediction)
    known = labels if labels is not None or prediction is None else prediction.labels
    scene = _colored(cloud, prediction, color, known, title)
    return replace(scene, chances=chances(cloud, prediction))


def _colored(
    cloud: PointCloud,
    prediction: Prediction | None,
    color: str,
    known: LabelSet | None,
    title: str,
) -> Scene:
    if color == "label":
        return _label_scene(cloud, known, title)
    if color == "prediction":
        pred = _needed(prediction, color, "prediction")
        return _class_scene(cloud, pred.label, pred.labels, title=title, subject=color)
    if color == "error":
        return _error_scene(cloud, _needed(prediction, color, "prediction"), known, title)
    if color in MEASURES:
        values = _needed(measure(cloud, prediction, color), color, f"a prediction with {color}")
        ramp = Ramp.ENTROPY if color in ("entropy", "variance") else Ramp.CONFIDENCE
        scale = None if color == "variance" else ColorScale(ramp, 0.0, 1.0, "")
        return value_scene(cloud, values, title=title, subject=color, scale=scale, ramp=ramp)
    if color == "features":
        features = _needed(prediction, color, "prediction").features
        return feature_scene(cloud, _needed(features, color, "features"), title=title)
    if color == "rgb":
        return color_scene(
            cloud, _needed(cloud.color, color, "color"), title=title, subject="colour"
        )
    if color == "intensity":
        values = _needed(cloud.intensity, color, "intensity")
        return value_scene(cloud, values, title=title, subject=color, ramp=Ramp.INTENSITY)
    if color == "height":
        height = cloud.coord[:, 2].astype(np.float64) + cloud.origin[2]
        return value_scene(cloud, height, title=title, subject=color, ramp=Ramp.HEIGHT, unit="m")
    if color == "instance":
        ids = _needed(cloud.instance, color, "instance")
        ids = np.where(ids > 0, ids, -1)  # 0 is "no instance" in every format that has them
        return id_scene(cloud, ids, title=title, subject=color, word="instance")
    raise ValueError(f"color must be one of {', '.join(COLORS)}; found {color!r}")


def available(
    cloud: PointCloud, prediction: Prediction | None = None, labels: LabelSet | None = None
) -> tuple[str, ...]:
    """Name the colours that `make_scene` can give here, the default one first."""
    known = labels if labels is not None or prediction is None else prediction.labels
    comparable = (
        prediction is not None
        and known is not None
        and cloud.label is not None
        and known.names == prediction.labels.names
    )
    here = {
        "label": cloud.label is not None,
        "prediction": prediction is not None,
        "error": comparable,
        **{name: measure(cloud, prediction, name) is not None for name in MEASURES},
        "features": prediction is not None and prediction.features is not None,
        "rgb": cloud.color is not None,
        "intensity": cloud.intensity is not None,
        "height": True,
        "instance": cloud.instance is not None and bool((cloud.instance > 0).any()),
    }
    if prediction is not None and prediction.variance is not None:
        here["variance"] = bool(prediction.variance.any())  # 0 where there was one view
    first = _default_color(cloud, prediction)
    return (first, *(color for color in COLORS if here[color] and color != first))


def measure(cloud: PointCloud, prediction: Prediction | None, name: str) -> np.ndarray | None:
    """Give how sure a prediction is, (n,): one of `MEASURES`; from the file's columns without one.

    Confidence, entropy and margin follow from columns `probability_CLASS` where they are all that
    the file has.
    """
    if prediction is not None:
        return prediction.column(name)
    if name in cloud.extra:
        return np.asarray(cloud.extra[name])
    known = chances(cloud)
    if known is None or name == "variance":
        return None
    share = np.stack(known.columns, axis=1).astype(np.float32)
    if name == "entropy":
        logs = np.log(share, out=np.zeros_like(share), where=share > 0)
        return -(share * logs).sum(axis=1) / np.float32(np.log(len(known.columns)))
    second, first = np.partition(share, -2, axis=1)[:, -2:].T
    return first if name == "confidence" else first - second


def chances(cloud: PointCloud, prediction: Prediction | None = None) -> Chances | None:
    """Give the classes' probabilities: a prediction's, or columns `probability_CLASS` of a file."""
    if prediction is not None:
        share = prediction.probability
        return None if share is None else Chances(prediction.labels.names, tuple(share.T))
    columns = {
        key.removeprefix(PROBABILITY): column
        for key, column in cloud.extra.items()
        if key.startswith(PROBABILITY)
    }
    return Chances(tuple(columns), tuple(columns.values())) if len(columns) > 1 else None


def _default_color(cloud: PointCloud, prediction: Prediction | None) -> str:
    if prediction is not None:
        return "prediction"
    for color, column in (
        ("label", cloud.label),
        ("rgb", cloud.color),
        ("intensity", cloud.intensity),
    ):
        if column is not None:
            return color
    return "height"


def _needed(value: T | None, color: str, name: str) -> T:
    if value is None:
        what = (
            f"`pctx predict --{color}` writes it" if color in MEASURES else "choose another color"
        )
        raise ValueError(f"color {color!r} needs {name}, and there is none; {what}")
    return value


def _label_scene(cloud: PointCloud, labels: LabelSet | None, title: str) -> Scene:
    raw = _needed(cloud.label, "label", "label")
    # ASPRS reserves 19 to 63: a file that has one of these is of other classes.
    ours = not bool(((raw > 18) & (raw < 64)).any())
    if labels is None and ours and LAS_FIELDS.issubset(cloud.extra):
        labels = palette.ASPRS
    if labels is None:
        return id_scene(cloud, raw, title=title, subject="label")
    label, strange = _encode(raw, labels)
    label = np.where(strange >= 0, len(labels) + strange, label)
    codes = np.unique(raw[strange >= 0])
    names = [*labels.names, *(f"id {code} (no class)" for code in codes.tolist())]
    colors = np.concatenate([np.array(labels.colors, np.uint8), palette.id_colors(codes)])
    numbers = [*range(len(labels)), *(None for _ in codes)]
    return entry_scene(cloud, label, names, colors, title=title, subject="label", numbers=numbers)


def _encode(raw: np.ndarray, labels: LabelSet) -> tuple[np.ndarray, np.ndarray]:
    """Give class numbers, -1 for none, and which of the ids in no class at all, -1 if in one."""
    known = np.array([code for ids in labels.raw for code in ids] + list(labels.ignore))
    missing = ~np.isin(raw, known)
    label = np.full(len(raw), IGNORE_INDEX, dtype=np.int64)
    label[~missing] = labels.encode(raw[~missing])
    strange = np.full(len(raw), -1, dtype=np.int64)
    strange[missing] = np.unique(raw[missing], return_inverse=True)[1].reshape(-1)
    return label, strange


def _class_scene(
    cloud: PointCloud, label: np.ndarray, labels: LabelSet, *, title: str, subject: str
) -> Scene:
    palette.class_colors(label, labels)  # refuses numbers that are no class
    colors = np.array(labels.colors, np.uint8)
    return entry_scene(cloud, label, labels.names, colors, title=title, subject=subject)


def _error_scene(
    cloud: PointCloud, prediction: Prediction, labels: LabelSet | None, title: str
) -> Scene:
    if labels is None or labels.names != prediction.labels.names:
        raise ValueError(
            "color 'error' compares the same classes, but the labels and the prediction "
            f"have different ones: {', '.join(labels.names if labels else ())} / "
            f"{', '.join(prediction.labels.names)}"
        )
    truth, _ = _encode(_needed(cloud.label, "error", "label"), labels)
    judged = np.where(truth == IGNORE_INDEX, 2, np.where(truth == prediction.label, 0, 1))
    colors = np.array([palette.RIGHT, palette.WRONG, palette.NOT_COUNTED], np.uint8)
    names = ("right", WRONG, "not counted")
    return entry_scene(cloud, judged, names, colors, title=title, subject="error")
