"""Tables on the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from pctx.engine.metrics import Scores

WIDEST = 10_000
"""Columns of a terminal in which every table has room."""


def plain_console(**options: Any) -> Console:
    """Make a console that prints names as they are: [brackets] and :colons: are part of some."""
    from rich.console import Console

    return Console(markup=False, emoji=False, **options)


def print_whole(table: Table, **options: Any) -> None:
    """Print a table whose numbers stay whole on narrow terminals too.

    Names fold first, then the frame goes; what is wider still is left to the terminal to wrap.

    Args:
        table: its numbers are in columns that do not wrap.
        options: of the console.
    """
    console = plain_console(**options)
    if _least_width(table, console) > console.width:
        table.box, table.padding, table.pad_edge = None, (0, 1, 0, 0), False
        console.width = max(console.width, _least_width(table, console))
    console.print(table)


def print_scores(scores: Scores, title: str) -> None:
    """Print IoU, precision, recall and points of each class, and the means."""
    table = _scores_table(title, "class", ("IoU", "precision", "recall", "points"))
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
    print_whole(table)


def print_parts(parts: Mapping[str, Scores]) -> None:
    """Print the means of each part of the scans, a line a part."""
    headings = "mIoU", "mAcc", "OA", "classes", "points"
    table = _scores_table("parts of the scans", "points", headings)
    for name, scores in parts.items():
        values = (_score(value) for value in (scores.miou, scores.macc, scores.oa))
        table.add_row(name, *values, str(scores.num_present), f"{int(scores.support.sum()):,}")
    print_whole(table)


def _scores_table(title: str, names: str, numbers: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column(names, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _least_width(table: Table, console: Console) -> int:
    return console.measure(table, options=console.options.update(width=WIDEST)).minimum


def _score(value: float) -> str:
    return "n/a" if math.isnan(value) else f"{value:.3f}"
