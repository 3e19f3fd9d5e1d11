"""pctx benchmark predict: what labelling a scan costs, beside the plain loop of test programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pctx.cli.config import UsageError, pick_device
from pctx.cli.records import FACTS, check_records, facts
from pctx.cli.subjects import mark, measuring, parse_keys, print_table, short, write_row

if TYPE_CHECKING:
    import numpy as np

    from pctx.checkpoint import Checkpoint
    from pctx.data.labels import LabelSet
    from pctx.inference.plain_predict import PredictReport


@dataclass
class PredictConfig:
    """The keys of `pctx benchmark predict`, each with what it means."""

    model: str | None = field(default=None, metadata={"is": "a model file"})
    file: Any = field(
        default=None,
        metadata={"is": "a scan, or several as [a,b]; with labels they are scored too"},
    )
    repeats: int = field(default=3, metadata={"is": "runs of each way, at most"})
    threads: int = field(default=1, metadata={"is": "of torch"})
    device: str = field(default="cpu", metadata={"is": "cpu, cuda, auto"})
    csv: str | None = field(default=None, metadata={"is": "a file to which the row is added"})


EXAMPLES = """Examples:

pctx benchmark predict model=model.pt file=scan.laz

pctx benchmark predict model=model.pt 'file=[a.laz,b.laz,c.laz]' csv=predict.csv
"""

_LEAST_RATIO = 8.0
"""How many times as long the plain loop should take."""
_MOST_LOST = 1.0
"""Points of mIoU by which a single pass may be below the loop's ten views."""

_SETTINGS = ("threads", "model", "file", "repeats")
_LOOPS = {"plain": "ten views", "single": "one view"}
_WAYS = ("predictor", *_LOOPS)
_NAME = 24
"""Letters of a file's name in the table."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Result:
    """A file labelled every way, or several files together.

    Attributes:
        ms: by way.
        confusion: (classes, classes) by way.
    """

    name: str
    points: int
    ms: Mapping[str, float]
    confusion: Mapping[str, np.ndarray]

    def __add__(self, other: _Result) -> _Result:
        return _Result(
            name="together",
            points=self.points + other.points,
            ms={way: ms + other.ms[way] for way, ms in self.ms.items()},
            confusion={way: sums + other.confusion[way] for way, sums in self.confusion.items()},
        )

    def miou(self, labels: LabelSet) -> dict[str, float]:
        """Give that of each way in points; NaN where no label is known."""
        from pctx.engine.metrics import Scores

        return {
            way: 100 * Scores(confusion=confusion, labels=labels).miou
            for way, confusion in self.confusion.items()
        }


def predict(context: typer.Context) -> None:
    """Measure `pctx predict` beside voxels, a pass and a k-d tree for each of ten views."""
    config = parse_keys(PredictConfig, context.args)
    if config.csv is not None:
        check_records(Path(config.csv), _columns())
    for name in ("model", "file"):
        if not getattr(config, name):
            raise UsageError(f"{name} is needed: add {name}=…")
    config = replace(config, device=pick_device(config.device))
    files = [
        Path(str(f)) for f in (config.file if isinstance(config.file, list) else [config.file])
    ]
    from pctx.checkpoint import load_checkpoint

    checkpoint = load_checkpoint(str(config.model))
    with measuring(config.threads) as tell:
        results = [_measure(checkpoint, file, config, tell) for file in files]
    here = facts(config.device)
    together = [reduce(add, results)] if len(results) > 1 else []
    rows = [row for result in results + together for row in _rows(result, checkpoint.labels)]
    caption = f"{config.model}; medians of up to {config.repeats} runs"
    headings = ("", "points", "ms", "plainer way", "ms", "ratio", "target")
    print_table(rows, here, config.threads, caption, headings)
    for file, result in zip(files, results, strict=True):
        row = {**here, **{name: getattr(config, name) for name in _SETTINGS}}
        row |= {"file": str(file), "points": result.points}
        row |= {f"{way}_s": f"{ms / 1e3:.3f}" for way, ms in result.ms.items()}
        scores = result.miou(checkpoint.labels)
        row |= {f"{way}_miou": f"{score:.4f}" for way, score in scores.items()}
        write_row(row, _columns(), config.csv)


def _columns() -> list[str]:
    times, scores = ([f"{way}_{what}" for way in _WAYS] for what in ("s", "miou"))
    return [*FACTS, *_SETTINGS, "points", *times, *scores]


def _measure(
    checkpoint: Checkpoint, file: Path, config: PredictConfig, tell: Callable[[str], object]
) -> _Result:
    from pctx.engine.metrics import confusion_matrix
    from pctx.inference.plain_predict import measure_predict

    report = measure_predict(
        checkpoint,
        file,
        repeats=config.repeats,
        device=config.device,
        tell=lambda what: tell(f"{file.name}: {what}"),
    )
    truth = _truth(report, checkpoint.labels)
    work = report.work
    return _Result(
        name=file.name,
        points=work.size,
        ms={"predictor": work.ms, **{way: work.plain_ms(way) for way in _LOOPS}},
        confusion={
            way: confusion_matrix(truth, found, len(checkpoint.labels))
            for way, found in report.labels.items()
        },
    )


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


def _rows(result: _Result, labels: LabelSet) -> Iterator[tuple[str, ...]]:
    """Lay a result out: work, points, ms, plainer way, its ms, ratio, target."""
    ms, scores = result.ms, result.miou(labels)
    ratio, lost = ms["plain"] / ms["predictor"], scores["plain"] - scores["predictor"]
    name = result.name if len(result.name) <= _NAME else f"…{result.name[1 - _NAME :]}"
    first: tuple[str, ...] = (name, f"{result.points:,}", short(ms["predictor"]))
    for way, views in _LOOPS.items():
        target = f"≥ {_LEAST_RATIO:g} {mark(ratio >= _LEAST_RATIO)}" if way == "plain" else ""
        times = short(ms[way]), short(ms[way] / ms["predictor"])
        yield *first, f"loop, {views}", *times, target
        first = ("", "", "")
    first = ("  mIoU", "", f"{scores['predictor']:.1f}")
    for way, views in _LOOPS.items():
        target = f"loses ≤ {_MOST_LOST:g} {mark(lost <= _MOST_LOST)}" if way == "plain" else ""
        yield *first, f"loop, {views}", f"{scores[way]:.1f}", "", target
        first = ("", "", "")
