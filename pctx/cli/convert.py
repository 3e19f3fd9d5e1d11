"""pctx convert: published weights in and out."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pctx.cli.config import UsageError, named_numbers

if TYPE_CHECKING:
    from pctx.data.features import FeatureSpec

log = logging.getLogger(__name__)

EXAMPLES = """Examples:

pctx convert model_best.pth -o model.pt --model ptv3_base --card semantic_kitti

pctx convert s3dis.pth -o model.pt --model ptv1_seg50 --card s3dis/card.yaml --grid 0.04

pctx convert small.pth -o model.pt --model ptv3_base --card nuscenes --set window_size=128

pctx convert model.pt -o weights.pth --to pointcept
"""

POINTCEPT = "pointcept"


def convert(
    file: Annotated[
        Path, typer.Argument(help="Weights by Pointcept, or with --to a model.pt.", metavar="FILE")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The file to write.")],
    model: Annotated[
        str | None, typer.Option(help="The model they are of, such as ptv3_base.")
    ] = None,
    card: Annotated[
        str | None, typer.Option(help="The classes: a dataset's name, or a card.yaml.")
    ] = None,
    grid: Annotated[
        float | None, typer.Option(help="Edge of a voxel in metres; by default as published.")
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(help="Fields it reads, such as coord,color; by default as published."),
    ] = None,
    scale: Annotated[
        list[str] | None, typer.Option(metavar="FIELD=NUMBER", help="What a field is divided by.")
    ] = None,
    center: Annotated[
        list[str] | None, typer.Option(metavar="FIELD=NUMBER", help="What is taken off before.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An argument unlike the named model's."),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="pointcept: write a model.pt in its layout.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace a file that exists.")] = False,
) -> None:
    """Turn published weights into a model file, or a model file into published weights."""
    _check_out(file, out, overwrite)
    if to is not None:
        _export(file, out, to)
        return
    for flag, value in (("--model", model), ("--card", card)):
        if not value:
            raise UsageError(
                f"{flag} is needed to import weights (see pctx convert --help); a model.pt "
                "goes out by --to pointcept"
            )
    if grid is not None and not 0 < grid < float("inf"):
        raise UsageError(f"--grid must be above 0 metres, found {grid}")
    assert model is not None and card is not None
    spec = _features(features, scale or [], center or [])
    _import(file, out, model=model, card=card, grid=grid, features=spec, settings=settings or [])


def _import(
    file: Path,
    out: Path,
    *,
    model: str,
    card: str,
    grid: float | None,
    features: FeatureSpec | None,
    settings: list[str],
) -> None:
    from pctx.convert import MisfitError, import_published, read_published
    from pctx.data.cards import card as named_card

    weights = read_published(file)
    labels = named_card(card).labels
    try:
        checkpoint = import_published(
            weights,
            model=model,
            labels=labels,
            features=features,
            grid_size=grid,
            overrides=_settings(settings),
        )
    except MisfitError as error:
        for line in error.difference.lines():
            typer.echo(line)
        what = "--model, --card, --features and --set tell what they are of"
        raise ValueError(f"{file}: {error}; {what}") from error
    except (ValueError, TypeError) as error:  # of the arguments: the file itself was read
        raise UsageError(str(error)) from error
    checkpoint.save(out)
    log.info("%s: %s, with the %d weights of %s", out, model, len(checkpoint.weights), file)
    log.info(
        "it reads %s; voxels of %g m; %d classes of %s",
        ", ".join(checkpoint.features.fields),
        checkpoint.grid_size,
        len(labels),
        card,
    )
    log.info("next: pctx predict %s SCAN -o LABELLED", out)


def _export(file: Path, out: Path, to: str) -> None:
    from pctx.checkpoint import load_checkpoint
    from pctx.convert import write_published

    if to != POINTCEPT:
        raise UsageError(f"--to must be {POINTCEPT}, found {to!r}")
    checkpoint = load_checkpoint(file)
    write_published(out, checkpoint)
    log.info("%s: %d weights in the layout of Pointcept", out, len(checkpoint.weights))


def _check_out(file: Path, out: Path, overwrite: bool) -> None:
    if out.is_dir():
        raise UsageError(f"-o {out} is a folder; give the name of a file")
    if out.exists() and file.exists() and out.samefile(file):
        raise UsageError(f"-o {out} is the file that is read; write to another name")
    if out.exists() and not overwrite:
        raise FileExistsError(f"{out}: exists already; --overwrite replaces it")


def _features(fields: str | None, scales: list[str], centers: list[str]) -> FeatureSpec | None:
    """Scale named fields as published, but where flags say otherwise."""
    from dataclasses import replace

    from pctx.convert import published_features

    own = {
        "scales": named_numbers("--scale", scales),
        "centers": named_numbers("--center", centers),
    }
    if fields is None:
        if any(own.values()):
            raise UsageError("--scale and --center go with --features; name the fields too")
        return None
    try:
        spec = published_features(*(name.strip() for name in fields.split(",")))
        return replace(
            spec,
            scales={**spec.scales, **own["scales"]},
            centers={**spec.centers, **own["centers"]},
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def _settings(pairs: list[str]) -> dict[str, Any]:
    """Read KEY=VALUE, the values as YAML: numbers, words, true, [lists]."""
    import yaml

    found = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            value = None
        if not name or not isinstance(value, str | int | float | list):
            raise UsageError(f"--set takes KEY=VALUE, such as window_size=128; found {pair!r}")
        found[name] = value
    return found
