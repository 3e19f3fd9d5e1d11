"""Figures of a run: the confusion matrix, the reliability, the curves of loss and mIoU."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from pctx.data.io.atomic import replacing
from pctx.engine.calibration import BINS, Calibration
from pctx.engine.metrics import Scores


def save_confusion(scores: Scores, path: Path) -> None:
    """Draw the confusion matrix, rows in per cent of the true points of a class."""
    from matplotlib.figure import Figure  # drawing costs a second to import

    counts = scores.confusion
    if not counts[:, -1].any():
        counts = counts[:, :-1]
    share = counts / np.maximum(scores.support[:, None], 1)
    names = list(scores.labels.names)
    columns = [*names, "none"][: share.shape[1]]
    side = 2.6 + 0.46 * len(names)
    figure = Figure(figsize=(side + 0.4, side), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1, aspect="equal")
    for row, column in np.ndindex(*share.shape):
        value = share[row, column]
        if value >= 0.005:
            colour = "white" if value > 0.55 else "#222222"
            text = f"{100 * value:.0f}"
            axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=8)
    axes.set_xticks(range(len(columns)), columns, rotation=45, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    title = f"mIoU {scores.miou:.3f}   OA {scores.oa:.3f}   (% of each true class)"
    axes.set_title(title, fontsize=10)
    axes.spines[:].set_visible(False)
    with replacing(path, overwrite=True) as beside:
        figure.savefig(beside)


def save_reliability(calibration: Calibration, path: Path) -> None:
    """Draw how often a model is right against how sure it is, as it is and at its temperature.

    Bars that reach the diagonal are those of a calibrated model; the shade below tells how many
    points are in each bin.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.2, 4.2), dpi=110, layout="constrained")
    best = calibration.temperature
    edges = np.linspace(0, 1, BINS + 1)
    for axes, temperature in zip(figure.subplots(1, 2, sharey=True), (1.0, best), strict=True):
        confidence, right, points = calibration.reliability(temperature)
        share = points / max(points.sum(), 1)
        axes.bar(edges[:-1], share, 1 / BINS, align="edge", color="#d9dee3", label="points")
        height = np.nan_to_num(right)
        axes.bar(
            edges[:-1],
            height,
            1 / BINS,
            align="edge",
            fill=False,
            edgecolor="#2f6f9f",
            label="share right",
        )
        axes.plot(confidence, right, "o", color="#c1543a", ms=3, label="mean confidence")
        axes.plot([0, 1], [0, 1], color="#888888", lw=1, ls="--")
        name = "as it is" if axes.get_subplotspec().is_first_col() else f"temperature {best:.2f}"
        axes.set_title(f"{name}: ECE {calibration.ece(temperature):.3f}", fontsize=10)
        axes.set_xlabel("confidence")
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("share right")
    figure.axes[0].legend(frameon=False, loc="upper left", fontsize=8)
    with replacing(path, overwrite=True) as beside:
        figure.savefig(beside)


def save_curves(table: Path, path: Path) -> None:
    """Draw loss and mIoU over the steps of a `metrics.csv`.

    Raises:
        ValueError: it is none.
    """
    from matplotlib.figure import Figure

    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    figure = Figure(figsize=(9, 3.6), dpi=110, layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, names, title in zip(panels, _PANELS, ("loss", "mIoU, validation"), strict=True):
        for name, label, colour in names:
            try:
                points = [(int(row["step"]), float(row[name])) for row in rows if row.get(name)]
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{table}: not the metrics of a run: a step or {name} is no number"
                ) from error
            if points:
                marker = "o" if len(points) < 40 else None
                axes.plot(
                    *zip(*points, strict=True), label=label, color=colour, ms=3, marker=marker
                )
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    panels[1].set_ylim(0, 1)
    if panels[0].lines:
        panels[0].legend(frameon=False)
    with replacing(path, overwrite=True) as beside:
        figure.savefig(beside)


_PANELS = (
    (("train/loss", "training", "#8aa6c1"), ("val/loss", "validation", "#c1543a")),
    (("val/miou", "mIoU", "#2f6f4f"),),
)
