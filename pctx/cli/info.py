"""pctx info: what is in a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pctx.cli.tables import plain_console

if TYPE_CHECKING:
    from pctx.geometry.points import PointCloud

EXAMPLES = """Examples:

pctx info scan.laz

pctx info scans/*.ply --json
"""


def info(
    files: Annotated[list[Path], typer.Argument(help="Point-cloud files.", metavar="FILE")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Print fields, counts, extent, reference system, spacing, classes and a grid size."""
    from pctx.data.io.formats import read
    from pctx.data.io.las_crs import read_crs

    failed = False
    for file in files:
        try:
            facts = describe(read(file)) | {"crs": read_crs(file)}
        except (ValueError, OSError) as error:
            sys.stderr.write(f"pctx: {error}\n")
            failed = True
            continue
        if as_json:
            typer.echo(json.dumps({"file": str(file), **facts}))
        else:
            _print(file, facts)
    if failed:
        raise typer.Exit(1)


def describe(cloud: PointCloud) -> dict[str, Any]:
    """Gather the facts of a cloud as plain values; lengths in metres."""
    import numpy as np

    from pctx.data.spacing import median_spacing, suggest_grid_size

    finite = cloud.xyz[cloud.finite]
    facts: dict[str, Any] = {
        "points": len(cloud),
        "not_finite": len(cloud) - len(finite),
        "fields": _fields(cloud),
    }
    if len(finite):
        low, high = finite.min(axis=0), finite.max(axis=0)
        facts |= {"min": low.tolist(), "max": high.tolist(), "extent": (high - low).tolist()}
    spacing = median_spacing(cloud.coord[cloud.finite])
    if spacing:
        facts |= {"spacing": spacing, "suggested_grid_size": suggest_grid_size(spacing)}
    if cloud.intensity is not None and np.isfinite(cloud.intensity).any():
        seen = cloud.intensity[np.isfinite(cloud.intensity)]
        facts["intensity"] = [float(seen.min()), float(np.median(seen)), float(seen.max())]
    if cloud.label is not None:
        ids, counts = np.unique(cloud.label, return_counts=True)
        facts["classes"] = dict(zip(map(str, ids.tolist()), counts.tolist(), strict=True))
    return facts


def _fields(cloud: PointCloud) -> list[str]:
    named = ("color", "intensity", "normal", "label", "instance")
    return ["coord", *(n for n in named if getattr(cloud, n) is not None), *cloud.extra]


def _print(file: Path, facts: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column()
    points = f"{facts['points']:,}"
    if facts["not_finite"]:
        points += f" ({facts['not_finite']:,} not finite)"
    table.add_row("points", points)
    table.add_row("fields", ", ".join(facts["fields"]))
    if "extent" in facts:
        table.add_row("extent", " x ".join(f"{v:,.2f}" for v in facts["extent"]) + " m")
        table.add_row("from", ", ".join(f"{v:,.3f}" for v in facts["min"]))
        table.add_row("to", ", ".join(f"{v:,.3f}" for v in facts["max"]))
    if facts["crs"]:
        table.add_row("crs", facts["crs"])
    if "spacing" in facts:
        table.add_row("spacing", f"{facts['spacing']:g} m (median to the nearest point)")
        table.add_row("grid size", f"{facts['suggested_grid_size']:g} m to start with")
    if "intensity" in facts:
        low, middle, high = facts["intensity"]
        table.add_row("intensity", f"{low:,g} to {high:,g} (median {middle:,g})")
    for code, count in facts.get("classes", {}).items():
        table.add_row(f"class {code}", f"{count:,} ({100 * count / facts['points']:.1f} %)")
    console = plain_console()
    console.print(str(file), style="bold", soft_wrap=True, highlight=False)
    console.print(table)
