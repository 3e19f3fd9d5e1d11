"""pctx info: what is in a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np

    from pctx.geometry.points import PointCloud

EXAMPLES = """Examples:

pctx info scan.laz

pctx info scans/*.ply --json
"""

SPACING_SAMPLE = 2000
"""Points whose nearest neighbour is looked up for the spacing."""


def info(
    files: Annotated[list[Path], typer.Argument(help="Point-cloud files.", metavar="FILE")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Print fields, counts, extent, spacing, classes and a grid size to start with."""
    from pctx.data.io.formats import read

    failed = False
    for file in files:
        try:
            facts = describe(read(file))
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

    finite = cloud.xyz[cloud.finite]
    facts: dict[str, Any] = {
        "points": len(cloud),
        "not_finite": len(cloud) - len(finite),
        "fields": _fields(cloud),
    }
    if len(finite):
        low, high = finite.min(axis=0), finite.max(axis=0)
        facts |= {"min": low.tolist(), "max": high.tolist(), "extent": (high - low).tolist()}
    spacing = _spacing(cloud.coord[cloud.finite])
    if spacing:
        facts |= {"spacing": spacing, "suggested_grid_size": _round_125(2 * spacing)}
    if cloud.label is not None:
        ids, counts = np.unique(cloud.label, return_counts=True)
        facts["classes"] = dict(zip(map(str, ids.tolist()), counts.tolist(), strict=True))
    return facts


def _fields(cloud: PointCloud) -> list[str]:
    named = ("color", "intensity", "normal", "label", "instance")
    return ["coord", *(n for n in named if getattr(cloud, n) is not None), *cloud.extra]


def _spacing(coord: np.ndarray) -> float | None:
    """Give the median distance, in metres, of a sample's points to their nearest neighbours."""
    import numpy as np
    from scipy.spatial import cKDTree

    distinct = np.unique(coord, axis=0) if len(coord) <= 3_000_000 else coord
    if len(distinct) < 2:
        return None
    sample = distinct[:: max(1, len(distinct) // SPACING_SAMPLE)]
    distance = cKDTree(distinct).query(sample, k=2)[0][:, 1]
    return round(float(np.median(distance)), 4)


def _round_125(value: float) -> float:
    """Round to 1, 2 or 5 times a power of ten."""
    import numpy as np

    power = 10.0 ** np.floor(np.log10(max(value, 1e-6)))
    steps = np.array([1, 2, 5, 10]) * power
    return float(f"{steps[np.argmin(np.abs(np.log(steps / max(value, 1e-6))))]:.6g}")


def _print(file: Path, facts: dict[str, Any]) -> None:
    from rich.console import Console
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
    if "spacing" in facts:
        table.add_row("spacing", f"{facts['spacing']:g} m (median to the nearest point)")
        table.add_row("grid size", f"{facts['suggested_grid_size']:g} m to start with")
    for code, count in facts.get("classes", {}).items():
        table.add_row(f"class {code}", f"{count:,} ({100 * count / facts['points']:.1f} %)")
    console = Console()
    console.print(str(file), style="bold", soft_wrap=True, highlight=False)
    console.print(table)
