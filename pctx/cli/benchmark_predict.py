"""pctx benchmark predict: what labelling a scan costs, beside the plain loop of test programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pctx.cli.config import UsageError, pick_device
from pctx.cli.records import FACTS, check_records, facts
from pctx.cli.subjects import mark, measuring, parse_keys, print_table, short, write_row

if TYPE_CHECKING:
    import numpy as np

    from pctx.data.labels import LabelSet
    from pctx.inference.plain_predict import PredictReport


@dataclass
class PredictConfig:
    """The keys of `pctx benchmark predict`, each with what it means."""

    model: str | None = field(default=None, metadata={"is": "a model file"})
    file: str | None = field(default=None, metadata={"is": "a scan; with labels it is scored too"})
    repeats: int = field(default=3, metadata={"is": "runs of each way, at most"})
    threads: int = field(default=1, metadata={"is": "of torch"})
    device: str = field(default="cpu", metadata={"is": "cpu, cuda, auto"})
    csv: str | None = field(default=None, metadata={"is": "a file to which the row is added"})


EXAMPLES = """Examples:

pctx benchmark predict model=model.pt file=scan.laz
"""

_LEAST_RATIO = 8.0
"""How many times as long the plain loop should take."""
_MOST_LOST = 1.0
"""Points of mIoU by which a single pass may be below the loop's ten views."""

_SETTINGS = ("threads", "model", "file", "repeats")
_WAYS = {"predictor": "", "plain": "ten views", "single": "one view"}


def predict(context: typer.Context) -> None:
    """Measure `pctx predict` beside voxels, a pass and a k-d tree for each of ten views."""
    config = parse_keys(PredictConfig, context.args)
    if config.csv is not None:
        check_records(Path(config.csv), _columns())
    for name in ("model", "file"):
        if getattr(config, name) is None:
            raise UsageError(f"{name} is needed: add {name}=…")
    config = replace(config, device=pick_device(config.device))
    from pctx.checkpoint import load_checkpoint
    from pctx.inference.plain_predict import measure_predict

    checkpoint = load_checkpoint(str(config.model))
    with measuring(config.threads) as tell:
        report = measure_predict(
            checkpoint,
            Path(str(config.file)),
            repeats=config.repeats,
            device=config.device,
            tell=tell,
        )
    here = facts(config.device)
    scores = _scores(report, checkpoint.labels)
    caption = f"{config.file}, {report.work.size:,} points; medians of up to {config.repeats} runs"
    print_table(_rows(report, scores), here, config.threads, caption)
    row = {**here, **{name: getattr(config, name) for name in _SETTINGS}}
    row |= {"points": report.work.size, "predictor_s": f"{report.work.ms / 1e3:.3f}"}
    for way in ("plain", "single"):
        row[f"{way}_s"] = f"{report.work.plain_ms(way) / 1e3:.3f}"
    write_row(
        {**row, **{f"{way}_miou": f"{scores[way]:.4f}" for way in _WAYS}}, _columns(), config.csv
    )


def _columns() -> list[str]:
    times, scores = ([f"{way}_{what}" for way in _WAYS] for what in ("s", "miou"))
    return [*FACTS, *_SETTINGS, "points", *times, *scores]


def _scores(report: PredictReport, labels: LabelSet) -> dict[str, float]:
    """Give the mIoU of each way in points; NaN where the scan has no labels that are known."""
    from pctx.engine.metrics import Scores, confusion_matrix

    truth = _truth(report, labels)
    return {
        way: 100 * Scores(confusion=confusion_matrix(truth, found, len(labels)), labels=labels).miou
        for way, found in report.labels.items()
    }


def _truth(report: PredictReport, labels: LabelSet) -> np.ndarray:
    """Give (n,) class numbers; -1 where a code is of no class of the model."""
    import numpy as np

    raw = report.cloud.label
    known = {code for ids in (*labels.raw, labels.ignore) for code in ids}
    if raw is None:
        return np.full(len(report.cloud), -1)
    good = np.isin(raw, list(known))
    truth = np.full(len(raw), -1)
    truth[good] = labels.encode(raw[good])
    return truth


def _rows(report: PredictReport, scores: dict[str, float]) -> Iterator[tuple[str, ...]]:
    """Lay the report out: work, points, ms, plainer way, its ms, ratio, target."""
    first = ("read and label", f"{report.work.size:,}", short(report.work.ms))
    for way in ("plain", "single"):
        ratio = report.work.ratio(way)
        target = f"≥ {_LEAST_RATIO:g} {mark(ratio >= _LEAST_RATIO)}" if way == "plain" else ""
        yield *first, f"loop, {_WAYS[way]}", short(report.work.plain_ms(way)), short(ratio), target
        first = ("", "", "")
    first = ("mIoU in points", "", f"{scores['predictor']:.1f}")
    for way in ("plain", "single"):
        lost = scores["plain"] - scores["predictor"]
        target = f"loses ≤ {_MOST_LOST:g} {mark(lost <= _MOST_LOST)}" if way == "plain" else ""
        yield *first, f"loop, {_WAYS[way]}", f"{scores[way]:.1f}", "", target
        first = ("", "", "")
