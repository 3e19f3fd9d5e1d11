"""pctx check: read a whole dataset and say what is wrong with it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from pctx.cli.config import UsageError, run_composed
from pctx.cli.feeding import check_numbers
from pctx.cli.tables import print_whole

if TYPE_CHECKING:
    from pctx.data.audit import ScanFacts
    from pctx.data.dataset import ScanDataset
    from pctx.data.findings import Findings
    from pctx.data.labels import LabelSet

EXAMPLES = """Examples:

pctx check data=folder data.root=scans                    (with the card that `pctx card` wrote)

pctx check data=folder data.root=scans data.card=asprs data.grid_size=0.5

pctx check data=semantic_kitti data.root=/data/kitti workers=8

pctx check data=folder data.root=scans json=true
"""


def check(context: typer.Context) -> None:
    """Read every scan of a dataset: classes by split, what is wrong, a grid size to start with.

    Exit code 1 where anything is wrong, each in one line.
    """
    run_composed("check", context.args, lambda config, _: report(config))


def report(config: Any) -> None:
    """Check what a composed configuration says, and print it.

    Raises:
        typer.Exit: with 1, where something is wrong.
    """
    from hydra.utils import instantiate

    from pctx.data.audit import Question, survey
    from pctx.data.findings import class_counts, findings

    data = config.data
    if not isinstance(config.workers, int) or config.workers < 0:
        raise UsageError(f"workers must be 0 or more, found {config.workers}")
    check_numbers(data)
    dataset = instantiate(data.dataset)
    features = instantiate(data.features, _convert_="all")
    splits = _splits(dataset)
    question = Question(
        features=features, filled=tuple(data.get("fill") or ()), grid_size=data.grid_size
    )
    total = sum(map(len, splits.values()))
    facts = list(_progress(survey(dataset, splits, question, config.workers), total))
    labels = dataset.card.labels
    found = findings(facts, splits, labels, data.grid_size, features)
    counts = class_counts(facts, list(splits), labels)
    if config.json:
        typer.echo(json.dumps(_as_json(facts, splits, counts, found), indent=1))
    else:
        _print(facts, splits, counts, labels, found, data.grid_size)
    for sentence in found.wrong:
        sys.stderr.write(f"pctx: {sentence}\n")
    if found.wrong:
        raise typer.Exit(1)


def _splits(dataset: ScanDataset) -> dict[str, list[str]]:
    splits = {}
    for split in dataset.splits:
        try:
            splits[split] = dataset.scans(split)
        except ValueError:  # no scan is in it, which is found wrong where it matters
            splits[split] = []
    return splits


def _progress(facts: Iterator[ScanFacts], total: int) -> Iterable[ScanFacts]:
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    hidden = not sys.stderr.isatty()
    return track(facts, "reading", total=total, console=console, disable=hidden)


def _as_json(
    facts: Sequence[ScanFacts],
    splits: Mapping[str, Sequence[str]],
    counts: Mapping[str, Mapping[str, int]],
    found: Findings,
) -> dict[str, Any]:
    codes: dict[str, int] = {}
    for fact in facts:
        for code, count in sorted((fact.codes or {}).items()):
            codes[str(code)] = codes.get(str(code), 0) + count
    points = {s: sum(f.points for f in facts if f.split == s) for s in splits}
    return {
        "splits": {s: {"scans": len(scans), "points": points[s]} for s, scans in splits.items()},
        "classes": counts,
        "codes": codes,
        "spacing": found.spacing,
        "suggested_grid_size": found.grid_size,
        "voxels": found.voxels,
        "wrong": found.wrong,
        "notes": found.notes,
    }


def _print(
    facts: Sequence[ScanFacts],
    splits: Mapping[str, Sequence[str]],
    counts: Mapping[str, Mapping[str, int]],
    labels: LabelSet,
    found: Findings,
    grid_size: float,
) -> None:
    from rich.table import Table

    table = Table(box=None)
    table.add_column("", overflow="fold")
    for split in splits:
        table.add_column(split, justify="right", no_wrap=True)
    table.add_row("scans", *(f"{len(scans):,}" for scans in splits.values()))
    of = {split: [f for f in facts if f.split == split and f.error is None] for split in splits}
    table.add_row("points", *(f"{sum(f.points for f in of[split]):,}" for split in splits))
    widths = [[f.size for f in of[split]] for split in splits]
    table.add_row("width", *(_range(each) for each in widths))
    table.add_section()
    total = {split: sum(counts[split].values()) for split in splits}
    for name in (*labels.names, "ignored"):
        cells = (_share(counts[split][name], total[split]) for split in splits)
        table.add_row(name, *cells, style="dim" if name == "ignored" else "")
    print_whole(table, width=None if sys.stdout.isatty() else 120, highlight=False)
    if found.spacing is not None:
        voxels = "" if found.voxels is None else f"; {found.voxels:,} voxels in the median scan"
        typer.echo(
            f"grid: points lie {found.spacing:g} m apart, {found.grid_size:g} m is a grid size to "
            f"start with; data.grid_size={grid_size:g}{voxels}"
        )
    for sentence in found.notes:
        typer.echo(f"note: {sentence}")
    if not found.wrong:
        typer.echo("nothing is wrong")


def _range(widths: Sequence[float]) -> str:
    if not widths:
        return ""
    low, high = f"{min(widths):,.0f}", f"{max(widths):,.0f}"
    return f"{low} m" if low == high else f"{low}-{high} m"


def _share(points: int, total: int) -> str:
    return f"{points:,} ({100 * points / total:.1f} %)" if points else "-"
