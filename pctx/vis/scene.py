"""Scene: a cloud made ready to look at: recentred points, their colours, what the colours say.

n points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from pctx.geometry.points import PointCloud
from pctx.vis import palette
from pctx.vis.palette import RGB, Ramp

ROBUST_RANGE = (2.0, 98.0)
"""Percentiles that a ramp spans: a few stray values do not wash out the rest."""

CENTER_SAMPLE = 100_000
"""Points whose median becomes the origin."""

FAR = 4.0
"""Widths of the middle 95 per cent beyond which a point is too far off for a window or a page."""

MAX_LEGEND = 32
"""Lines of a legend of nameless ids; beyond, their number is given instead."""

_BLOCK = 100_000  # rows of probabilities that are sorted at a time


class LegendEntry(NamedTuple):
    """A line of the legend: what a colour means, and how much of the cloud has it.

    Attributes:
        name: of the class or id.
        color: as in every other picture of the class.
        share: of the points, in [0, 1].
        points: their number.
        number: of the class or id; None for none.
    """

    name: str
    color: RGB
    share: float
    points: int = 0
    number: int | None = None


class ColorScale(NamedTuple):
    """What a ramp means.

    Attributes:
        low: the value at its start.
        high: the value at its end.
        unit: of the values, "" for none.
        ends: words to show in place of the values.
    """

    ramp: Ramp
    low: float
    high: float
    unit: str
    ends: tuple[str, str] | None = None


class Inside(NamedTuple):
    """Where in a model a scene looks.

    Attributes:
        depth: number of the layer.
        depths: layers there are.
        heads: heads of the layer.
    """

    depth: int
    depths: int
    heads: int


class Chances(NamedTuple):
    """What a prediction gives each class.

    Attributes:
        names: of the classes.
        columns: the probability of each, a row for every point of the cloud.
    """

    names: tuple[str, ...]
    columns: tuple[np.ndarray, ...]

    def likeliest(self, row: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Give the k likeliest classes of some rows (m,) of the cloud, the first one first.

        Returns:
            Their numbers (m, k) uint16, and their probabilities (m, k) uint8, 255 being 1.
        """
        k = min(k, len(self.names))
        number = np.zeros((len(row), k), np.uint16)
        share = np.zeros((len(row), k), np.uint8)
        for start in range(0, len(row), _BLOCK):
            part = slice(start, start + _BLOCK)
            rows = np.stack([column[row[part]] for column in self.columns], axis=1)
            best = np.argsort(-rows, axis=1, kind="stable")[:, :k]
            number[part] = best
            value = np.nan_to_num(np.take_along_axis(rows, best, axis=1))
            share[part] = np.round(np.clip(value, 0, 1) * 255)
        return number, share


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene:
    """Points and colours, with the words beside them. Pictures, pages and windows show scenes.

    Attributes:
        coord: (n, 3) float32, metres, finite; the origin is their median, more or less.
        color: (n, 3) uint8.
        title: usually the file.
        subject: what the colours show.
        legend: in order of class number; absent classes are left out. Empty with a scale.
        entry: (n,) int32, the legend line of each point; None where there is no legend.
        scale: of measured values; None for classes and ids.
        value: (n,) float32, the measured values; None without a scale.
        row: (n,) int64, the number of each point in the cloud; None where the scene is no cloud's.
        step: of the file's points every how manyth is in the cloud.
        shift: (3,) float64; coord + shift is in the file's frame.
        note: one more remark, such as points left out.
        mark: (3,) a place to point at, in the frame of coord; None for none.
        inside: where in a model it looks; None where it does not.
        chances: what the classes' probabilities are, by `row`; None where they are not known.
    """

    coord: np.ndarray
    color: np.ndarray
    title: str = ""
    subject: str = ""
    legend: tuple[LegendEntry, ...] = ()
    entry: np.ndarray | None = None
    scale: ColorScale | None = None
    value: np.ndarray | None = None
    row: np.ndarray | None = None
    step: int = 1
    shift: np.ndarray = field(default_factory=lambda: np.zeros(3))
    note: str = ""
    mark: np.ndarray | None = None
    inside: Inside | None = None
    chances: Chances | None = None

    def __post_init__(self) -> None:
        n = len(self.coord)
        if self.coord.shape != (n, 3) or self.color.shape != (n, 3):
            raise ValueError(
                f"coord {self.coord.shape} and color {self.color.shape} must both be (n, 3)"
            )
        for name in ("entry", "value", "row"):
            column = getattr(self, name)
            if column is not None and column.shape != (n,):
                raise ValueError(f"{name} must be ({n},), found {column.shape}")

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
        def cut(column: np.ndarray | None) -> np.ndarray | None:
            return None if column is None else column[keep]

        return replace(
            self,
            coord=self.coord[keep],
            color=self.color[keep],
            entry=cut(self.entry),
            value=cut(self.value),
            row=cut(self.row),
            note="; ".join(part for part in (self.note, note) if part),
        )


def color_scene(
    cloud: PointCloud,
    color: np.ndarray,
    *,
    title: str = "",
    subject: str = "",
    scale: ColorScale | None = None,
    note: str = "",
) -> Scene:
    """Give each point the colour (n, 3) uint8 it has; those without a position are left out."""
    finite = cloud.finite
    coord = cloud.coord
    if not finite.all():
        coord, color = coord[finite], color[finite]
    sample = coord[:: max(1, len(coord) // CENTER_SAMPLE)]
    center = np.median(sample, axis=0) if len(sample) else np.zeros(3, np.float32)
    if lost := len(cloud) - len(coord):
        lost_note = f"{lost:,} points without a position left out"
        note = f"{note}; {lost_note}" if note else lost_note
    return Scene(
        coord=coord - center,
        color=color,
        title=title,
        subject=subject,
        scale=scale,
        row=np.flatnonzero(finite),
        shift=cloud.origin + center,
        note=note,
    )


def entry_scene(
    cloud: PointCloud,
    number: np.ndarray,
    names: Sequence[str],
    colors: np.ndarray,
    *,
    title: str = "",
    subject: str = "",
    numbers: Sequence[int | None] | None = None,
) -> Scene:
    """Colour each point by the line (n,) of names and colours it has; -1 is grey and comes last.

    Args:
        cloud: any points.
        number: (n,) lines of `names`, from 0.
        names: of the classes or ids.
        colors: theirs, uint8.
        title: usually the file's name.
        subject: what the colours show.
        numbers: what stands before each name in a legend; None takes its place among the names.
    """
    table = np.concatenate([colors, np.array([palette.UNLABELED], np.uint8)])
    every = [*names, "unlabelled"]
    known = [*(range(len(names)) if numbers is None else numbers), None]
    number = np.where(number < 0, len(names), number)
    seen = number[cloud.finite]
    counts = np.bincount(seen, minlength=len(every))
    present = np.flatnonzero(counts)
    legend = tuple(
        LegendEntry(every[i], (r, g, b), counts[i] / len(seen), int(counts[i]), known[i])
        for i, (r, g, b) in zip(present.tolist(), table[present].tolist(), strict=True)
    )
    line = np.zeros(len(every), dtype=np.int32)
    line[present] = np.arange(len(present))
    scene = color_scene(cloud, table[number], title=title, subject=subject)
    return replace(scene, legend=legend, entry=line[seen])


def id_scene(
    cloud: PointCloud, ids: np.ndarray, *, title: str = "", subject: str = "", word: str = "id"
) -> Scene:
    """Colour whole numbers (n,) such as instances, windows or raw ids; negative ones are grey."""
    value, entry = np.unique(ids, return_inverse=True)
    names = [f"{word} {v}" if v >= 0 else f"no {word}" for v in value.tolist()]
    if len(value) > MAX_LEGEND:
        color = palette.id_colors(ids)
        note = f"{int((value >= 0).sum()):,} {word}s"
        return color_scene(cloud, color, title=title, subject=subject, note=note)
    return entry_scene(
        cloud,
        entry.reshape(-1),
        names,
        palette.id_colors(value),
        title=title,
        subject=subject,
        numbers=[None] * len(value),  # the names say them
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
    scene = color_scene(cloud, color, title=title, subject=subject, scale=scale)
    return replace(scene, value=values[cloud.finite].astype(np.float32))


def same_points(scenes: Sequence[Scene]) -> bool:
    """Tell whether all scenes colour the very same points."""
    first = scenes[0]
    return all(
        s.coord is first.coord or np.array_equal(s.coord, first.coord) for s in scenes[1:]
    ) and all(np.array_equal(s.shift, first.shift) for s in scenes[1:])
