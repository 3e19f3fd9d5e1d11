import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pctx
from pctx.vis import viewer, window
from pctx.vis.exhibit import make_exhibit
from pctx.vis.viewer import ViewerError, show, show_or_render


@pytest.fixture
def display(monkeypatch):
    """Pretend that there is a screen; every test replaces the process that would use it."""
    monkeypatch.setenv("DISPLAY", ":77")


@pytest.fixture
def no_display(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")


def child(monkeypatch, code: str) -> None:
    monkeypatch.setattr(viewer, "_window_command", lambda path: [sys.executable, "-c", code, path])


def sentence(error: pytest.ExceptionInfo) -> str:
    text = str(error.value)
    assert "\n" not in text and "Traceback" not in text
    return text


def test_without_a_display_one_sentence_says_so_and_nothing_is_started(
    street, no_display, monkeypatch
):
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **k: pytest.fail("started a process"))
    with pytest.raises(ViewerError) as error:
        pctx.show(street)
    assert "no display" in sentence(error) and "--render" in sentence(error)


def test_the_death_of_the_window_is_reported_not_shared(street, display, monkeypatch):
    child(monkeypatch, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    with pytest.raises(ViewerError) as error:
        show(street)
    assert "SIGSEGV" in sentence(error)


def test_a_failed_window_gives_its_last_line(street, display, monkeypatch):
    child(monkeypatch, "import sys; sys.stderr.write('much\\nno OpenGL context\\n'); sys.exit(4)")
    with pytest.raises(ViewerError, match="no OpenGL context") as error:
        show(street)
    assert "much" not in sentence(error)


def test_a_closed_window_returns(street, display, monkeypatch):
    child(monkeypatch, "pass")
    assert show(street) is None


ASKS = """
import json, sys, time, pathlib
folder = pathlib.Path(sys.argv[1])
asked = [{{"ask": "open", "file": 0, "layer": None, "ahead": True}}, {{"ask": "pick", "index": 7}}]
for number, request in enumerate(asked, start=1):
    print(json.dumps({{**request, "number": number}}), flush=True)
    while not (folder / f"{{number}}.npz").exists():
        time.sleep(0.01)
    (folder / f"{{number}}.npz").rename(pathlib.Path({kept!r}) / f"{{number}}.npz")
print("no request")
"""


def test_what_the_window_asks_for_is_answered(street, labels, display, monkeypatch, tmp_path):
    child(monkeypatch, ASKS.format(kept=str(tmp_path)))
    show(street, labels=labels, title="street.bin")
    with np.load(tmp_path / "1.npz") as arrays:
        assert arrays["coord"].shape == arrays["color"].shape == (400, 3)
        told = json.loads(str(arrays["told"]))
    assert (told["title"], told["layer"]) == ("street.bin", "label")
    with np.load(tmp_path / "2.npz") as arrays:
        words = json.loads(str(arrays["told"]))["words"]
    assert words[0] == "point 7" and "label 40 (road)" in words


def test_there_is_always_a_picture(street, no_display, tmp_path, caplog):
    album = [("scan.laz", lambda: make_exhibit(street))]
    path, failures = show_or_render(album, tmp_path / "a.png")
    assert (path, failures) == (tmp_path / "a.png", [])
    with Image.open(path) as image:
        assert image.size == (1600, 1200)
    assert "no display" in caplog.text
    path.write_bytes(b"mine")
    assert show_or_render(album, tmp_path / "a.png")[0] == tmp_path / "a_2.png"
    assert path.read_bytes() == b"mine"


def test_the_picture_is_of_the_first_file_that_can_be_read(street, no_display, tmp_path):
    def broken():
        raise OSError("cut short")

    album = [("a.laz", broken), ("b.laz", lambda: make_exhibit(street, title="b.laz"))]
    path, failures = show_or_render(album, tmp_path / "a.png")
    assert path is not None and failures == ["a.laz: cut short"]
    assert show_or_render(album[:1], tmp_path / "c.png") == (None, ["a.laz: cut short"])


def test_a_picture_takes_the_place_of_a_dead_window(street, display, monkeypatch, tmp_path):
    child(monkeypatch, "import os, signal; os.kill(os.getpid(), signal.SIGABRT)")
    monkeypatch.chdir(tmp_path)
    assert show_or_render([("scan.laz", lambda: make_exhibit(street))])[0] == Path("scan.png")
    assert (tmp_path / "scan.png").exists()


def test_after_a_window_there_is_no_picture(street, display, monkeypatch, tmp_path):
    child(monkeypatch, "pass")
    album = [("a", lambda: make_exhibit(street))]
    assert show_or_render(album, tmp_path / "a.png") == (None, [])
    assert list(tmp_path.iterdir()) == []


def test_a_missing_system_library_is_named_with_its_packages():
    reason = window.load_error(ImportError("libusb-1.0.so.0: cannot open shared object file"))
    assert "libusb-1.0.so.0" in reason
    assert "apt install libgl1 libegl1 libgomp1 libusb-1.0-0" in reason


def test_a_missing_open3d_is_named_with_its_command():
    assert "pip install" in window.load_error(ModuleNotFoundError("open3d", name="open3d"))


def test_a_library_that_cannot_be_loaded_ends_the_child_in_one_line(
    street, display, monkeypatch, tmp_path
):
    (tmp_path / "open3d.py").write_text("raise OSError('libGL.so.1: cannot open')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ViewerError) as error:
        show(street)
    assert "libGL.so.1" in sentence(error) and "libgl1" in sentence(error)


def test_a_display_that_does_not_answer_is_reported(street, monkeypatch):
    monkeypatch.setenv("DISPLAY", ":77")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    with pytest.raises(ViewerError) as error:  # of the library, where Open3D cannot be loaded
        show(street)
    assert ":77 does not answer" in sentence(error) or "cannot be loaded" in sentence(error)


def test_no_module_loads_open3d_when_imported():
    for module in (viewer, window):
        assert "o3d" not in vars(module) and "open3d" not in vars(module)


def test_points_are_smaller_where_there_are_more():
    sizes = [window.point_size(n) for n in (0, 1000, 100_000, 10_000_000)]
    assert sizes == sorted(sizes, reverse=True)
    assert 1 < sizes[-1] < sizes[0] < 10


def test_every_signal_has_a_name():
    assert signal.Signals(signal.SIGSEGV).name in viewer._reason(-signal.SIGSEGV, "")
