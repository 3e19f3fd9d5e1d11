"""pctx evaluate: full-resolution scores of a model on a split."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pctx.cli.config import UsageError, choose_backend, pick_device, run_composed, value_of
from pctx.cli.feeding import data_of, make_dataset

if TYPE_CHECKING:
    from pctx.checkpoint import Checkpoint
    from pctx.data.dataset import ScanDataset
    from pctx.engine.evaluation import Evaluation, Parts
    from pctx.engine.metrics import Scores
    from pctx.inference.predictor import Predictor

log = logging.getLogger(__name__)

EXAMPLES = """Examples:

pctx evaluate checkpoint=runs/…/model.pt                  (the data the run was trained on)

pctx evaluate checkpoint=model.pt split=test

pctx evaluate checkpoint=model.pt data=folder data.root=scans data.card=semantic_kitti

pctx evaluate checkpoint=model.pt boundary=0.5 'ranges=[20,40]'   (near other classes, by range)

pctx evaluate checkpoint=model.pt calibrate=true       (writes a model with a fitted temperature)
"""


def evaluate(context: typer.Context) -> None:
    """Score a model at every raw point of labelled scans: the split val, or another.

    `pctx evaluate --cfg job` shows every key.
    """
    training = _training_config(context.args)

    def task(config: Any, run: Path) -> Scores:
        if training is not None:
            config.data = data_of(training)
        return score(config, run)

    run_composed("evaluate", context.args, task)


def score(config: Any, run: Path) -> Scores:
    """Score what a composed configuration says, and write the result into the folder `run`."""
    from pctx.checkpoint import load_checkpoint
    from pctx.engine.evaluation import Parts
    from pctx.inference.predictor import Predictor, check_settings

    device = pick_device(config.device)
    checkpoint = load_checkpoint(config.checkpoint)
    fill = dict(config.data.get("fill") or {})
    try:
        check_settings(checkpoint, tile=config.tile, views=config.views, fill=fill)
        parts = Parts(
            boundary=config.boundary,
            ranges=tuple(config.ranges),
            densities=tuple(config.densities),
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
    dataset = make_dataset(config.data)
    _check_classes(dataset, checkpoint)
    predictor = Predictor(checkpoint, device, tile=config.tile, views=config.views, fill=fill)
    choose_backend(predictor.model, config.backend)
    result = score_split(dataset, predictor, config.split, run, parts)
    if config.calibrate:
        _save_calibrated(checkpoint, result, run / "model.pt")
    return result.scores


def _check_classes(dataset: ScanDataset, checkpoint: Checkpoint) -> None:
    """Find out whether the data's card has the model's classes; its raw ids may be others.

    Raises:
        UsageError: it has not.
    """
    found, wanted = dataset.card.labels.names, checkpoint.labels.names
    if found != wanted:
        raise UsageError(
            f"the card of the data ({dataset.card.name}) has the classes {_few(found)}, the model "
            f"{_few(wanted)}; name data (data=…) or a card (data.card=…) with those, in order"
        )


def _few(names: Sequence[str]) -> str:
    return f"{', '.join(names[:3])}{', …' if len(names) > 3 else ''} ({len(names)})"


def score_split(
    dataset: ScanDataset, predictor: Predictor, split: str, run: Path, parts: Parts | None = None
) -> Evaluation:
    """Predict every scan of a split, as `pctx predict` does, and count every raw point.

    The dataset's card tells which raw id is of which class; the classes are the model's.

    Prints the tables; writes `metrics.json`, `confusion.png` and `reliability.png`.

    Raises:
        ValueError: a scan has no labels, or raw ids that the card does not know.
    """
    from pctx.engine.evaluation import Parts, evaluate, nothing_yet

    labels = dataset.card.labels
    parts = Parts() if parts is None else parts
    result = nothing_yet(labels, parts)
    scans = dataset.scans(split)
    for scan in _progress(scans, split):
        cloud = dataset.read(scan)
        if cloud.label is None:
            raise ValueError(f"{scan}: no labels to compare with; pctx predict takes scans without")
        try:
            truth = labels.encode(cloud.label)
        except ValueError as error:
            raise ValueError(f"{scan}: {error}") from error
        result += evaluate(cloud, truth, predictor(cloud), parts)
    count = f"{len(scans)} scan{'s' if len(scans) > 1 else ''}"
    _report(result, f"split {split}, {count}, every raw point", run)
    return result


def _report(result: Evaluation, title: str, run: Path) -> None:
    """Print the tables, and write the files."""
    from pctx.cli.tables import print_parts, print_scores
    from pctx.data.io.atomic import replacing
    from pctx.engine.figures import save_confusion, save_reliability

    print_scores(result.scores, title=title)
    if result.parts:
        print_parts(result.part_scores)
    found = result.calibration
    if found.num_points:
        best = found.temperature
        log.info(
            "calibration error %.3f; %.3f at temperature %.2f", found.ece(), found.ece(best), best
        )
    with replacing(run / "metrics.json", overwrite=True) as beside:
        beside.write_text(json.dumps(result.to_dict(), indent=1) + "\n")
    save_confusion(result.scores, run / "confusion.png")
    save_reliability(found, run / "reliability.png")
    log.info("metrics.json, confusion.png and reliability.png: %s", run)


def _save_calibrated(checkpoint: Checkpoint, result: Evaluation, path: Path) -> None:
    """Write the model with the temperature that was found, on top of the one it has."""
    if path.exists():
        raise FileExistsError(f"{path}: exists already; choose another hydra.run.dir")
    temperature = checkpoint.temperature * result.calibration.temperature
    replace(checkpoint, temperature=temperature).save(path)
    log.info("temperature %.3f, stored in %s", temperature, path)


def _progress(scans: list[str], what: str) -> Any:
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(scans, description=what, console=console, disable=not sys.stderr.isatty())


def _training_config(arguments: list[str]) -> Path | None:
    """Where no data is named, find the configuration of the run whose folder the model lies in."""
    model = value_of("checkpoint", arguments)
    if model is None or any(a.startswith("data") for a in arguments):
        return None
    config = Path(model).parent / ".hydra" / "config.yaml"
    return config if config.is_file() else None
