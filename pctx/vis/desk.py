"""Desk: answers what the window asks for: files, layers, points, places of errors."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pctx.vis import palette
from pctx.vis.camera import frame
from pctx.vis.exhibit import Album, Exhibit, Focus, error_places
from pctx.vis.scene import ColorScale, Scene, same_points

log = logging.getLogger(__name__)

MAX_POINTS = 4_000_000
"""Points in a window. Open3D takes some 350 bytes a point, and shows nothing beyond some 19 million
(isl-org/Open3D#6732)."""

ERRORS = "error"
"""The layer that tells wrong points from right ones."""

_ASPECT = 1040 / 760  # of the window
_RAMP_STOPS = 17


@dataclass(frozen=True, kw_only=True, eq=False)
class _Shown:
    """What lies in the window."""

    file: int
    exhibit: Exhibit
    layer: str
    scene: Scene


class Desk:
    """The program's side of a window.

    Args:
        album: what there is to see.
        folder: where answers are put.

    Attributes:
        failures: a sentence for each exhibit that could not be opened.
    """

    def __init__(self, album: Album, folder: Path) -> None:
        self.album, self.folder = album, folder
        self.failures: list[str] = []
        self._shown: _Shown | None = None

    def answer(self, line: str) -> None:
        """Answer a request, a line of JSON, by a file in the folder; errors are answers too."""
        request = json.loads(line)
        try:
            told, arrays = self._answers(request)
        except (ValueError, OSError) as error:
            log.warning("%s", error)
            told, arrays = {"words": [str(error)]}, {}
        path = self.folder / f"{request['number']}.npz"
        beside = path.with_suffix(".part")
        with beside.open("wb") as stream:
            np.savez(stream, told=np.array(json.dumps(told)), **arrays)  # type: ignore[arg-type]
        beside.rename(path)

    def _answers(
        self, request: Mapping[str, object]
    ) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        if request["ask"] == "open":
            wanted = request["layer"] if isinstance(request["layer"], str) else None
            return self._open(_number(request["file"]), wanted, bool(request["ahead"]))
        shown = self._shown
        if shown is None:
            raise ValueError("there is no file on show")
        if request["ask"] == "layer":
            return self._layer(shown, str(request["layer"]), self._focus(shown.scene, request))
        if request["ask"] == "errors":
            return self._errors(shown)
        return self._point(shown, _number(request["index"]))

    def _open(
        self, file: int, wanted: str | None, ahead: bool
    ) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        """Open a file, or where it cannot be, the next that can."""
        words = []
        for _ in range(len(self.album)):
            title, make = self.album[file]
            try:
                exhibit = make()
                name = next(iter(exhibit.layers))
                if wanted is not None and wanted in exhibit.layers:
                    name = wanted
                scene = _fit(exhibit.scene(name))
            except (ValueError, OSError) as error:
                words.append(str(error) if f"{title}:" in str(error) else f"{title}: {error}")
                if words[-1] not in self.failures:
                    self.failures.append(words[-1])
                    log.warning("%s", words[-1])
                file = (file + (1 if ahead else -1)) % len(self.album)
                continue
            if scene.note:
                log.warning("%s: %s", title, scene.note)
            told, arrays = self._told(_Shown(file=file, exhibit=exhibit, layer=name, scene=scene))
            if words:
                told["words"] = words
            return told, {**arrays, "coord": scene.coord}
        return {"words": words}, {}

    def _layer(
        self, shown: _Shown, name: str, focus: Focus
    ) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        scene = _fit(shown.exhibit.scene(name, focus))
        same = same_points((shown.scene, scene))
        now = _Shown(file=shown.file, exhibit=shown.exhibit, layer=name, scene=scene)
        told, arrays = self._told(now)
        return told, arrays if same else {**arrays, "coord": scene.coord}

    def _told(self, shown: _Shown) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        self._shown = shown
        scene = shown.scene
        points = "1 point" if len(scene) == 1 else f"{len(scene):,} points"
        camera = frame(scene.coord, aspect=_ASPECT)
        told: dict[str, object] = {
            "title": shown.exhibit.title or "point cloud",
            "file": shown.file,
            "files": len(self.album),
            "about": [line for line in (points, *scene.note.split("; "), scene.subject) if line],
            "layers": list(shown.exhibit.layers),
            "layer": shown.layer,
            "legend": [entry._asdict() for entry in scene.legend],
            "scale": None if scene.scale is None else _scale(scene.scale),
            "camera": {
                "target": camera.target.tolist(),
                "azimuth": camera.azimuth,
                "elevation": camera.elevation,
                "reach": camera.reach,
                "tangent": camera.tangent,
            },
            "mark": None if scene.mark is None else scene.mark.tolist(),
            "height": float(scene.shift[2]),
        }
        if scene.inside is not None:
            told["inside"] = scene.inside._asdict()
        arrays = {"color": scene.color}
        return told, arrays if scene.entry is None else {**arrays, "entry": scene.entry}

    def _focus(self, scene: Scene, request: Mapping[str, object]) -> Focus:
        index, depth, head = (
            None if request[name] is None else _number(request[name])
            for name in ("index", "depth", "head")
        )
        row = None if index is None or scene.row is None else int(scene.row[index])
        return Focus(row=row, depth=depth, head=head)

    def _errors(self, shown: _Shown) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        if ERRORS not in shown.exhibit.layers:
            return {"words": ["errors need a prediction and labels"]}, {}
        places = error_places(_fit(shown.exhibit.scene(ERRORS)))
        table = np.concatenate([places.center, places.count[:, None]], axis=1)
        told: dict[str, object] = {} if len(table) else {"words": ["no point is wrong"]}
        return told, {"places": table.astype(np.float64)}

    def _point(self, shown: _Shown, index: int) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        rows = shown.scene.row
        if rows is None or len(shown.exhibit.cloud) <= rows[index]:
            return {"words": ["nothing is known of this point"]}, {}
        words = shown.exhibit.describe(int(rows[index]))
        log.info("%s: %s", shown.exhibit.title, "; ".join(word.strip() for word in words))
        return {"words": words}, {}


def _fit(scene: Scene) -> Scene:
    """Leave out what a window cannot show: the same points of every layer of a cloud."""
    return scene.trim().thin(MAX_POINTS)


def _scale(scale: ColorScale) -> dict[str, object]:
    stops = palette.ramp_colors(np.linspace(0, 1, _RAMP_STOPS), scale.ramp)
    low, high = scale.ends or (f"{scale.low:.4g}", f"{scale.high:.4g} {scale.unit}".strip())
    return {"stops": stops.tolist(), "low": low, "high": high}


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value
