"""Exhibit: a cloud on show, its layers made when they are asked for, and what a point is.

n points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pctx.data.labels import LabelSet
from pctx.data.prediction import Prediction
from pctx.geometry.points import PointCloud
from pctx.vis.fields import WRONG, available, make_scene
from pctx.vis.scene import Scene

LIKELIEST = 5
"""Classes of which a point's probabilities are told."""

MAX_PLACES = 200
"""Places of errors to jump to."""

_CELLS = 60  # along a cloud's longest side: errors in one cell are one place


@dataclass(frozen=True, kw_only=True)
class Focus:
    """What a layer is asked about, where it is about a point.

    Attributes:
        row: of the cloud; None for the layer's own choice.
        depth: number of a layer of the model; None for the layer's own choice.
        head: of its attention; None for the mean of all.
    """

    row: int | None = None
    depth: int | None = None
    head: int | None = None


Layer = Callable[[Focus], Scene]


@dataclass(frozen=True, kw_only=True, eq=False)
class Exhibit:
    """A cloud and the ways to colour it.

    Attributes:
        title: usually the file's name.
        cloud: all its points, or a selection.
        layers: by name, the one to begin with first.
        prediction: of the same points, or None.
        labels: the classes of the cloud's raw ids, or None.
        step: of the file's points every how manyth is in the cloud.
        note: what is to be known of the selection.
        whole: reads every field of the file's point of a number, where `cloud` lacks some.
    """

    title: str
    cloud: PointCloud
    layers: Mapping[str, Layer]
    prediction: Prediction | None = None
    labels: LabelSet | None = None
    step: int = 1
    note: str = ""
    whole: Callable[[int], PointCloud] | None = None

    def scene(self, name: str, focus: Focus | None = None) -> Scene:
        """Make a layer.

        Raises:
            ValueError: there is no such layer, or it cannot be made.
        """
        if name not in self.layers:
            raise ValueError(f"color must be one of {', '.join(self.layers)}; found {name!r}")
        scene = self.layers[name](focus or Focus())
        notes = "; ".join(part for part in (self.note, scene.note) if part)
        return replace(scene, note=notes, step=self.step)

    def describe(self, row: int) -> list[str]:
        """Say what is known of the point in a row of the cloud: its fields, its probabilities.

        Raises:
            ValueError, OSError: its fields have to be read from the file, and cannot be.
        """
        point = (
            self.whole(row * self.step) if self.whole else self.cloud.select(slice(row, row + 1))
        )
        x, y, z = self.cloud.coord[row] + self.cloud.origin
        lines = [f"point {row * self.step:,}", f"x {x:.3f}  y {y:.3f}  z {z:.3f}"]
        if self.cloud.label is not None:
            lines.append(f"label {_named(int(self.cloud.label[row]), self.labels)}")
        if self.prediction is not None:
            lines += _said(self.prediction, row)
        for name in ("instance", "intensity", "color", "normal"):
            column = getattr(point, name)
            if column is not None:
                lines.append(f"{name} {_shown(column[0])}")
        lines += [f"{name} {_shown(column[0])}" for name, column in point.extra.items()]
        return lines


Album = Sequence[tuple[str, Callable[[], Exhibit]]]
"""Titles, and what opens the exhibit behind each: files are read when one comes to them."""


def make_exhibit(
    cloud: PointCloud,
    prediction: Prediction | None = None,
    *,
    color: str | None = None,
    labels: LabelSet | None = None,
    title: str = "",
) -> Exhibit:
    """Give a cloud with a layer for each colour that it and its prediction have.

    Args:
        cloud: any points.
        prediction: of the same points, or None.
        color: the layer to begin with; None takes the default of `make_scene`.
        labels: the classes of the cloud's raw ids; None takes the prediction's.
        title: usually the file's name.

    Raises:
        ValueError: `color` is unknown, or needs what is not there.
    """

    def layer(name: str) -> Layer:
        return lambda _: make_scene(cloud, prediction, color=name, labels=labels, title=title)

    here = available(cloud, prediction, labels)
    if color is not None and color not in here:
        make_scene(cloud, prediction, color=color, labels=labels)  # says what is missing
    first = color or here[0]
    return Exhibit(
        title=title,
        cloud=cloud,
        layers={name: layer(name) for name in dict.fromkeys((first, *here))},
        prediction=prediction,
        labels=labels if labels is not None or prediction is None else prediction.labels,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Places:
    """Where to look, the largest first.

    Attributes:
        center: (k, 3) float32, in the frame of the scene.
        count: (k,) points.
    """

    center: np.ndarray = field(default_factory=lambda: np.zeros((0, 3), np.float32))
    count: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


def error_places(scene: Scene) -> Places:
    """Find where the wrong points of a scene of errors lie together, up to `MAX_PLACES` places."""
    wrong = next((i for i, line in enumerate(scene.legend) if line.name == WRONG), None)
    if wrong is None or scene.entry is None:
        return Places()
    coord = scene.coord[scene.entry == wrong]
    edge = max(float(np.ptp(scene.coord, axis=0).max()) / _CELLS, 1e-3)
    cell = np.floor(coord / edge).astype(np.int64)
    cells, member, count = np.unique(cell, axis=0, return_inverse=True, return_counts=True)
    left = np.ones(len(cells), dtype=bool)
    centers: list[np.ndarray] = []
    counts: list[int] = []
    for i in np.argsort(-count, kind="stable"):
        if not left[i] or len(centers) == MAX_PLACES:
            continue
        near = (np.abs(cells - cells[i]) <= 1).all(axis=1) & left
        left &= ~near
        centers.append(coord[member.reshape(-1) == i].mean(axis=0))
        counts.append(int(count[near].sum()))
    return Places(center=np.array(centers, np.float32).reshape(-1, 3), count=np.array(counts))


def _named(raw: int, labels: LabelSet | None) -> str:
    if labels is None:
        return str(raw)
    for name, ids in zip(labels.names, labels.raw, strict=True):
        if raw in ids:
            return f"{raw} ({name})"
    return f"{raw} ({'ignored' if raw in labels.ignore else 'no class'})"


def _said(prediction: Prediction, row: int) -> list[str]:
    label, names = int(prediction.label[row]), prediction.labels.names
    lines = [f"predicted {names[label] if label >= 0 else 'nothing'}"]
    if prediction.probability is not None:
        share = prediction.probability[row]
        best = np.argsort(-share, kind="stable")[:LIKELIEST]
        lines += [f"  {names[i]} {share[i]:.3f}" for i in best]
    if prediction.entropy is not None:
        lines.append(f"entropy {abs(prediction.entropy[row]):.3f}")
    return lines


def _shown(value: np.ndarray | np.generic) -> str:
    if np.ndim(value) == 0:
        return f"{value:.6g}" if np.asarray(value).dtype.kind == "f" else f"{value}"
    return " ".join(_shown(part) for part in np.asarray(value).reshape(-1)[:16])
