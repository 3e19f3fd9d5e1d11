"""show(): a window to look around in, in a process of its own, so that OpenGL cannot kill ours."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from pctx.data.labels import LabelSet
from pctx.data.prediction import Prediction
from pctx.geometry.points import PointCloud
from pctx.vis.camera import frame
from pctx.vis.fields import make_scene
from pctx.vis.figure import DARK, draw
from pctx.vis.render import save
from pctx.vis.scene import Scene
from pctx.vis.window import NO_LIBRARY, NO_WINDOW

log = logging.getLogger(__name__)

MAX_POINTS = 10_000_000
"""Points in a window; Open3D shows nothing beyond some 19 million (isl-org/Open3D#6732)."""

_ASPECT = 16 / 10  # of the window
_INSTEAD = "`pctx view --render out.png` and pctx.render() draw a picture instead"


class ViewerError(RuntimeError):
    """No window could be shown; the message says why in a sentence."""


def show(
    cloud: PointCloud,
    prediction: Prediction | None = None,
    *,
    color: str | None = None,
    labels: LabelSet | None = None,
    title: str = "",
) -> None:
    """Show a cloud in an Open3D window and return when it is closed.

    Mouse: turn, shift (with Ctrl), zoom (wheel). Keys: + and - size the points, R resets the view,
    H prints all the others, Q closes.

    Args:
        cloud: any points.
        prediction: of the same points, or None.
        color: what the colours show, see `make_scene`.
        labels: the classes of the cloud's raw ids; None takes the prediction's.
        title: of the window.

    Raises:
        ValueError: a field is missing.
        ViewerError: there is no display, Open3D cannot be loaded, or its window died.
    """
    show_scene(make_scene(cloud, prediction, color=color, labels=labels, title=title))


def show_scene(scene: Scene) -> None:
    """Show a scene in a window and return when it is closed; see `show`."""
    if not _has_display():
        raise ViewerError(
            f"there is no display: neither DISPLAY nor WAYLAND_DISPLAY is set; {_INSTEAD}"
        )
    shown = scene.trim().thin(MAX_POINTS)
    if shown.note:
        log.warning("%s", shown.note)
    camera = frame(shown.coord, aspect=_ASPECT)
    with tempfile.TemporaryDirectory(prefix="pctx-view-") as folder:
        path = Path(folder) / "scene.npz"
        np.savez(
            path,
            coord=shown.coord,
            color=shown.color,
            title=np.array(" - ".join(part for part in (scene.title, scene.subject) if part)),
            background=np.array(DARK),
            target=camera.target,
            axes=camera.axes,
            half_height=np.array(camera.reach * camera.tangent),
            mark=np.zeros(0) if shown.mark is None else shown.mark,
        )
        ended = subprocess.run(_window_command(path), stderr=subprocess.PIPE, check=False)
    if ended.returncode != 0:
        raise ViewerError(_reason(ended.returncode, ended.stderr.decode(errors="replace")))


def show_or_render(scene: Scene, fallback: Path | None = None) -> Path | None:
    """Show a window, or where that is impossible say why (in the log) and draw a picture.

    Args:
        scene: what to show.
        fallback: the picture's file, None for the title's name in the working directory; a free
            name beside it is taken where it exists.

    Returns:
        None after a window, else the picture's path.
    """
    try:
        show_scene(scene)
    except ViewerError as error:
        log.warning("%s", error)
        named = fallback or Path(f"{Path(scene.title).stem or 'cloud'}.png")
        return save(draw(scene), _free(named))
    return None


def why_no_window() -> str | None:
    """Say in a sentence why `show` would open no window here; None where it would."""
    if not _has_display():
        return "there is no display"
    code = "import sys, pctx.vis.window as w; sys.exit(w.check())"
    ended = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, check=False)
    return _reason(ended.returncode, ended.stderr.decode(errors="replace")) or None


def _has_display() -> bool:
    if not sys.platform.startswith("linux"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _window_command(path: Path) -> list[str]:
    return [sys.executable, "-m", "pctx.vis.window", str(path)]


def _reason(code: int, stderr: str) -> str:
    if code == 0:
        return ""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    if code == NO_LIBRARY:
        return f"{last}; {_INSTEAD}"
    if code == NO_WINDOW:
        return f"Open3D could not open a window ({last}); {_INSTEAD}"
    if code < 0:
        name = signal.Signals(-code).name
        return f"the Open3D window died of {name}, most likely in the graphics driver; {_INSTEAD}"
    return f"the Open3D window ended with exit code {code} ({last}); {_INSTEAD}"


def _free(path: Path) -> Path:
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.stem}_{number}{path.suffix}")
    return free
