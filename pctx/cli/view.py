"""pctx view: look at clouds in a window, a picture or a page."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pctx.cli.config import UsageError

if TYPE_CHECKING:
    from pctx.data.labels import LabelSet
    from pctx.inference.predictor import Predictor
    from pctx.vis.scene import Scene

log = logging.getLogger(__name__)

EXAMPLES = """Examples:

pctx view scan.laz

pctx view scan.laz --color height --render scan.png

pctx view labelled.label --card semantic_kitti --html page.html

pctx view scan.laz --model model.pt --color error --render error.png
"""


def view(
    files: Annotated[list[Path], typer.Argument(help="Point-cloud files.", metavar="FILE")],
    color: Annotated[
        str | None,
        typer.Option(
            help="label, prediction, error, entropy, rgb, intensity, height or instance; "
            "by default the first of them that the file has."
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="A model file: shows what it predicts, its error or its entropy."),
    ] = None,
    card: Annotated[
        str | None, typer.Option(help="Names and colours of the raw ids: a card's name or file.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--render", help="Draw into a .png; needs no display.")
    ] = None,
    size: Annotated[str, typer.Option(help="Width x height of the picture.")] = "1600x1200",
    perspective: Annotated[
        str, typer.Option("--from", help="auto, top, street or oblique.")
    ] = "auto",
    html: Annotated[
        Path | None, typer.Option(help="Write a page for a browser, all in one file.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace a file that exists.")] = False,
) -> None:
    """Show point clouds: in an Open3D window, or with --render or --html without a display."""
    from pctx.vis.html import write_html
    from pctx.vis.render import render_scenes
    from pctx.vis.viewer import show_or_render

    width_height = _size(size)
    scenes = _scenes(files, color, model, card)
    if picture is not None:
        render_scenes(scenes, picture, size=width_height, view=perspective, overwrite=overwrite)
        log.info("%s", picture)
    if html is not None:
        write_html(scenes, html, overwrite=overwrite)
        log.info("%s", html)
    if picture is None and html is None:
        for scene in scenes:
            fallback = show_or_render(scene)
            if fallback is not None:
                log.info("%s", fallback)


def _scenes(
    files: list[Path], color: str | None, model: Path | None, card: str | None
) -> list[Scene]:
    from pctx.data.cards import find_card
    from pctx.data.io.formats import read
    from pctx.data.labels import read_card
    from pctx.vis.fields import make_scene

    predictor = _predictor(model) if model is not None else None
    labels: LabelSet | None = None
    if card is not None:
        labels = read_card(find_card(card)).labels
    scenes = []
    for file in files:
        cloud = read(file)
        prediction = predictor(cloud) if predictor is not None else None
        scenes.append(make_scene(cloud, prediction, color=color, labels=labels, title=file.name))
    return scenes


def _predictor(model: Path) -> Predictor:
    from pctx.inference.predictor import Predictor

    return Predictor(model)


def _size(text: str) -> tuple[int, int]:
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise UsageError(f"--size takes WIDTHxHEIGHT, such as 1600x1200; found {text!r}")
    return int(parts[0]), int(parts[1])
