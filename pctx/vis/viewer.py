"""show(): a window to look around in, in a process of its own, so that OpenGL cannot kill ours."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from pctx.data.labels import LabelSet
from pctx.data.prediction import Prediction
from pctx.geometry.points import PointCloud
from pctx.vis.desk import Desk
from pctx.vis.exhibit import Album, make_exhibit
from pctx.vis.figure import DARK, draw
from pctx.vis.palette import RGB
from pctx.vis.render import save
from pctx.vis.window import NO_LIBRARY, NO_WINDOW

log = logging.getLogger(__name__)

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

    Beside it stand its layers, one for each field and each thing predicted, and the legend.

    Mouse: turn, shift (right button), zoom (wheel); Shift and a click tells all about a point. A
    click on a line of the legend hides it. The panel lists the keys.

    Args:
        cloud: any points.
        prediction: of the same points, or None.
        color: the layer to begin with, see `make_scene`.
        labels: the classes of the cloud's raw ids; None takes the prediction's.
        title: usually the file's name.

    Raises:
        ValueError: a field is missing.
        ViewerError: there is no display, Open3D cannot be loaded, or its window died.
    """
    exhibit = make_exhibit(cloud, prediction, color=color, labels=labels, title=title)
    show_album([(title, lambda: exhibit)])


def show_album(album: Album) -> list[str]:
    """Show exhibits in one window, each opened when one comes to it.

    Returns:
        A sentence for each that could not be opened.

    Raises:
        ViewerError: there is no display, Open3D cannot be loaded, or its window died.
    """
    if not _has_display():
        raise ViewerError(
            f"there is no display: neither DISPLAY nor WAYLAND_DISPLAY is set; {_INSTEAD}"
        )
    with tempfile.TemporaryDirectory(prefix="pctx-view-") as name:
        desk = Desk(album, Path(name))
        errors = Path(name) / "stderr"
        with errors.open("wb") as stream:
            window = subprocess.Popen(
                _window_command(Path(name)), stdout=subprocess.PIPE, stderr=stream
            )
            assert window.stdout is not None
            try:
                for line in window.stdout:
                    if line.startswith(b"{"):
                        desk.answer(line.decode())
                code = window.wait()
            finally:
                window.kill()
                window.wait()
                window.stdout.close()
        if code != 0:
            raise ViewerError(_reason(code, errors.read_text(errors="replace")))
    return desk.failures


def show_or_render(
    album: Album, fallback: Path | None = None, *, background: RGB = DARK
) -> tuple[Path | None, list[str]]:
    """Show a window, or where that is impossible say why (in the log) and draw a picture.

    Args:
        album: what to show; the picture is of the first exhibit that opens.
        fallback: the picture's file, None for the title's name in the working directory; a free
            name beside it is taken where it exists.
        background: of the picture.

    Returns:
        None after a window, else the picture's path; and a sentence for each exhibit that could
        not be opened.
    """
    try:
        return None, show_album(album)
    except ViewerError as error:
        log.warning("%s", error)
    failures = []
    for title, make in album:
        try:
            exhibit = make()
            scene = exhibit.scene(next(iter(exhibit.layers)))
        except (ValueError, OSError) as error:
            failures.append(str(error) if f"{title}:" in str(error) else f"{title}: {error}")
            continue
        named = fallback or Path(f"{Path(title).stem or 'cloud'}.png")
        return save(draw(scene, background=background), _free(named)), failures
    return None, failures


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


def _window_command(folder: Path) -> list[str]:
    return [sys.executable, "-m", "pctx.vis.window", str(folder)]


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
