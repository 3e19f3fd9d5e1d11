"""pctx view: look at clouds in a window, a picture, a turning picture or a page."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pctx.cli.attention import read_question
from pctx.cli.config import UsageError
from pctx.cli.exhibits import Order, read_labels, scenes_of
from pctx.cli.predict_jobs import named
from pctx.cli.structure import STRUCTURES, Structure, read_flags
from pctx.cli.view_flags import check_flags, check_names, check_outputs, read_size

if TYPE_CHECKING:
    from pctx.vis.exhibit import Album
    from pctx.vis.palette import RGB
    from pctx.vis.scene import Scene

log = logging.getLogger(__name__)

EXAMPLES = """Examples:

pctx view scan.laz

pctx view scans/ --card semantic_kitti                     (a folder: N and P turn the pages)

pctx view scan.bin --predicted out.label --card semantic_kitti

pctx view scan.laz --model model.pt --color label,prediction,error --render row.png

pctx view scan.laz --render turn.gif                       (or turn.mp4)

pctx view scan.laz --model model.pt --html page.html

pctx view scan.laz --color window --windows octree --window-size 64 --html windows.html

pctx view scan.laz --color attention --model model.pt --query 12.5,-3,0.5 --render heard.png

pctx view scan.laz --color attention --model model.pt --map class --class pole --html pole.html
"""

LIMIT = 4_000_000
"""Points of a file that are read for a window or a page."""

_PICTURE_LIMIT = 2_000_000  # what a picture of 1600 x 1200 pixels can show
_PANEL = "Order and windows, without a model"
_INSIDE = "Looking inside a model, with --color attention"


def view(
    files: Annotated[
        list[Path], typer.Argument(help="Point-cloud files, or folders of them.", metavar="FILE")
    ],
    color: Annotated[
        str | None,
        typer.Option(
            help="label, prediction, error, confidence, entropy, margin, variance, features, rgb, "
            "intensity, height, instance, order, window or attention, or several with commas; by "
            "default the first that there is of prediction, label, rgb, intensity and height."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="A model file: shows what it predicts, its error, how sure it is; with order and "
            "window, the curves and windows of its first level; with attention, what it looks at."
        ),
    ] = None,
    predicted: Annotated[
        Path | None,
        typer.Option(
            help="What was predicted: a file that `pctx predict` wrote, or a folder of them."
        ),
    ] = None,
    views: Annotated[
        int, typer.Option(help="Forward passes of the model; variance needs 2 or more.", min=1)
    ] = 1,
    card: Annotated[
        str | None, typer.Option(help="Names and colours of the raw ids: a card's name or file.")
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--render", help="Draw into a .png, or turning into a .gif or .mp4; needs no display."
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(help="Width x height; by default 1600x1200, of a moving picture 800x600."),
    ] = None,
    perspective: Annotated[
        str, typer.Option("--from", help="auto, top, street, oblique, object or driver.")
    ] = "auto",
    ground: Annotated[str, typer.Option("--background", help="dark or light.")] = "dark",
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
    width_height = None if size is None else read_size(size)
    colors = tuple(part.strip() for part in color.split(",")) if color is not None else ()
    check_names(colors, perspective, ground, model, predicted)
    flags = {"--grid": grid, "--curve": curve, "--windows": windows, "--window-size": window_size}
    inside = {
        "--map": what,
        "--query": query,
        "--layer": layer,
        "--head": head,
        "--class": class_name,
    }
    check_flags(colors, model, flags, inside)
    check_outputs(picture, html, overwrite)
    order = Order(
        colors=colors,
        model=model,
        predicted=predicted,
        labels=read_labels(card),
        structures=_structures(colors, flags),
        question=read_question(inside),
        views=views,
        limit=LIMIT if picture is None or html is not None else _PICTURE_LIMIT,
        every_layer=picture is None if html is None else not colors,
    )
    failures: list[str] = []
    album = order.album(files, failures)
    background = _background(ground)
    if picture is None and html is None:
        failures += _show(album, background)
    else:
        scenes = _scenes(album, colors, failures, every=html is not None)
        if picture is not None:
            chosen = [scene for made in scenes for scene in (made if colors else made[:1])]
            _draw(chosen, picture, width_height, perspective, background, overwrite)
        if html is not None:
            chosen = [scene for made in scenes for scene in made]
            _write_page(chosen, html, ground == "light", overwrite)
    for failure in dict.fromkeys(failures):
        sys.stderr.write(f"pctx: {failure}\n")
    if failures:
        raise typer.Exit(1)


def _structures(
    colors: tuple[str, ...], flags: Mapping[str, str | int | float | None]
) -> dict[str, Structure]:
    """Read the flags for order and for windows; those not asked for have the defaults."""
    none = dict.fromkeys(flags)
    return {color: read_flags(color, flags if color in colors else none) for color in STRUCTURES}


def _background(ground: str) -> RGB:
    from pctx.vis.figure import DARK, PAPER

    return PAPER if ground == "light" else DARK


def _show(album: Album, background: RGB) -> list[str]:
    from pctx.vis.viewer import show_or_render

    if not album:
        return []
    picture, failures = show_or_render(album, background=background)
    if picture is not None:
        log.info("drawn instead: %s", picture)
        if len(album) > 1:
            log.info("of one file of %d; --html page.html shows them all", len(album))
    return failures


def _scenes(
    album: Album, colors: tuple[str, ...], failures: list[str], *, every: bool
) -> list[list[Scene]]:
    """Open every file and make the scenes asked for, or those of all its fields."""
    from pctx.vis.fields import COLORS

    scenes: list[list[Scene]] = []
    for title, make in album:
        try:
            exhibit = make()
            wanted = colors
            if every and not colors:
                wanted = tuple(
                    name for name in exhibit.layers if name in COLORS and name != "features"
                )
            scenes.append(list(scenes_of(exhibit, wanted)))
        except UsageError:
            raise
        except (ValueError, OSError) as error:
            failures.append(named(Path(title), error))
    return scenes


def _draw(
    scenes: list[Scene],
    path: Path,
    size: tuple[int, int] | None,
    perspective: str,
    background: RGB,
    overwrite: bool,
) -> None:
    from pctx.vis.render import render_scenes
    from pctx.vis.turn import MOVING, render_turn

    if scenes:
        moving = path.suffix.lower() in MOVING
        render = partial(render_turn if moving else render_scenes, scenes, path)
        given = {} if size is None else {"size": size}
        render(view=perspective, background=background, overwrite=overwrite, **given)
        log.info("%s", path)


def _write_page(scenes: list[Scene], path: Path, light: bool, overwrite: bool) -> None:
    from pctx.vis.html import write_html

    if scenes:
        write_html(scenes, path, light=light, overwrite=overwrite)
        log.info("%s", path)
