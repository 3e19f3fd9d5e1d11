"""pctx view: look at clouds in a window, a picture or a page."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pctx.cli.attention import attention_scenes, read_question
from pctx.cli.config import UsageError
from pctx.cli.predict_jobs import named
from pctx.cli.structure import STRUCTURES, model_scenes, read_flags, structure_scenes

if TYPE_CHECKING:
    from pctx.geometry.points import PointCloud
    from pctx.vis.scene import Scene

log = logging.getLogger(__name__)

EXAMPLES = """Examples:

pctx view scan.laz

pctx view scan.laz --color height --render scan.png

pctx view labelled.label --card semantic_kitti --html page.html

pctx view scan.laz --model model.pt --color error --render error.png

pctx view scan.laz --color order --curve hilbert --grid 0.2

pctx view scan.laz --color window --windows octree --window-size 64 --html windows.html

pctx view scan.laz --color window --model model.pt --render windows.png

pctx view scan.laz --color attention --model model.pt --query 12.5,-3,0.5 --render heard.png

pctx view scan.laz --color attention --model model.pt --map class --class pole --html pole.html
"""

PREDICTED = ("prediction", "error", "entropy")
"""What --color takes from a model's prediction."""

LOOKED_INTO = ("attention",)
"""What --color takes from inside a model."""

_PANEL = "Order and windows, without a model"
_INSIDE = "Looking inside a model, with --color attention"


def view(
    files: Annotated[list[Path], typer.Argument(help="Point-cloud files.", metavar="FILE")],
    color: Annotated[
        str | None,
        typer.Option(
            help="label, prediction, error, entropy, rgb, intensity, height, instance, order, "
            "window or attention; by default the first that there is of prediction, label, rgb, "
            "intensity and height."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="A model file: shows what it predicts, its error or its entropy; with order and "
            "window, the curves and windows of its first level; with attention, what it looks at."
        ),
    ] = None,
    card: Annotated[
        str | None, typer.Option(help="Names and colours of the raw ids: a card's name or file.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--render", help="Draw into a .png; needs no display.")
    ] = None,
    size: Annotated[str, typer.Option(help="Width x height of the picture.")] = "1600x1200",
    perspective: Annotated[
        str, typer.Option("--from", help="auto, top, street, oblique or object.")
    ] = "auto",
    html: Annotated[
        Path | None, typer.Option(help="Write a page for a browser, all in one file.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace a file that exists.")] = False,
    grid: Annotated[
        float | None,
        typer.Option(
            help="Edge of a voxel in metres; by default what `pctx info` suggests.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    curve: Annotated[
        str | None,
        typer.Option(
            help="z (the default), z-trans, hilbert, hilbert-trans, hilbert-zxy, …",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    windows: Annotated[
        str | None,
        typer.Option(help="serial (the default), octree, grid or global.", rich_help_panel=_PANEL),
    ] = None,
    window_size: Annotated[
        int | None,
        typer.Option(
            help="Points in a serial (1024) or octree window (32); voxels along the edge of a "
            "grid window (8).",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    what: Annotated[
        str | None,
        typer.Option(
            "--map",
            help="attention (the default): whom a point listens to in a layer; rollout: through "
            "all layers; class: to whom listening speaks for a class; gradcam: where a layer's "
            "features do.",
            rich_help_panel=_INSIDE,
        ),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(
            help="The point that is asked: X,Y,Z as in the file, or its number; by default the one "
            "nearest to the middle.",
            metavar="X,Y,Z|ROW",
            rich_help_panel=_INSIDE,
        ),
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option(
            help="Number in the order of execution, or name; by default the last of the finest "
            "level, for class all, for gradcam the coarsest stage.",
            rich_help_panel=_INSIDE,
        ),
    ] = None,
    head: Annotated[
        int | None,
        typer.Option(help="Number; by default the mean of all.", rich_help_panel=_INSIDE),
    ] = None,
    class_name: Annotated[
        str | None,
        typer.Option(
            "--class",
            help="For class and gradcam; by default the one predicted at the query. Without a "
            "query, all points predicted as it are asked.",
            rich_help_panel=_INSIDE,
        ),
    ] = None,
) -> None:
    """Show point clouds: in an Open3D window, or with --render or --html without a display."""
    from pctx.data.io.formats import read

    width_height = _size(size)
    _check_names(color, perspective, model)
    flags = {"--grid": grid, "--curve": curve, "--windows": windows, "--window-size": window_size}
    inside = {
        "--map": what,
        "--query": query,
        "--layer": layer,
        "--head": head,
        "--class": class_name,
    }
    scenes_of = _scenes_of(color, model, card, flags, inside)
    scenes: list[Scene] = []
    failed = False
    for file in files:
        try:
            scenes += scenes_of(read(file), file.name)
        except (ValueError, OSError) as error:
            sys.stderr.write(f"pctx: {named(file, error)}\n")
            failed = True
    if scenes:
        _show(scenes, picture, width_height, perspective, html, overwrite)
    if failed:
        raise typer.Exit(1)


def _size(text: str) -> tuple[int, int]:
    from pctx.vis.figure import LARGEST_SIZE, SMALLEST_SIZE

    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise UsageError(f"--size takes WIDTHxHEIGHT, such as 1600x1200; found {text!r}")
    size = int(parts[0]), int(parts[1])
    if not SMALLEST_SIZE <= min(size) <= max(size) <= LARGEST_SIZE:
        raise UsageError(
            f"--size takes {SMALLEST_SIZE} to {LARGEST_SIZE} pixels a side; found {text!r}"
        )
    return size


def _check_names(color: str | None, perspective: str, model: Path | None) -> None:
    from pctx.vis.camera import VIEWS
    from pctx.vis.fields import COLORS

    known = (*COLORS, *STRUCTURES, *LOOKED_INTO)
    if color is not None and color not in known:
        raise UsageError(f"--color must be one of {', '.join(known)}; found {color!r}")
    if color in (*PREDICTED, *LOOKED_INTO) and model is None:
        raise UsageError(f"--color {color} needs a model: add --model model.pt")
    if perspective not in VIEWS:
        raise UsageError(f"--from must be one of {', '.join(VIEWS)}; found {perspective!r}")


def _scenes_of(
    color: str | None,
    model: Path | None,
    card: str | None,
    flags: Mapping[str, str | int | float | None],
    inside: Mapping[str, str | int | float | None],
) -> Callable[[PointCloud, str], list[Scene]]:
    """Give what makes the scenes of a cloud with a title."""
    for flag, value in inside.items():
        if value is not None and color not in LOOKED_INTO:
            raise UsageError(f"{flag} goes with --color attention only; leave it out")
    if color in STRUCTURES and model is None:
        return structure_scenes(read_flags(color, flags))
    for flag, value in flags.items():
        if value is not None and color not in STRUCTURES:
            raise UsageError(f"{flag} goes with --color order or window only; leave it out")
        if value is not None:
            raise UsageError(f"{flag} is the model's own; leave out {flag} or --model")
    if color in STRUCTURES and model is not None:
        return model_scenes(color, model)
    if color in LOOKED_INTO and model is not None:
        return attention_scenes(read_question(inside), model)
    return _field_scenes(color, model, card)


def _field_scenes(
    color: str | None, model: Path | None, card: str | None
) -> Callable[[PointCloud, str], list[Scene]]:
    from pctx.data.cards import find_card
    from pctx.data.labels import read_card
    from pctx.inference.predictor import Predictor
    from pctx.vis.fields import make_scene

    predictor = Predictor(model) if model is not None else None
    labels = read_card(find_card(card)).labels if card is not None else None

    def scenes(cloud: PointCloud, title: str) -> list[Scene]:
        prediction = predictor(cloud) if predictor is not None else None
        return [make_scene(cloud, prediction, color=color, labels=labels, title=title)]

    return scenes


def _show(
    scenes: list[Scene],
    picture: Path | None,
    size: tuple[int, int],
    perspective: str,
    html: Path | None,
    overwrite: bool,
) -> None:
    from pctx.vis.html import write_html
    from pctx.vis.render import render_scenes
    from pctx.vis.viewer import show_or_render

    if picture is not None:
        render_scenes(scenes, picture, size=size, view=perspective, overwrite=overwrite)
        log.info("%s", picture)
    if html is not None:
        write_html(scenes, html, overwrite=overwrite)
        log.info("%s", html)
    if picture is None and html is None:
        for scene in scenes:
            fallback = show_or_render(scene)
            if fallback is not None:
                log.info("%s", fallback)
