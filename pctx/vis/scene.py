"""Scene: a cloud made ready to look at: recentred points, their colours, what the colours say.

n points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeVar, get_args

import numpy as np

from pctx.data.labels import IGNORE_INDEX, LabelSet
from pctx.data.prediction import Prediction
from pctx.geometry.points import PointCloud
from pctx.vis import palette
from pctx.vis.palette import RGB, Ramp

ColorBy = Literal[
    "label", "prediction", "error", "entropy", "rgb", "intensity", "height", "instance"
]
COLORS: tuple[str, ...] = get_args(ColorBy)
T = TypeVar("T")

ROBUST_RANGE = (2.0, 98.0)
"""Percentiles that a ramp spans: a few stray values do not wash out the rest."""

CENTER_SAMPLE = 100_000
"""Points whose median becomes the origin."""

FAR = 4.0
"""Widths of the middle 95 per cent beyond which a point is too far off for a window or a page."""

LAS_FIELDS = frozenset(("number_of_returns", "point_source_id", "return_number"))
"""Columns by which a LAS file is known; its classes have names without a card."""

MAX_LEGEND = 32
"""Lines of a legend of nameless ids; beyond, their number is given instead."""


class LegendEntry(NamedTuple):
    """A line of the legend: what a colour means, and its share of the points in [0, 1]."""

    name: str
    color: RGB
    share: float


class ColorScale(NamedTuple):
    """What a ramp means: the values at its ends and their unit ("" for none)."""

    ramp: Ramp
    low: float
    high: float
    unit: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene:
    """Points and colours, with the words beside them. Pictures, pages and windows show scenes.

    Attributes:
        coord: (n, 3) float32, metres, finite; the origin is their median, more or less.
        color: (n, 3) uint8.
        title: usually the file.
        subject: what the colours show.
        legend: in order of class number; absent classes are left out. Empty with a scale.
        entry: (n,) int64, the legend line of each point; None where there is no legend.
        scale: of measured values; None for classes and ids.
        shift: (3,) float64; coord + shift is in the file's frame.
        note: one more remark, such as points left out.
    """

    coord: np.ndarray
    color: np.ndarray
    title: str = ""
    subject: str = ""
    legend: tuple[LegendEntry, ...] = ()
    entry: np.ndarray | None = None
    scale: ColorScale | None = None
    shift: np.ndarray = field(default_factory=lambda: np.zeros(3))
    note: str = ""

    def __post_init__(self) -> None:
        n = len(self.coord)
        if self.coord.shape != (n, 3) or self.color.shape != (n, 3):
            raise ValueError(
                f"coord {self.coord.shape} and color {self.color.shape} must both be (n, 3)"
            )
        if self.entry is not None and self.entry.shape != (n,):
            raise ValueError(f"entry must be ({n},), found {self.entry.shape}")

    def __len__(self) -> int:
        return len(self.coord)

    def thin(self, limit: int) -> Scene:
        """Keep at most `limit` points, evenly spread over the file's order, and note it."""
        n = len(self)
        if n <= limit:
            return self
        keep = np.linspace(0, n - 1, limit).astype(np.int64)
        return self._kept(keep, f"{limit:,} of {n:,} points shown")

    def trim(self) -> Scene:
        """Leave out points so far off that the rest would be a dot, and note it."""
        if len(self) == 0:
            return self
        low, high = np.percentile(self.coord, (2.5, 97.5), axis=0)
        reach = FAR * max(float((high - low).max()), 1e-6)
        near = ((self.coord >= low - reach) & (self.coord <= high + reach)).all(axis=1)
        if near.all():
            return self
        return self._kept(near, f"{int((~near).sum()):,} far points left out")

    def _kept(self, keep: np.ndarray, note: str) -> Scene:
        return replace(
            self,
            coord=self.coord[keep],
            color=self.color[keep],
            entry=None if self.entry is None else self.entry[keep],
            note="; ".join(part for part in (self.note, note) if part),
        )


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
    if color == "label":
        return _label_scene(cloud, known, title)
    if color == "prediction":
        pred = _needed(prediction, color, "prediction")
        return _class_scene(cloud, pred.label, pred.labels, title=title, subject=color)
    if color == "error":
        return _error_scene(cloud, _needed(prediction, color, "prediction"), known, title)
    if color == "entropy":
        values = _needed(_needed(prediction, color, "prediction").entropy, color, "entropy")
        scale = ColorScale(Ramp.ENTROPY, 0.0, 1.0, "")
        return value_scene(cloud, values, title=title, subject="entropy", scale=scale)
    if color == "rgb":
        return _scene(cloud, _needed(cloud.color, color, "color"), title=title, subject="colour")
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


def id_scene(
    cloud: PointCloud, ids: np.ndarray, *, title: str = "", subject: str = "", word: str = "id"
) -> Scene:
    """Colour whole numbers (n,) such as instances, windows or raw ids; negative ones are grey."""
    value, entry = np.unique(ids, return_inverse=True)
    names = [f"{word} {v}" if v >= 0 else f"no {word}" for v in value.tolist()]
    if len(value) > MAX_LEGEND:
        color = palette.id_colors(ids)
        note = f"{int((value >= 0).sum()):,} {word}s"
        return _scene(cloud, color, title=title, subject=subject, note=note)
    return _entry_scene(
        cloud, entry.reshape(-1), names, palette.id_colors(value), title=title, subject=subject
    )


def value_scene(
    cloud: PointCloud,
    values: np.ndarray,
    *,
    title: str = "",
    subject: str = "",
    ramp: Ramp = Ramp.HEIGHT,
    unit: str = "",
    scale: ColorScale | None = None,
) -> Scene:
    """Colour measured values (n,) along a ramp; not-a-number is grey.

    Args:
        cloud: any points.
        values: one a point.
        title: usually the file's name.
        subject: what the values are.
        ramp: the colours, where no scale is given.
        unit: of the values, where no scale is given.
        scale: what the ramp spans; None spans the 2nd to the 98th percentile.
    """
    if scale is None:
        seen = values[cloud.finite & np.isfinite(values)]
        low, high = np.percentile(seen.astype(np.float64), ROBUST_RANGE) if len(seen) else (0, 0)
        scale = ColorScale(ramp, float(low), float(high), unit)
    width = scale.high - scale.low
    unit_values = (values - scale.low) / width if width > 0 else np.full(len(values), 0.5)
    color = palette.ramp_colors(np.where(np.isfinite(values), unit_values, np.nan), scale.ramp)
    return _scene(cloud, color, title=title, subject=subject, scale=scale)


def same_points(scenes: Sequence[Scene]) -> bool:
    """Tell whether all scenes colour the very same points."""
    first = scenes[0]
    return all(
        s.coord is first.coord or np.array_equal(s.coord, first.coord) for s in scenes[1:]
    ) and all(np.array_equal(s.shift, first.shift) for s in scenes[1:])


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
        raise ValueError(f"color {color!r} needs {name}, and there is none; choose another color")
    return value


def _label_scene(cloud: PointCloud, labels: LabelSet | None, title: str) -> Scene:
    raw = _needed(cloud.label, "label", "label")
    if labels is None and LAS_FIELDS.issubset(cloud.extra):
        labels = palette.ASPRS
    if labels is None:
        return id_scene(cloud, raw, title=title, subject="label")
    label, strange = _encode(raw, labels)
    label = np.where(strange >= 0, len(labels) + strange, label)
    codes = np.unique(raw[strange >= 0])
    names = [*labels.names, *(f"id {code} (no class)" for code in codes.tolist())]
    colors = np.concatenate([np.array(labels.colors, np.uint8), palette.id_colors(codes)])
    return _entry_scene(cloud, label, names, colors, title=title, subject="label")


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
    return _entry_scene(cloud, label, labels.names, colors, title=title, subject=subject)


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
    names = ("right", "wrong", "not counted")
    return _entry_scene(cloud, judged, names, colors, title=title, subject="error")


def _entry_scene(
    cloud: PointCloud,
    number: np.ndarray,
    names: Sequence[str],
    colors: np.ndarray,
    *,
    title: str,
    subject: str,
) -> Scene:
    """Colour each point by the line of names and colours it has; -1 is grey and comes last."""
    table = np.concatenate([colors, np.array([palette.UNLABELED], np.uint8)])
    every = [*names, "unlabelled"]
    number = np.where(number < 0, len(names), number)
    seen = number[cloud.finite]
    counts = np.bincount(seen, minlength=len(every))
    present = np.flatnonzero(counts)
    legend = tuple(
        LegendEntry(every[i], (r, g, b), counts[i] / len(seen))
        for i, (r, g, b) in zip(present.tolist(), table[present].tolist(), strict=True)
    )
    line = np.zeros(len(every), dtype=np.int64)
    line[present] = np.arange(len(present))
    scene = _scene(cloud, table[number], title=title, subject=subject)
    return replace(scene, legend=legend, entry=line[seen])


def _scene(
    cloud: PointCloud,
    color: np.ndarray,
    *,
    title: str,
    subject: str,
    scale: ColorScale | None = None,
    note: str = "",
) -> Scene:
    finite = cloud.finite
    coord = cloud.coord[finite].astype(np.float64)
    sample = coord[:: max(1, len(coord) // CENTER_SAMPLE)]
    center = np.median(sample, axis=0) if len(sample) else np.zeros(3)
    if lost := len(cloud) - len(coord):
        lost_note = f"{lost:,} points without a position left out"
        note = f"{note}; {lost_note}" if note else lost_note
    return Scene(
        coord=(coord - center).astype(np.float32),
        color=color[finite],
        title=title,
        subject=subject,
        scale=scale,
        shift=cloud.origin + center,
        note=note,
    )
