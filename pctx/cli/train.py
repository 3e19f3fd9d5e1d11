"""pctx train: compose a run and fit."""

from __future__ import annotations

import csv
import logging
import pickle
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pctx.cli.config import UsageError, choose_backend, overrides_of, quoted, run_composed, value_of
from pctx.cli.feeding import make_pipeline

if TYPE_CHECKING:
    import pytorch_lightning as pl
    from pytorch_lightning.loggers import CSVLogger
    from torch import nn

    from pctx.engine.budget import TimeBudget
    from pctx.engine.metrics import Scores
    from pctx.models.segmentor import Segmentor

log = logging.getLogger(__name__)

EXAMPLES = """Examples:

pctx train

pctx train data=folder data.root=scans data.card=scans/card.yaml data.grid_size=0.5

pctx train model=ptv3_tiny optim.lr=0.002 trainer.max_epochs=50

pctx train model=ptv3_tiny trainer.max_time=00:00:03:00     (the schedule ends with the time)

pctx train -m seed=1,2,3

pctx train resume=runs/ptv3_tiny-street/2026-01-31_12-00-00

pctx train init_from=model.pt data=folder …     (fine-tuning; freeze=backbone trains the head alone)

pctx train --cfg job     (shows the composed configuration)
"""


_LAST = "checkpoints/last.ckpt"
_LISTED = 5
"""New weights of a kind that are named one by one."""


def train(context: typer.Context) -> None:
    """Fit a model. [OVERRIDES] are Hydra's: group=option, key=value."""
    run_composed("train", _with_resume(context.args), lambda config, run: fit(config, run).miou)


def fit(config: Any, run: Path) -> Scores:
    """Train what a composed configuration says, into the folder `run`; give the best scores."""
    start = time.monotonic()
    import pytorch_lightning as pl
    import torch
    from hydra.utils import instantiate
    from omegaconf import OmegaConf

    from pctx import checkpoint as checkpoints
    from pctx.data.ranges import measure_ranges
    from pctx.engine.callbacks import Freeze, SaveModel
    from pctx.engine.datamodule import ScanDataModule
    from pctx.engine.losses import weigh_classes
    from pctx.engine.optim import parameter_groups
    from pctx.engine.segmentation import SegmentationModule
    from pctx.models.planner import planner_of

    budget = _budget(config.trainer, start)
    pl.seed_everything(config.seed, verbose=False)
    # Loaders have processors of their own.
    left = torch.get_num_threads() - config.data.num_workers
    torch.set_num_threads(config.threads or max(left, 1))
    pipeline = make_pipeline(config)
    arguments: Any = OmegaConf.to_container(config.model, resolve=True)
    backbone = arguments.pop("_target_")
    try:
        model = checkpoints.build_model(backbone, arguments, pipeline.features, pipeline.labels)
    except (ValueError, TypeError) as error:  # what its class says of the arguments
        raise UsageError(f"{backbone.rpartition('.')[2]}: {error}") from error
    choose_backend(model, config.backend)
    if config.init_from:
        _start_from(config.init_from, model)
    data = config.data
    datamodule = ScanDataModule(
        pipeline,
        batch_size=data.batch_size,
        batch_points=data.batch_points,
        samples_per_epoch=data.samples_per_epoch,
        plan=planner_of(model.backbone),
        num_workers=data.num_workers,
        start_method=data.start_method,
        seed=config.seed,
    )
    criterion = instantiate(config.criterion, _convert_="all")
    weigh_classes(criterion, pipeline.dataset)
    module = SegmentationModule(
        model=model,
        criterion=criterion,
        groups=partial(parameter_groups, **_group_options(config.optim)),
        optimizer=instantiate(config.optim.optimizer),
        scheduler=instantiate(config.optim.scheduler),
        labels=pipeline.labels,
        seed=config.seed,
        budget=budget,
    )
    description = checkpoints.Checkpoint(
        backbone=backbone,
        arguments=arguments,
        labels=pipeline.labels,
        features=measure_ranges(pipeline.features, pipeline.dataset),
        grid_size=data.grid_size,
        weights={},
    )
    count = sum(p.numel() for p in model.parameters())
    scans = len(pipeline.dataset.scans("train"))
    log.info("%s: %s parameters; %d training scans; %s", backbone, f"{count:,}", scans, run)
    last = run / _LAST
    resume = last if config.resume else None
    if resume is not None and not resume.is_file():
        raise FileNotFoundError(f"{run}: nothing to resume, it has no checkpoints/last.ckpt")
    if resume is not None:
        _check_unfinished(run, resume, config.trainer.max_epochs)
    callbacks: list[pl.Callback] = [SaveModel(description, run)]
    if budget is not None:
        callbacks.append(budget)
    if config.freeze is not None:
        callbacks.append(Freeze(_part(model, config.freeze)))
    trainer = _trainer(config, run, callbacks, resume)
    try:
        trainer.fit(module, datamodule=datamodule, ckpt_path=resume, weights_only=False)
    except SystemExit:  # Lightning's way out of Ctrl-C
        raise KeyboardInterrupt from None
    return _best(run, module)


def _group_options(optim: Any) -> dict[str, Any]:
    """Give what `optim` says of the parameter groups: all but the optimiser and the schedule."""
    from omegaconf import OmegaConf

    options: Any = OmegaConf.to_container(optim, resolve=True)
    return {k: v for k, v in options.items() if k not in ("optimizer", "scheduler")}


def _budget(trainer: Any, start: float) -> TimeBudget | None:
    """Read `trainer.max_time`, of which Lightning would not tell the schedule."""
    from pctx.engine.budget import TimeBudget, parse_time

    if trainer.max_time is None:
        return None
    try:
        return TimeBudget(parse_time(str(trainer.max_time)), start)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _trainer(config: Any, run: Path, callbacks: list[pl.Callback], resume: Path | None) -> Any:
    from hydra.utils import instantiate
    from pytorch_lightning.callbacks import LearningRateMonitor, ModelCheckpoint

    from pctx.engine.budget import TRIED
    from pctx.engine.callbacks import Curves, EpochLog

    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    terminal = sys.stderr.isatty()
    keep: dict[str, Any] = {
        "dirpath": run / "checkpoints",
        "enable_version_counter": False,
        "save_on_train_epoch_end": False,
    }
    best = ModelCheckpoint(filename="best", monitor="val/miou", mode="max", **keep)
    last = ModelCheckpoint(filename="last", **keep)
    callbacks = [best, last, *callbacks, LearningRateMonitor("step"), Curves(run)]
    if not terminal:
        callbacks.append(EpochLog())
    tried = config.trainer.num_sanity_val_steps if config.trainer.max_time is None else TRIED
    return instantiate(
        config.trainer,
        num_sanity_val_steps=tried,
        max_time=None,
        default_root_dir=str(run),
        callbacks=callbacks,
        logger=[_metrics_table(run, resume), *_tensorboard(run)],
        enable_progress_bar=terminal,
        _convert_="all",
    )


def _metrics_table(run: Path, resume: Path | None) -> CSVLogger:
    """Log to metrics.csv; a resumed run keeps the rows up to where it goes on."""
    import torch
    from pytorch_lightning.loggers import CSVLogger

    rows = []
    if resume is not None and (run / "metrics.csv").is_file():
        steps = torch.load(resume, map_location="cpu", weights_only=False)["global_step"]
        with (run / "metrics.csv").open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if int(row["step"]) < steps]
    logger = CSVLogger(run, name="", version="")
    whole = ("epoch", "step")
    logger.experiment.metrics.extend(
        {name: int(v) if name in whole else float(v) for name, v in row.items() if v}
        for row in rows
    )
    return logger


def _check_unfinished(run: Path, last: Path, max_epochs: int | None) -> None:
    """Find out whether a run has epochs left, and a learning rate for them.

    Raises:
        UsageError: it has not.
        ValueError: the checkpoint is damaged.
    """
    import torch

    try:
        state = torch.load(last, map_location="cpu", weights_only=False)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(
            f"{last}: a damaged checkpoint; init_from= starts anew from model.pt"
        ) from error
    done, steps = state["epoch"] + 1, state["global_step"]
    if max_epochs is None or max_epochs < 0:  # no end
        return
    total = state["lr_schedulers"][0].get("total_steps")
    planned = max_epochs if total is None else total * done // max(steps, 1)
    if done < max_epochs <= planned:
        return
    why = f"its {done} epochs are done"
    if max_epochs > planned:
        why = f"its learning rate ends after {planned} epochs, and trainer.max_epochs={max_epochs}"
    raise UsageError(f"{run}: {why}; a new run starts from its model: init_from={run / 'model.pt'}")


def _tensorboard(run: Path) -> list[Any]:
    from pytorch_lightning.loggers import TensorBoardLogger

    try:
        return [TensorBoardLogger(run, name="", version="")]
    except ModuleNotFoundError:
        log.info("no TensorBoard events: pip install 'pctx[log]' adds them")
        return []


def _best(run: Path, module: Any) -> Scores:
    from pctx.cli.tables import print_scores

    scores: Scores | None = module.scores
    if scores is None:
        raise ValueError(f"{run}: training ended before a validation, so there is no model.pt")
    print_scores(scores, title="last epoch, validation")
    log.info("model: %s", run / "model.pt")
    return scores


def _part(model: Segmentor, path: str) -> nn.Module:
    """Find what `freeze` names: `backbone`, or a part of it such as `backbone.stem`."""
    parts = dict(model.named_modules())
    if not path or path not in parts:
        raise UsageError(f"freeze={path}: the model has no such part; it has backbone and head")
    return parts[path]


def _start_from(path: str, model: Segmentor) -> None:
    from pctx.checkpoint import fine_tune, load_checkpoint

    source = load_checkpoint(path)
    try:
        difference = fine_tune(model, source)
    except ValueError as error:
        raise ValueError(f"init_from={path}: {error}") from error
    new, every = difference.num_new, len(model.state_dict())
    log.info("weights from %s; %d of %d are new%s", path, new, every, ":" if difference else "")
    for line in difference.lines(_LISTED):
        log.info("  %s", line)


def _with_resume(arguments: list[str]) -> list[str]:
    """Put the overrides of the run to resume before those given now, and write into its folder.

    Raises:
        UsageError: the folder given for a new run has one already.
    """
    resume = value_of("resume", arguments)
    if resume is None:
        folder = value_of("hydra.run.dir", arguments)
        if folder is not None and (Path(folder) / _LAST).is_file():
            raise UsageError(
                f"{folder}: holds a run already; choose another hydra.run.dir, or go on with "
                f"resume={folder}"
            )
        return arguments
    run = Path(resume)
    given = {a.split("=")[0] for a in arguments}
    kept = [a for a in overrides_of(run) if a.split("=")[0] not in given]
    return [*kept, *arguments, quoted("hydra.run.dir", run)]
