"""render_turn(): a moving picture that goes once around the points, as .gif or .mp4."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image

from pctx.data.io.atomic import replacing
from pctx.vis.figure import DARK
from pctx.vis.palette import RGB
from pctx.vis.render import draw_grid
from pctx.vis.scene import Scene

MOVING = (".gif", ".mp4")

FRAMES = 48
"""Pictures of a turn."""

FRAME_TIME = 80
"""Milliseconds from one picture to the next."""

MAX_POINTS = 400_000
"""Points of a scene in a moving picture: as many as its pixels can show."""

SIZE = (800, 600)


def render_turn(
    scenes: Sequence[Scene],
    path: Path | str,
    *,
    size: tuple[int, int] = SIZE,
    frames: int = FRAMES,
    view: str = "auto",
    background: RGB = DARK,
    overwrite: bool = False,
) -> Path:
    """Draw scenes from all around, side by side, into a .gif, or an .mp4 by ffmpeg.

    Args:
        scenes: at least one.
        path: .gif or .mp4.
        size: w, h in pixels of the whole picture.
        frames: pictures of a turn.
        view: where the turn begins, see `frame`.
        background: RGB behind points and words.
        overwrite: replace an existing file.

    Raises:
        FileExistsError: the file exists and `overwrite` is False.
        ValueError: the name is none of these, there is no scene, or ffmpeg is lacking or fails.
    """
    path = Path(path)
    check_moving(path)
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path}: exists already; --overwrite replaces it")
    thin = [scene.thin(MAX_POINTS) for scene in scenes]
    # Even sides: the usual coding of .mp4 halves the colours' resolution.
    size = (size[0] // 2 * 2, size[1] // 2 * 2)
    drawn = (
        draw_grid(thin, size=size, view=view, background=background, turn=2 * math.pi * i / frames)
        for i in range(frames)
    )
    with replacing(path, overwrite=overwrite) as beside:
        if path.suffix.lower() == ".gif":
            _write_gif(drawn, beside)
        else:
            _write_mp4(drawn, beside, size)
    return path


def check_moving(path: Path) -> None:
    """Find out before anything is drawn whether `render_turn` can write a file of this name.

    Raises:
        ValueError: it cannot.
    """
    if path.suffix.lower() not in MOVING:
        raise ValueError(f"{path}: a moving picture ends in {' or '.join(MOVING)}")
    if path.suffix.lower() == ".mp4" and _ffmpeg() is None:
        raise ValueError(
            f"{path}: an .mp4 needs ffmpeg (pip install imageio-ffmpeg, or apt install ffmpeg); "
            "a .gif needs nothing"
        )


def _ffmpeg() -> str | None:
    if found := shutil.which("ffmpeg"):
        return found
    try:
        import imageio_ffmpeg  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    try:
        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except RuntimeError:
        return None


def _write_gif(frames: Iterator[Image.Image], path: Path) -> None:
    first = next(frames)
    # One palette for all: colours do not flicker, and a class keeps its colour.
    table = first.quantize(256, dither=Image.Dither.NONE)
    rest = [frame.quantize(palette=table, dither=Image.Dither.NONE) for frame in frames]
    table.save(
        path,
        format="GIF",
        save_all=True,
        append_images=rest,
        duration=FRAME_TIME,
        loop=0,
        optimize=False,
    )


def _write_mp4(frames: Iterator[Image.Image], path: Path, size: tuple[int, int]) -> None:
    program = _ffmpeg()
    assert program is not None
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{size[0]}x{size[1]}"]
    rate = ["-r", f"{1000 / FRAME_TIME:g}", "-i", "-"]
    coded = ["-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4", str(path)]
    command = [program, "-y", "-loglevel", "error", *raw, *rate, *coded]
    pixels = b"".join(frame.tobytes() for frame in frames)
    ended = subprocess.run(command, input=pixels, capture_output=True, check=False)
    if ended.returncode != 0:
        lines = ended.stderr.decode(errors="replace").strip().splitlines()
        raise ValueError(
            f"{program} could not write the .mp4 ({lines[-1] if lines else 'no word'})"
        )
