"""The window itself, driven by keys on a display of its own."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pctx.data.io.formats import write
from pctx.geometry.points import PointCloud
from pctx.vis.palette import ASPRS

TOOLS = ("Xvfb", "xdotool", "import")
GROUND, TREE = (np.array(ASPRS.colors[i]) for i in (2, 5))

pytestmark = [
    pytest.mark.skipif(
        not all(map(shutil.which, TOOLS)), reason=f"a window is driven by {', '.join(TOOLS)}"
    ),
    pytest.mark.display,
    pytest.mark.slow,
]


@pytest.fixture
def display(tmp_path):
    """Start a display of its own number; give what runs a tool on it."""
    read, write_end = os.pipe()
    screen = ["-screen", "0", "1400x820x24", "-nolisten", "tcp", "-noreset"]
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write_end), *screen],
        pass_fds=[write_end],
        stderr=subprocess.DEVNULL,
    )
    os.close(write_end)
    with os.fdopen(read) as stream:
        number = stream.readline().strip()
    environment = {**os.environ, "DISPLAY": f":{number}", "OMP_NUM_THREADS": "1"}
    environment.pop("WAYLAND_DISPLAY", None)
    yield environment
    server.terminate()
    server.wait()


@pytest.fixture
def screen(display, tmp_path):
    """Give what starts `pctx view` on the display."""
    started = []

    def start(*files: str) -> Screen:
        started.append(Screen(display, tmp_path, *files))
        return started[-1]

    yield start
    for each in started:
        each.program.kill()
        each.program.wait()


class Screen:
    """A window on a display, and hands for it."""

    def __init__(self, environment, folder: Path, *arguments: str) -> None:
        self.environment, self.folder = environment, folder
        command = [sys.executable, "-m", "pctx.cli.main", "view", *arguments]
        self.log = folder / "log"
        with self.log.open("wb") as stream:
            self.program = subprocess.Popen(command, env=environment, cwd=folder, stderr=stream)

    def tool(self, *arguments: str) -> str:
        done = subprocess.run(
            ["xdotool", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip()

    def focus(self) -> None:
        self.tool("windowfocus", self.tool("search", "--onlyvisible", "--name", "^pctx view$"))

    def key(self, *keys: str) -> None:
        self.focus()
        self.tool("key", *keys)

    def click(self, x: int, y: int, *, shift: bool = False) -> None:
        self.tool("mousemove", str(x), str(y))
        time.sleep(0.3)
        held = ("keydown", "shift", "click", "1", "keyup", "shift")
        self.tool(*(held if shift else ("click", "1")))

    def shot(self) -> np.ndarray:
        path = self.folder / "shot.png"
        subprocess.run(
            ["import", "-window", "root", str(path)],
            env=self.environment,
            check=False,
            stderr=subprocess.DEVNULL,
        )
        return np.asarray(Image.open(path).convert("RGB")).astype(int)

    def until(self, holds, what: str) -> np.ndarray:
        """Wait until a picture of the screen is as it should be."""
        end = time.monotonic() + 150  # on a busy machine Open3D takes a minute to load
        while time.monotonic() < end:
            assert self.program.poll() is None, self.log.read_text()
            shot = self.shot()
            if holds(shot):
                return shot
            time.sleep(0.3)
        pytest.fail(f"{what} was not seen; {self.log.read_text()}")


def share(shot: np.ndarray, color) -> float:
    """Give the share of the window, without the panel, that has a colour."""
    window = shot[40:800, 350:1390]
    return float((np.abs(window - np.array(color)).max(axis=-1) <= 3).mean())


def flat(width: float, label: int, z: float, x: float) -> tuple[np.ndarray, np.ndarray]:
    axis = np.linspace(-width / 2, width / 2, 150)
    grid = np.stack(np.meshgrid(axis + x, axis, [z]), axis=-1).reshape(-1, 3)
    return grid, np.full(len(grid), label)


def test_a_window_is_driven_by_keys_and_clicks(screen, tmp_path):
    (ground, two), (trees, five) = flat(40, 2, 0, 0), flat(12, 5, 9, 6)
    survey = np.array([650000.0, 6300000.0, 100.0])  # UTM
    xyz, label = np.concatenate([ground, trees]) + survey, np.concatenate([two, five])
    write(tmp_path / "a.laz", PointCloud.from_xyz(xyz, label=label))
    (tmp_path / "b.laz").write_bytes(b"LASF cut")
    write(tmp_path / "c.laz", PointCloud.from_xyz(trees + survey, label=five))
    screen = screen("a.laz", "b.laz", "c.laz")
    shot = screen.until(lambda s: share(s, GROUND) > 0.05 and share(s, TREE) > 0.01, "the scene")
    both = share(shot, GROUND), share(shot, TREE)
    assert (shot[60:780, 20:330] == GROUND).all(axis=-1).any()  # the panel's legend
    # The legend's line of trees lies where its colour is.
    rows = np.flatnonzero((shot[:, 10:340] == TREE).all(axis=-1).sum(axis=1) > 5)
    screen.click(150, int(rows.mean()))
    screen.until(lambda s: share(s, TREE) == 0 and share(s, GROUND) >= both[0], "hidden trees")
    screen.key("a")
    screen.until(lambda s: share(s, TREE) > 0.01, "the trees again")
    screen.key(*["Next"] * 6)  # cuts off the top
    screen.until(lambda s: share(s, TREE) == 0 and share(s, GROUND) > 0.05, "the cut")
    screen.key("a", "b")
    shot = screen.until(lambda s: share(s, (244, 245, 247)) > 0.1, "the light ground")
    assert share(shot, GROUND) == pytest.approx(both[0], abs=0.02)
    middle = np.argwhere(np.abs(shot[40:800, 350:1390] - GROUND).max(axis=-1) <= 3).mean(axis=0)
    screen.click(int(350 + middle[1]), int(40 + middle[0]) + 60, shift=True)
    screen.until(lambda _: "label 2" in screen.log.read_text(), "what was picked")
    north = float(re.search(r"y (\S+)", screen.log.read_text())[1])
    assert abs(north - survey[1]) <= 20  # in the file's frame
    screen.key("2")
    screen.until(lambda s: share(s, GROUND) == 0, "the height")
    screen.key("1", "n")  # the next file cannot be read: the one after it
    screen.until(lambda s: share(s, GROUND) == 0 and share(s, TREE) > 0.05, "the next file")
    assert "b.laz" in screen.log.read_text()
    screen.key("q")
    assert screen.program.wait(30) == 1  # one file could not be shown
