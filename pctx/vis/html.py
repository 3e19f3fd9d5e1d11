"""write_html(): one file with points and a small WebGL viewer, to be opened anywhere, offline."""

from __future__ import annotations

import base64
import html
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np

from pctx.data.io.atomic import replacing
from pctx.vis import palette
from pctx.vis.camera import frame
from pctx.vis.exhibit import LIKELIEST
from pctx.vis.raster import spacing, usual_spacing
from pctx.vis.scene import Scene, same_points

log = logging.getLogger(__name__)

MAX_POINTS = 2_000_000
"""Points in a page: 16 MB, and 5 to 11 MB a layer; what a modest graphics chip turns smoothly."""

MAX_CHANCES = 1_000_000
"""Points of a cloud of which a page knows the classes' probabilities: 15 MB at most."""

_RAMP_STOPS = 256
_ASPECT = 1.6  # of a browser's window, more or less


def write_html(
    scenes: Scene | Sequence[Scene],
    path: Path | str,
    *,
    light: bool = False,
    overwrite: bool = False,
) -> Path:
    """Write a self-contained page to turn, shift and zoom the points and to hide classes.

    Each scene has a button with its subject, each cloud one with its title. A click on a point
    tells where it is, what every scene of the cloud says of it, and where they are known, how
    likely its `LIKELIEST` classes are (in 8 bits, up to `MAX_CHANCES` points). Positions are
    stored in 16 bits an axis. Very far points are left out, and beyond 2 million points a cloud an
    even selection is shown; the page says so.

    Args:
        scenes: one, or several such as truth, prediction and error.
        path: .html or .htm.
        light: whether the page begins with a light ground; it has a button for it.
        overwrite: replace an existing file.

    Raises:
        FileExistsError: the file exists and `overwrite` is False.
        ValueError: there is no scene, or the name is no page's.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{path}: a page ends in .html")
    scenes = [scenes] if isinstance(scenes, Scene) else list(scenes)
    if not scenes:
        raise ValueError("a page needs at least one scene")
    shown = [scene.trim().thin(MAX_POINTS) for scene in scenes]
    for note in {scene.note: None for scene in shown if scene.note}:
        log.warning("%s: %s", path, note)
    text = page(shown, light=light)
    with replacing(path, overwrite=overwrite) as beside:
        beside.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path


def page(scenes: Sequence[Scene], *, light: bool = False) -> str:
    """Give the page's text; see `write_html`."""
    clouds: list[Scene] = []
    modes, blobs = [], []
    for i, scene in enumerate(scenes):
        cloud = next((k for k, c in enumerate(clouds) if same_points((c, scene))), len(clouds))
        if cloud == len(clouds):
            clouds.append(_with_chances(scene, scenes))
            blobs.append(_blob(f"position{cloud}", _quantize(scene.coord)[2]))
            if scene.row is not None and not _in_order(scene):
                blobs.append(_blob(f"row{cloud}", (scene.row * scene.step).astype("<u4")))
            blobs += _chances(clouds[cloud], cloud)
        modes.append({**_mode(scene), "cloud": cloud})
        if scene.entry is not None:
            blobs.append(_blob(f"entry{i}", scene.entry.astype("<u2")))
        elif scene.value is not None and scene.scale is not None:
            blobs.append(_blob(f"value{i}", scene.value.astype("<f4")))
        else:
            blobs.append(_blob(f"color{i}", scene.color))
    data = {
        "clouds": [_cloud(scene) for scene in clouds],
        "modes": modes,
        "light": light,
        "grey": palette.UNLABELED,
    }
    # "<" is escaped, so that no name can end the script element it stands in.
    words = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    template = resources.files("pctx.vis").joinpath("page.html").read_text(encoding="utf-8")
    before, after = template.split("{{data}}")
    return "".join(
        (
            before.replace("{{title}}", html.escape(scenes[0].title or "point cloud")),
            f'<script type="application/json" id="data">{words}</script>\n',
            "\n".join(blobs),
            after,
        )
    )


def _in_order(scene: Scene) -> bool:
    """Whether the point of place i in a scene is that of number i in its file."""
    row = scene.row
    return row is None or (
        scene.step == 1 and (len(row) == 0 or bool(row[-1] == len(row) - 1 and row[0] == 0))
    )


def _cloud(scene: Scene) -> dict[str, object]:
    low, step, _ = _quantize(scene.coord)
    told = scene.chances.names if scene.chances and _tells_chances(scene) else ()
    note = scene.note
    if scene.chances and not told:
        few = f"no class probabilities beyond {MAX_CHANCES:,} points"
        note = f"{note}; {few}" if note else few
    camera = frame(scene.coord, aspect=_ASPECT)
    return {
        "title": scene.title or "point cloud",
        "note": note,
        "classes": told,
        "count": len(scene),
        "low": low.tolist(),
        "step": step.tolist(),
        "shift": scene.shift.tolist(),
        "spacing": usual_spacing(scene.coord, spacing(scene.coord)),
        "camera": {
            "target": camera.target.tolist(),
            "azimuth": camera.azimuth,
            "elevation": camera.elevation,
            "reach": camera.reach,
            "tangent": camera.tangent,
        },
    }


def _with_chances(scene: Scene, scenes: Sequence[Scene]) -> Scene:
    """Take probabilities from another scene of the same points, where this one has none."""
    known = (s.chances for s in scenes if s.chances and same_points((scene, s)))
    return replace(scene, chances=scene.chances or next(known, None))


def _tells_chances(scene: Scene) -> bool:
    return scene.chances is not None and scene.row is not None and len(scene) <= MAX_CHANCES


def _chances(scene: Scene, cloud: int) -> list[str]:
    if not _tells_chances(scene):
        return []
    assert scene.chances is not None and scene.row is not None
    number, share = scene.chances.likeliest(scene.row, LIKELIEST)
    return [_blob(f"likely{cloud}", number.astype("<u2")), _blob(f"share{cloud}", share)]


def _quantize(coord: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Give the lowest corner, metres a step, and steps from the corner (n, 3) uint16."""
    if len(coord) == 0:
        return np.zeros(3), np.ones(3), np.zeros((0, 3), "<u2")
    low, high = coord.min(axis=0).astype(np.float64), coord.max(axis=0).astype(np.float64)
    step = np.maximum(high - low, 1e-6) / 65535
    return low, step, np.round((coord - low) / step).astype("<u2")


def _mode(scene: Scene) -> dict[str, object]:
    scale = None
    if scene.scale:
        stops = palette.ramp_colors(np.linspace(0, 1, _RAMP_STOPS), scene.scale.ramp)
        scale = {
            "low": scene.scale.low,
            "high": scene.scale.high,
            "unit": scene.scale.unit,
            "ends": scene.scale.ends,
            "stops": stops.tolist(),
        }
    legend = [{**entry._asdict(), "color": list(entry.color)} for entry in scene.legend]
    mark = None if scene.mark is None else scene.mark.tolist()
    return {"name": scene.subject or "colour", "legend": legend, "scale": scale, "mark": mark}


def _blob(name: str, array: np.ndarray) -> str:
    text = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
    return f'<script type="text/plain" id="{name}">{text}</script>'
