"""Tables on the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from pctx.engine.metrics import Scores


def plain_console(**options: Any) -> Console:
    """Make a console that prints names as they are: [brackets] and :colons: are part of some."""
    from rich.console import Console

    return Console(markup=False, emoji=False, **options)


def print_scores(scores: Scores, title: str) -> None:
    """Print IoU, precision, recall and points of each class, and the means."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("class")
    for heading in ("IoU", "precision", "recall", "points"):
        table.add_column(heading, justify="right")
    columns = scores.iou, scores.precision, scores.accuracy
    for row, name in enumerate(scores.labels.names):
        values = (_score(column[row]) for column in columns)
        table.add_row(name, *values, f"{scores.support[row]:,}")
    table.add_section()
    present, total = scores.num_present, len(scores.labels)
    over = "" if present == total else f" (of {present} classes present)"
    points = f"{int(scores.support.sum()):,}"
    table.add_row(f"mean{over}", _score(scores.miou), "", _score(scores.macc), points, style="bold")
    table.add_row("weighted by points", _score(scores.fwiou), "", _score(scores.oa), "")
    plain_console().print(table)


def print_parts(parts: Mapping[str, Scores]) -> None:
    """Print the means of each part of the scans, a line a part."""
    from rich.table import Table

    table = Table(title="parts of the scans", title_justify="left", title_style="bold")
    table.add_column("points")
    for heading in ("mIoU", "mAcc", "OA", "classes", "points"):
        table.add_column(heading, justify="right")
    for name, scores in parts.items():
        values = (_score(value) for value in (scores.miou, scores.macc, scores.oa))
        table.add_row(name, *values, str(scores.num_present), f"{int(scores.support.sum()):,}")
    plain_console().print(table)


def _score(value: float) -> str:
    return "n/a" if math.isnan(value) else f"{value:.3f}"
