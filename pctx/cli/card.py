"""pctx card: write the card of a folder of scans."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pctx.cli.config import UsageError, quoted

if TYPE_CHECKING:
    from pctx.cli.draft import Draft
    from pctx.data.audit import ScanFacts

EXAMPLES = """Examples:

pctx card scans                          (writes scans/card.yaml)

pctx card scans -o mine.yaml --name "North tiles"
"""

_OPTIONAL = ("intensity", "color", "returns", "normal")
_LOUD = 3.0
"""Values of a field above which it is worth a scale."""


def card(
    place: Annotated[str, typer.Argument(help="A folder of labelled scans.", metavar="FOLDER")],
    output: Annotated[
        Path | None, typer.Option("-o", "--out", help="By default FOLDER/card.yaml.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="By default the folder's.")] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes; 0 reads in this one.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a card.")] = False,
) -> None:
    """Write a card.yaml from the files found: classes with counts, colours, splits. Then edit it.

    LAS codes are named as ASPRS does; SemanticKITTI and nuScenes are recognised.
    """
    from pctx.cli.draft import card_text, draft
    from pctx.data.io.atomic import replacing

    if not place:  # it would be the current folder
        raise UsageError("FOLDER is empty; name a folder, or . for this one")
    folder = Path(place)
    target = folder / "card.yaml" if output is None else output
    lists = target.parent / "splits"
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target}: exists already; --overwrite replaces it")
    facts = _look(folder, workers)
    broken = [f for f in facts if f.error is not None]
    for fact in broken:
        sys.stderr.write(f"pctx: {fact.error}\n")
    known = [f for f in facts if f.error is None and f.points]
    try:
        found = draft(known)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    if found.listed_beside and any(lists.glob("*.txt")) and not overwrite:
        raise FileExistsError(f"{lists} holds lists already; --overwrite replaces them")
    title = name or folder.resolve().name
    points = sum(f.points for f in known)
    text = card_text(found, title, f"{len(known):,} files, {points:,} points.")
    if found.listed_beside:
        for split, scans in found.splits.items():
            with replacing(lists / f"{split}.txt", overwrite=True) as beside:
                beside.write_text("".join(f"{scan}\n" for scan in scans), encoding="utf-8")
    with replacing(target, overwrite=overwrite) as beside:
        beside.write_text(text, encoding="utf-8", errors="backslashreplace")
    _print(found, target)
    if found.like:
        root = _override("data.root", folder)
        typer.echo(f"as published: pctx check data={found.like} {root}")
    _print_next(folder, None if output is None else target, known)
    if broken:
        raise typer.Exit(1)


def _look(folder: Path, workers: int) -> list[ScanFacts]:
    from rich.console import Console
    from rich.progress import track

    from pctx.data.audit import Question, survey
    from pctx.data.datasets.folder import FolderDataset
    from pctx.data.features import FeatureSpec

    dataset = FolderDataset(folder, "generic", {"all": ["**/*"]})
    splits = {"all": dataset.scans("all")}
    question = Question(features=FeatureSpec(fields=_OPTIONAL), grid_size=1.0)
    return list(
        track(
            survey(dataset, splits, question, workers),
            "reading",
            total=len(splits["all"]),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
        )
    )


def _print(found: Draft, target: Path) -> None:
    for name, raw in zip(found.labels.names, found.labels.raw, strict=True):
        points = sum(found.counts.get(code, (0, 0))[0] for code in raw)
        if points or found.like is None:
            typer.echo(f"  {', '.join(map(str, raw)):>12}  {name:24} {points:>14,}")
    for code in found.labels.ignore:
        if code in found.counts:
            typer.echo(f"  {code:>12}  {'(ignored)':24} {found.counts[code][0]:>14,}")
    sizes = ", ".join(f"{split} {len(scans):,}" for split, scans in found.splits.items())
    typer.echo(f"splits: {sizes}. {found.why}")
    if found.unlabeled:
        typer.echo(f"without labels, and so in no split: {len(found.unlabeled):,}")
    typer.echo(f"written: {target}")


def _print_next(folder: Path, target: Path | None, known: Sequence[ScanFacts]) -> None:
    """Say which commands come next, with what the files suggest."""
    import numpy as np

    from pctx.data.spacing import suggest_grid_size

    words = ["data=folder", _override("data.root", folder)]
    if target is not None:
        words.append(_override("data.card", target))
    if spacings := [f.spacing for f in known if f.spacing]:
        words.append(f"data.grid_size={suggest_grid_size(float(np.median(spacings))):g}")
    useful = [
        field
        for field in _OPTIONAL
        if not any(field in f.missing for f in known)
        and not all(field in f.constant for f in known)
    ]
    # Returns are what sensors in the air write.
    height = "terrain_height" if "returns" in useful else "height"
    words.append(f"'data.features.fields=[{','.join([height, *useful, 'shape'])}]'")
    if "intensity" in useful:
        reach = float(np.median([f.reach["intensity"] for f in known if "intensity" in f.reach]))
        if reach > _LOUD:
            words.append(f"data.features.scales.intensity={float(f'{reach / 2:.1g}'):g}")
    for verb in ("check", "train"):
        typer.echo(f"next: pctx {verb} {' '.join(words)}")


def _override(key: str, value: Path) -> str:
    plain = str(value)
    if all(c.isalnum() or c in "/._-" for c in plain):
        return f"{key}={plain}"
    return shlex.quote(quoted(key, plain))
