"""render(), render_row() and render_scenes(): picture files, without a display or OpenGL."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from pctx.data.io.atomic import replacing
from pctx.data.labels import LabelSet
from pctx.data.prediction import Prediction
from pctx.geometry.points import PointCloud
from pctx.vis.fields import make_scene
from pctx.vis.figure import DARK, draw, strip_height
from pctx.vis.palette import RGB
from pctx.vis.scene import Scene

_FORMATS = (".png", ".jpg", ".jpeg", ".webp")
_GAP = 4  # pixels between the figures of a row
_SHAPE = 1.1  # width over height of a good figure with its legend below


def render(
    cloud: PointCloud,
    prediction: Prediction | None,
    path: Path | str,
    *,
    color: str | None = None,
    labels: LabelSet | None = None,
    title: str = "",
    size: tuple[int, int] = (1600, 1200),
    view: str = "auto",
    background: RGB = DARK,
    overwrite: bool = False,
) -> Path:
    """Draw a cloud into a picture file and return its path.

    Args:
        cloud: any points; without any, the picture says so.
        prediction: of the same points, or None.
        path: .png, .jpg or .webp.
        color: what the colours show, see `make_scene`.
        labels: the classes of the cloud's raw ids; None takes the prediction's.
        title: usually the file's name.
        size: w, h in pixels.
        view: "auto", "top", "street", "oblique", "object" or "driver", see `frame`.
        background: RGB behind points and words.
        overwrite: replace an existing file.

    Raises:
        FileExistsError: the file exists and `overwrite` is False.
        ValueError: a field is missing, or a name or size cannot be used.
    """
    path = _checked(path, overwrite)
    scene = make_scene(cloud, prediction, color=color, labels=labels, title=title)
    return save(draw(scene, size=size, view=view, background=background), path, overwrite=overwrite)


def render_row(
    scenes: Sequence[Scene],
    path: Path | str,
    *,
    columns: int | None = None,
    size: tuple[int, int] = (900, 860),
    view: str = "auto",
    background: RGB = DARK,
    overwrite: bool = False,
) -> Path:
    """Draw scenes side by side, such as truth, prediction and error, into one picture file.

    Scenes of the same points are seen from the same place.

    Args:
        scenes: at least one.
        path: .png, .jpg or .webp.
        columns: figures beside each other; None puts all in one row.
        size: w, h in pixels of each figure.
        view: see `frame`.
        background: RGB behind points and words.
        overwrite: replace an existing file.

    Raises:
        FileExistsError: the file exists and `overwrite` is False.
        ValueError: there is no scene, or a name or size cannot be used.
    """
    path = _checked(path, overwrite)
    figure = draw_row(scenes, columns=columns, size=size, view=view, background=background)
    return save(figure, path, overwrite=overwrite)


def render_scenes(
    scenes: Sequence[Scene],
    path: Path | str,
    *,
    size: tuple[int, int] = (1600, 1200),
    view: str = "auto",
    background: RGB = DARK,
    overwrite: bool = False,
) -> Path:
    """Draw one scene as `render` does, or several in a grid, into a picture of the given size.

    Args:
        scenes: at least one.
        path: .png, .jpg or .webp.
        size: w, h in pixels of the whole picture.
        view: see `frame`.
        background: RGB behind points and words.
        overwrite: replace an existing file.

    Raises:
        FileExistsError: the file exists and `overwrite` is False.
        ValueError: there is no scene, or a name or size cannot be used.
    """
    path = _checked(path, overwrite)
    figure = draw_grid(scenes, size=size, view=view, background=background)
    return save(figure, path, overwrite=overwrite)


def draw_grid(
    scenes: Sequence[Scene],
    *,
    size: tuple[int, int],
    view: str = "auto",
    background: RGB = DARK,
    turn: float = 0.0,
) -> Image.Image:
    """Draw one scene, or several in a grid, see `render_scenes`; seen from `turn` radians further.

    Raises:
        ValueError: there is no scene.
    """
    if len(scenes) == 1:
        return draw(scenes[0], size=size, view=view, background=background, turn=turn)
    columns = _columns(max(1, len(scenes)), size)
    rows = math.ceil(len(scenes) / columns)
    cell = ((size[0] + _GAP) // columns - _GAP, (size[1] + _GAP) // max(1, rows) - _GAP)
    grid = draw_row(scenes, columns=columns, size=cell, view=view, background=background, turn=turn)
    figure = Image.new("RGB", size, background)
    figure.paste(grid, (0, 0))
    return figure


def draw_row(
    scenes: Sequence[Scene],
    *,
    columns: int | None = None,
    size: tuple[int, int] = (900, 860),
    view: str = "auto",
    background: RGB = DARK,
    turn: float = 0.0,
) -> Image.Image:
    """Draw scenes side by side, see `render_row`; seen from `turn` radians further."""
    if not scenes:
        raise ValueError("a row of pictures needs at least one scene")
    columns = columns or len(scenes)
    rows = math.ceil(len(scenes) / columns)
    # One height for all legends: figures of the same points then have the same camera.
    strip = max(strip_height(scene, size) for scene in scenes)
    wide, high = size[0] + _GAP, size[1] + _GAP
    sheet = Image.new("RGB", (columns * wide - _GAP, rows * high - _GAP), background)
    for i, scene in enumerate(scenes):
        figure = draw(scene, size=size, view=view, background=background, strip=strip, turn=turn)
        sheet.paste(figure, (i % columns * wide, i // columns * high))
    return sheet


def save(figure: Image.Image, path: Path | str, *, overwrite: bool = False) -> Path:
    """Write a picture beside its name and rename it, so that no half file is ever seen."""
    path = _checked(path, overwrite)
    with replacing(path, overwrite=overwrite) as beside:
        if path.suffix.lower() == ".png":
            figure.save(beside, compress_level=4)
        else:
            figure.save(beside, quality=92)
    return path


def _checked(path: Path | str, overwrite: bool) -> Path:
    path = Path(path)
    if path.suffix.lower() not in _FORMATS:
        raise ValueError(f"{path}: a picture ends in {', '.join(_FORMATS)}")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path}: exists already; --overwrite replaces it")
    return path


def _columns(count: int, size: tuple[int, int]) -> int:
    """Choose columns so that the figures are as near to `_SHAPE` as can be."""
    shapes = [size[0] / c / (size[1] / math.ceil(count / c)) for c in range(1, count + 1)]
    return 1 + min(range(count), key=lambda i: abs(math.log(shapes[i] / _SHAPE)))
