"""Tables on the terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pctx.engine.metrics import Scores


def print_scores(scores: Scores, title: str) -> None:
    """Print IoU, accuracy and points of each class, and the means."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("class")
    for heading in ("IoU", "accuracy", "points"):
        table.add_column(heading, justify="right")
    rows = zip(scores.labels.names, scores.iou, scores.accuracy, scores.support, strict=True)
    for name, iou, accuracy, points in rows:
        table.add_row(name, _score(iou), _score(accuracy), f"{points:,}")
    table.add_section()
    present, total = scores.num_present, len(scores.labels)
    over = "" if present == total else f" (of {present} classes present)"
    points = f"{int(scores.support.sum()):,}"
    table.add_row(f"mean{over}", _score(scores.miou), _score(scores.macc), points, style="bold")
    table.add_row("overall", "", _score(scores.oa), "")
    Console().print(table)


def _score(value: float) -> str:
    return "n/a" if math.isnan(value) else f"{value:.3f}"
