"""The page of `pctx report`: one file, opens offline."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pctx.engine.metrics import Scores

_STYLE = """
:root { color-scheme: light dark; --faint: #6b7280; --line: #8884; --bar: #4c7bd9; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1080px;
  margin: 2em auto; padding: 0 1.2em; }
h1 { font-size: 1.5em; margin: 0; } h2 { font-size: 1.15em; margin: 2em 0 .6em; }
p.about, figcaption { color: var(--faint); margin: .2em 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .2em .9em .2em 0; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
tr.mean td { font-weight: 600; }
td i { display: inline-block; width: .8em; height: .8em; border-radius: 3px; margin-right: .6em; }
td.bar { width: 12em; }
td.bar span { display: block; height: .7em; background: var(--bar); border-radius: 3px; }
img { max-width: 100%; height: auto; background: #fff; border-radius: 6px; }
figure { margin: 0 0 1.4em; }
pre { overflow: auto; padding: 1em; font-size: 13px;
  border: 1px solid var(--line); border-radius: 6px; }
"""


@dataclass(frozen=True, kw_only=True)
class Shot:
    """A scan that went badly.

    Attributes:
        name: of the scan.
        about: its scores in words.
        picture: a PNG.
    """

    name: str
    about: str
    picture: bytes


@dataclass(frozen=True, kw_only=True, eq=False)
class Report:
    """What a page tells of a run; what is absent is None or empty.

    Attributes:
        title: the run.
        about: a line below it.
        curves: a PNG.
        scores: over all scans that were looked at.
        scored: which those are, in words.
        confusion: a PNG.
        worst: the scans that went worst, the worst first.
        texts: by heading, such as the configuration.
        environment: by name, such as versions.
    """

    title: str
    about: str
    curves: bytes | None
    scores: Scores | None
    scored: str
    confusion: bytes | None
    worst: Sequence[Shot]
    texts: Mapping[str, str]
    environment: Mapping[str, str]


def report_page(report: Report) -> str:
    """Write the page."""
    parts = [f"<h1>{escape(report.title)}</h1><p class=about>{escape(report.about)}</p>"]
    if report.curves:
        parts.append(f"<h2>Curves</h2>{_image(report.curves, 'loss and mIoU over the steps')}")
    parts.append(f"<h2>Classes</h2><p class=about>{escape(report.scored)}</p>")
    if report.scores:
        parts.append(_classes(report.scores))
    if report.confusion:
        parts.append(f"<h2>Confusion</h2>{_image(report.confusion, 'confusion matrix')}")
    if report.worst:
        parts.append("<h2>Worst scans</h2>")
    for shot in report.worst:
        caption = f"<figcaption>{escape(shot.name)}: {escape(shot.about)}</figcaption>"
        parts.append(f"<figure>{caption}{_image(shot.picture, shot.name)}</figure>")
    for heading, text in report.texts.items():
        parts.append(f"<h2>{escape(heading)}</h2><pre>{escape(text)}</pre>")
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>"
        for name, value in report.environment.items()
    )
    parts.append(f"<h2>Environment</h2><table>{rows}</table>")
    head = f"<meta charset=utf-8><title>{escape(report.title)}</title><style>{_STYLE}</style>"
    return f"<!doctype html>\n<html lang=en><head>{head}</head>\n<body>" + "\n".join(parts) + "\n"


def _classes(scores: Scores) -> str:
    rows = []
    for i, name in enumerate(scores.labels.names):
        swatch = f"<i style='background:rgb{tuple(scores.labels.colors[i])}'></i>"
        share = 0.0 if math.isnan(scores.iou[i]) else float(scores.iou[i])
        bar = f"<td class=bar><span style='width:{100 * share:.1f}%'></span></td>"
        values = (scores.iou[i], scores.precision[i], scores.accuracy[i])
        cells = "".join(f"<td>{_score(value)}</td>" for value in values)
        rows.append(
            f"<tr><td>{swatch}{escape(name)}</td>{bar}{cells}<td>{scores.support[i]:,}</td></tr>"
        )
    present = f"mean of {scores.num_present} classes that are there"
    total = int(scores.support.sum())
    rows.append(
        f"<tr class=mean><td>{present}</td><td></td><td>{_score(scores.miou)}</td><td></td>"
        f"<td>{_score(scores.macc)}</td><td>{total:,}</td></tr>"
        f"<tr><td>all points</td><td></td><td></td><td></td><td>{_score(scores.oa)}</td>"
        "<td></td></tr>"
    )
    names = ("class", "", "IoU", "precision", "recall", "points")
    head = "".join(f"<th>{name}</th>" for name in names)
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _image(png: bytes, words: str) -> str:
    data = base64.b64encode(png).decode("ascii")
    return f'<img alt="{escape(words)}" src="data:image/png;base64,{data}">'


def _score(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"
