"""What `pctx view` puts on show: the files, what is predicted of them, and their layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pctx.cli.attention import Question, attention_scenes
from pctx.cli.config import UsageError
from pctx.cli.structure import STRUCTURES, Structure, model_scenes, structure_scenes

if TYPE_CHECKING:
    from pctx.data.labels import LabelSet
    from pctx.data.prediction import Prediction
    from pctx.geometry.points import PointCloud
    from pctx.inference.predictor import Predictor
    from pctx.vis.exhibit import Album, Exhibit, Focus, Layer
    from pctx.vis.scene import Scene

LOOKED_INTO = ("attention",)
"""What --color takes from inside a model."""

PREDICTED = ("prediction", "error", "confidence", "entropy", "margin", "variance", "features")
"""What --color takes from a prediction."""

_FIELDS = MappingProxyType({"rgb": "color", "intensity": "intensity"})


@dataclass(frozen=True, kw_only=True)
class Order:
    """What was asked for.

    Attributes:
        colors: by name, in order; none for the default.
        model: a model file.
        predicted: a file or folder of predictions.
        labels: the classes of the raw ids.
        structures: how order and windows are made, without a model.
        question: what the attention layer asks.
        views: forward passes a tile.
        limit: points of a file that are read, where all of them are not needed.
        every_layer: whether more than the colors asked for may be shown, as in a window.
    """

    colors: tuple[str, ...]
    model: Path | None
    predicted: Path | None
    labels: LabelSet | None
    structures: Mapping[str, Structure]
    question: Question
    views: int
    limit: int
    every_layer: bool

    @cached_property
    def predictor(self) -> Predictor | None:
        """The model, read once; None where nothing predicted is asked for."""
        inside = (*STRUCTURES, *LOOKED_INTO)
        if self.model is None or (self.colors and set(self.colors) <= set(inside)):
            return None
        from pctx.inference.predictor import Predictor  # it is slow to load

        return Predictor(self.model, views=self.views, features="features" in self.colors)

    def album(self, inputs: list[Path], failures: list[str]) -> Album:
        """Pair every file with what opens it; inputs that cannot be are named in `failures`.

        Raises:
            FileNotFoundError, ValueError: the model cannot be read, or lacks what is asked for.
        """
        if self.predictor is None and self.model is not None:
            for color in set(self.colors) & set(STRUCTURES):
                self.structure(color)
        if "attention" in self.colors:
            _ = self._attention

        def opener(file: Path, below: Path, title: str) -> Callable[[], Exhibit]:
            return lambda: self.open(file, below, title)

        files = []
        for file, below in find_files(inputs, failures):
            if file.exists():
                files.append((file, below))
            else:  # it would be missed in silence where a picture of the first is all that is drawn
                failures.append(f"{file}: no such file")
        times = Counter(file.name for file, _ in files)
        titles = [f.name if times[f.name] == 1 else str(f) for f, _ in files]
        return [(t, opener(*file, t)) for file, t in zip(files, titles, strict=True)]

    def open(self, file: Path, below: Path, title: str) -> Exhibit:
        """Read a file, predict it if a model was given, and name its layers.

        Args:
            file: a scan.
            below: its place below the folder that was named, or its name.
            title: what it is called.

        Raises:
            ValueError, OSError: it cannot be read, or has not what was asked for.
        """
        from pctx.data.io.preview import read_preview
        from pctx.vis.exhibit import make_exhibit

        whole = self.model is not None or self.predicted is not None
        shown = _FIELDS if self.every_layer else self.colors
        needed = [_FIELDS[color] for color in shown if color in _FIELDS]
        preview = read_preview(file, 2**62 if whole else self.limit, needed)
        cloud, labels = preview.cloud, self.labels
        prediction: Prediction | None = None
        if self.predictor is not None:
            prediction = self.predictor(cloud)
        elif self.predicted is not None:
            prediction, labels = _read_prediction(self.predicted, file, below, cloud, labels)
        fields = (color for color in self.colors if color not in (*STRUCTURES, *LOOKED_INTO))
        exhibit = make_exhibit(
            cloud, prediction, color=next(fields, None), labels=labels, title=title
        )
        for color in fields:
            make_exhibit(cloud, prediction, color=color, labels=labels)  # says what is missing
        layers = {**exhibit.layers, **self._more_layers(cloud, title)}
        chosen = {color: layers[color] for color in self.colors}
        return replace(
            exhibit,
            layers={**chosen, **layers},
            step=preview.step,
            note=preview.note,
            whole=preview.whole,
        )

    def _more_layers(self, cloud: PointCloud, title: str) -> dict[str, Layer]:
        """Give the layers of order, windows, features and attention, made when asked for."""
        layers = {color: self._stepped(color, cloud, title) for color in STRUCTURES}
        if self.model is not None:
            ask = self._attention
            layers["attention"] = lambda focus: ask(cloud, title, focus)[0]
            if "features" not in self.colors and self.predictor is not None:
                layers["features"] = lambda _: self._features(cloud, title)
        return layers

    def _features(self, cloud: PointCloud, title: str) -> Scene:
        from pctx.inference.predictor import Predictor
        from pctx.vis.fields import make_scene

        assert self.model is not None
        prediction = Predictor(self.model, features=True)(cloud)
        return make_scene(cloud, prediction, color="features", title=title)

    @cached_property
    def _attention(self) -> Callable[[PointCloud, str, Focus], list[Scene]]:
        assert self.model is not None
        return attention_scenes(self.question, self.model)

    def _stepped(self, color: str, cloud: PointCloud, title: str) -> Layer:
        """Give a layer of several scenes, such as a curve each, of which the depth chooses one."""
        scenes: list[Scene] = []

        def layer(focus: Focus) -> Scene:
            from pctx.vis.scene import Inside

            if not scenes:
                scenes.extend(self.structure(color)(cloud, title))
            depth = (focus.depth or 0) % len(scenes)
            inside = Inside(depth, len(scenes), 0) if len(scenes) > 1 else None
            return replace(scenes[depth], inside=inside)

        return layer

    def structure(self, color: str) -> Callable[[PointCloud, str], list[Scene]]:
        """Give what makes the scenes of order or window."""
        if self.model is not None:
            return model_scenes(color, self.model)
        return structure_scenes(self.structures[color])


def scenes_of(exhibit: Exhibit, colors: tuple[str, ...]) -> Iterator[Scene]:
    """Make the scenes for a picture or a page, all of a layer that has several."""
    from pctx.vis.exhibit import Focus

    for color in colors or (next(iter(exhibit.layers)),):
        first = exhibit.scene(color)
        yield first
        if color in STRUCTURES and first.inside is not None:
            for depth in range(1, first.inside.depths):
                yield exhibit.scene(color, Focus(depth=depth))


def find_files(inputs: list[Path], failures: list[str]) -> Iterator[tuple[Path, Path]]:
    """Give the scans among files and folders, each with its place below its folder."""
    from pctx.data.io.arrays import is_scan_folder
    from pctx.data.io.formats import find_scans

    for source in inputs:
        if not source.is_dir() or is_scan_folder(source):
            yield source, Path(source.name)
            continue
        scans = find_scans(source)
        if not scans:
            failures.append(f"{source}: no readable scans in this folder")
        for scan in scans:
            yield scan, scan.relative_to(source)


def _read_prediction(
    predicted: Path, file: Path, below: Path, cloud: PointCloud, labels: LabelSet | None
) -> tuple[Prediction, LabelSet]:
    from pctx.data.io.formats import output_suffix
    from pctx.data.io.predicted import as_prediction, read_predicted

    path = predicted
    if predicted.is_dir():
        stem = (
            below.name.removesuffix(".bin").removesuffix(".pcd") if below.suffix == ".bin" else ""
        )
        path = predicted / below.with_name((stem or below.stem) + output_suffix(file))
    found = read_predicted(path, file, len(cloud))
    labels = labels or _labels_of(cloud, found)
    return as_prediction(found, labels), labels


def _labels_of(*clouds: PointCloud) -> LabelSet:
    """Make classes of the raw ids: those of LAS where all are, else one of each id."""
    import numpy as np

    from pctx.data.labels import LabelSet
    from pctx.vis import palette

    raw = [cloud.label for cloud in clouds if cloud.label is not None]
    ids = np.unique(np.concatenate(raw))
    if set(ids.tolist()) <= {code for codes in palette.ASPRS.raw for code in codes}:
        return palette.ASPRS
    colors = palette.id_colors(ids).tolist()
    return LabelSet(
        names=tuple(f"id {code}" for code in ids.tolist()),
        colors=tuple((r, g, b) for r, g, b in colors),
        raw=tuple((code,) for code in ids.tolist()),
    )


def read_labels(card: str | None) -> LabelSet | None:
    """Read the classes of a card by its name or file."""
    from pctx.data.cards import find_card
    from pctx.data.labels import read_card

    return None if card is None else read_card(find_card(card)).labels


def check_colors(
    colors: tuple[str, ...], model: Path | None, predicted: Path | None, known: tuple[str, ...]
) -> None:
    """Refuse unknown names, and those that need a model which was not given.

    Raises:
        UsageError: there is one.
    """
    for color in colors:
        if color not in known:
            raise UsageError(f"--color must be one of {', '.join(known)}; found {color!r}")
        needs_model = color in (*LOOKED_INTO, "features")
        measured = color in ("confidence", "entropy", "margin", "variance")  # may lie in the file
        needs_some = color in PREDICTED and not measured and predicted is None
        if model is None and (needs_model or needs_some):
            other = "" if needs_model else ", or --predicted LABELLED"
            raise UsageError(f"--color {color} needs a model: add --model model.pt{other}")
