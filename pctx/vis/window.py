"""The process behind `show`: loads Open3D, opens the window, and may die without harm.

`python -m pctx.vis.window folder`. It asks for files and layers on its standard output, a line of
JSON each, and finds answers in the folder as 1.npz, 2.npz, … It imports nothing of pctx that is
slow to load, so that it starts fast.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pctx.vis.hands import Hands
from pctx.vis.panel import draw_panel
from pctx.vis.stage import Stage, as_line

NO_LIBRARY = 3
"""Exit code: Open3D cannot be loaded; the last line of stderr says why."""

NO_WINDOW = 4
"""Exit code: Open3D is there, but no window can be opened."""

SYSTEM_PACKAGES = "libgl1 libegl1 libgomp1 libusb-1.0-0"
"""Debian packages that Open3D's wheel needs and does not bring."""

TITLE, PANEL_TITLE = "pctx view", "pctx view: legend"
WIDTH, HEIGHT, PANEL_WIDTH = 1040, 760, 330
"""Pixels of the window and of the panel beside it."""

DARK, LIGHT = (24, 27, 33), (244, 245, 247)
MARK = 0.012
"""Radius of the ball at a marked place, over half the height of the view."""

_IDLE = 0.01  # seconds between looks at hands and answers
_REDRAW = 0.3  # seconds after which a window is drawn again


def run(folder: Path) -> int:
    """Show what the program behind gives until the window is closed; give the exit code."""
    if code := check():
        return code
    import open3d as o3d

    o3d.utility.set_verbosity_level(o3d.utility.VerbosityLevel.Error)
    window = o3d.visualization.VisualizerWithKeyCallback()
    beside = o3d.visualization.VisualizerWithKeyCallback()
    if not (
        window.create_window(TITLE, width=WIDTH, height=HEIGHT, left=20 + PANEL_WIDTH, top=40)
        and beside.create_window(PANEL_TITLE, width=PANEL_WIDTH, height=HEIGHT, left=10, top=40)
    ):
        sys.stderr.write("no OpenGL context\n")
        return NO_WINDOW
    mailbox = Mailbox(folder)
    stage = Stage(ask=mailbox.ask)
    hands = Hands(stage, window, beside, (WIDTH, HEIGHT))
    show = Show(stage, window, beside, hands)
    stage.open(0)
    parent = os.getppid()  # another one, where the program behind was killed
    while window.poll_events() and beside.poll_events() and not hands.closed:
        if os.getppid() != parent:
            break
        if answer := mailbox.look():
            stage.receive(*answer)
        show.refresh()
        time.sleep(_IDLE)
    window.destroy_window()
    beside.destroy_window()
    return 0


class Mailbox:
    """Requests to the program behind, and its answers in the order of the requests."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked, self.read = folder, 0, 0

    def ask(self, request: Mapping[str, object]) -> None:
        """Send a request."""
        self.asked += 1
        sys.stdout.write(as_line({**request, "number": self.asked}))
        sys.stdout.flush()

    def look(self) -> tuple[dict[str, object], dict[str, np.ndarray]] | None:
        """Take the next answer, None where there is none yet."""
        path = self.folder / f"{self.read + 1}.npz"
        if self.read == self.asked or not path.exists():
            return None
        self.read += 1
        with np.load(path) as archive:
            arrays = dict(archive)
        path.unlink()
        return json.loads(str(arrays.pop("told"))), arrays


class Show:
    """Open3D's side: the points, the ball at a mark, the panel's picture, the camera."""

    def __init__(self, stage: Stage, window: Any, beside: Any, hands: Hands) -> None:
        import open3d as o3d

        self.o3d: Any = o3d
        self.stage, self.window, self.beside, self.hands = stage, window, beside, hands
        self.points = o3d.geometry.PointCloud()
        self.ball: Any = None
        self.picture: Any = None
        self.there, self.shown, self.next_time = False, 0, 0.0
        stage.words = ("reading …",)
        stage.changed |= {"panel", "view"}

    def refresh(self) -> None:
        """Draw again what has changed."""
        changed, self.stage.changed = self.stage.changed, set()
        now = time.monotonic()
        if not changed and now < self.next_time:
            return
        if "points" in changed:
            self._set_points()
        if "view" in changed or "points" in changed:
            self._set_view()
        if "panel" in changed or "points" in changed:
            self._set_panel()
        for each in (self.window, self.beside):
            each.update_renderer()
            each.poll_events()  # draws
        # Without a change too, since what was covered is not drawn again by itself; rarely where
        # drawing takes long.
        self.next_time = time.monotonic() + max(_REDRAW, 10 * (time.monotonic() - now))

    def _set_points(self) -> None:
        stage, o3d = self.stage, self.o3d
        shown = stage.visible
        self.points.points = o3d.utility.Vector3dVector(stage.coord[shown].astype(np.float64))
        self.points.colors = o3d.utility.Vector3dVector(stage.color[shown] / 255)
        if self.there:
            self.window.remove_geometry(self.points, reset_bounding_box=False)
        self.there = bool(shown.any())  # Open3D refuses a cloud of no points
        if self.there:
            self.window.add_geometry(self.points, reset_bounding_box=True)
        self.shown = int(shown.sum())

    def _set_view(self) -> None:
        stage = self.stage
        options, control = self.window.get_render_option(), self.window.get_view_control()
        options.background_color = np.array(LIGHT if stage.light else DARK) / 255
        options.point_size = float(np.clip(point_size(self.shown) * stage.size, 1, 20))
        camera = control.convert_to_pinhole_camera_parameters()
        w, h = camera.intrinsic.width, camera.intrinsic.height
        self.hands.size = (w, h)
        orbit = stage.orbit
        if orbit is None:
            return
        self._set_ball(orbit.reach * orbit.tangent)
        right, up, forward = orbit.axes
        extrinsic = np.eye(4)
        extrinsic[:3, :3] = np.stack([right, -up, forward])
        extrinsic[:3, 3] = -extrinsic[:3, :3] @ orbit.eye
        focal = h / 2 / orbit.tangent
        camera.intrinsic.set_intrinsics(w, h, focal, focal, w / 2 - 0.5, h / 2 - 0.5)
        camera.extrinsic = extrinsic
        far = float(np.ptp(stage.coord, axis=0).max()) if len(stage.coord) else 1.0
        control.set_constant_z_near(0.02 * orbit.reach)
        control.set_constant_z_far(orbit.reach + 3 * far)
        control.convert_from_pinhole_camera_parameters(camera, allow_arbitrary=True)

    def _set_ball(self, half_height: float) -> None:
        if self.ball is not None:
            self.window.remove_geometry(self.ball, reset_bounding_box=False)
            self.ball = None
        stage = self.stage
        mark = stage.told.get("mark")
        if stage.picked is not None:
            mark = stage.coord[stage.picked].tolist()
        if mark is None:
            return
        ball = self.o3d.geometry.TriangleMesh.create_sphere(MARK * half_height)
        ball.paint_uniform_color([0, 0, 0] if stage.light else [1, 1, 1])
        self.ball = ball.translate(np.array(mark, np.float64))
        self.window.add_geometry(self.ball, reset_bounding_box=False)

    def _set_panel(self) -> None:
        panel = draw_panel(self.stage.contents(), PANEL_WIDTH, HEIGHT)
        self.hands.panel = panel
        image = self.o3d.geometry.Image(np.ascontiguousarray(panel.picture))
        if self.picture is not None:
            self.beside.remove_geometry(self.picture)
        self.picture = image
        self.beside.add_geometry(image)


def check() -> int:
    """Give the exit code that `run` would end with for want of Open3D or a display; else 0."""
    try:
        import open3d  # noqa: F401
    except (ImportError, OSError) as error:
        sys.stderr.write(load_error(error) + "\n")
        return NO_LIBRARY
    if not _display_answers():
        sys.stderr.write(f"the display {os.environ['DISPLAY']} does not answer\n")
        return NO_WINDOW
    return 0


def load_error(error: Exception) -> str:
    """Say in a sentence what is missing for Open3D and how to get it."""
    if isinstance(error, ModuleNotFoundError) and error.name == "open3d":
        return "the window needs Open3D: pip install 'open3d>=0.19'"
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return (
        f"Open3D cannot be loaded ({reason}); on Debian and Ubuntu: apt install {SYSTEM_PACKAGES}"
    )


def point_size(n: int) -> float:
    """Give the size in pixels that suits n points: 6 for a few, 1.5 for millions."""
    return float(np.clip(6 - 1.5 * np.log10(max(n, 1) / 1000), 1.5, 6))


def _display_answers() -> bool:
    """Ask the X server, for Open3D 0.20 would open an invisible window where there is none."""
    if not os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return True
    try:
        x11 = ctypes.CDLL("libX11.so.6")
    except OSError:
        return True
    x11.XOpenDisplay.restype = ctypes.c_void_p
    display = x11.XOpenDisplay(None)
    if not display:
        return False
    x11.XCloseDisplay(ctypes.c_void_p(display))
    return True


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1])))
