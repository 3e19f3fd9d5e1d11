"""The process behind `show`: loads Open3D, opens the window, and may die without harm.

`python -m pctx.vis.window scene.npz`. It imports nothing of pctx, so that it starts fast.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

NO_LIBRARY = 3
"""Exit code: Open3D cannot be loaded; the last line of stderr says why."""

NO_WINDOW = 4
"""Exit code: Open3D is there, but no window can be opened."""

MARK = 0.02
"""Radius of the ball at a marked place, over half the height of the view."""

SYSTEM_PACKAGES = "libgl1 libegl1 libgomp1 libusb-1.0-0"
"""Debian packages that Open3D's wheel needs and does not bring."""


def run(path: Path) -> int:
    """Show the arrays of `show_scene` until the window is closed; give the exit code."""
    if code := check():
        return code
    import open3d as o3d

    with np.load(path) as arrays:
        scene = dict(arrays)
    o3d.utility.set_verbosity_level(o3d.utility.VerbosityLevel.Error)
    points = o3d.geometry.PointCloud()
    points.points = o3d.utility.Vector3dVector(scene["coord"].astype(np.float64))
    points.colors = o3d.utility.Vector3dVector(scene["color"] / 255)
    window = o3d.visualization.Visualizer()
    if not window.create_window(str(scene["title"]) or "pctx", width=1280, height=800):
        sys.stderr.write("no OpenGL context\n")
        return NO_WINDOW
    window.add_geometry(points)
    if len(scene["mark"]):
        ball = o3d.geometry.TriangleMesh.create_sphere(MARK * float(scene["half_height"]))
        ball.paint_uniform_color([1, 1, 1])
        window.add_geometry(ball.translate(scene["mark"]))
    options = window.get_render_option()
    options.background_color = scene["background"] / 255
    options.point_size = point_size(len(scene["coord"]))
    _aim(window.get_view_control(), scene)
    window.run()
    window.destroy_window()
    return 0


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


def _aim(control: object, scene: Mapping[str, np.ndarray]) -> None:
    _, up, forward = scene["axes"]
    extent = float(np.ptp(scene["coord"], axis=0).max()) if len(scene["coord"]) else 1.0
    # Open3D's zoom is half the height of the view over the cloud's extent.
    zoom = float(np.clip(scene["half_height"] / max(extent, 1e-9), 0.02, 2))
    control.set_lookat(scene["target"])  # type: ignore[attr-defined]
    control.set_front(-forward)  # type: ignore[attr-defined]
    control.set_up(up)  # type: ignore[attr-defined]
    control.set_zoom(zoom)  # type: ignore[attr-defined]


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
