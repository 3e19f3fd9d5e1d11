"""pctx train: compose a run and fit."""

from __future__ import annotations

import logging
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pctx.cli.config import UsageError, choose_backend, run_composed
from pctx.cli.environment import keep_facts
from pctx.cli.feeding import make_pipeline
from pctx.cli.lock import process_rank, run_lock
from pctx.cli.resume import find_state, with_resume
from pctx.cli.settings import check_settings
from pctx.cli.stopping import STOPPED
from pctx.cli.trainer import make_budget, make_trainer

if TYPE_CHECKING:
    import pytorch_lightning as pl
    from torch import nn

    from pctx.checkpoint import Checkpoint
    from pctx.data.pipeline import Pipeline
    from pctx.engine.metrics import Scores
    from pctx.engine.saving import SaveModel
    from pctx.engine.segmentation import SegmentationModule
    from pctx.models.segmentor import Segmentor

log = logging.getLogger(__name__)

EXAMPLES = """Examples:

pctx train                                                    (on simulated streets)

pctx train data=folder data.root=scans data.grid_size=0.5     (after `pctx card scans`)

pctx train model=ptv3_tiny optim.lr=0.002 trainer.max_epochs=50

pctx train model=ptv3_tiny trainer.max_time=00:00:03:00     (the schedule ends with the time)

pctx train -m seed=1,2,3

pctx train resume=runs/ptv3_tiny-street/2026-01-31_12-00-00

pctx train init_from=model.pt data=folder …     (fine-tuning; freeze=backbone trains the head alone)

pctx train --cfg job     (shows the composed configuration)
"""


_LISTED = 5
"""New weights of a kind that are named one by one."""


def train(context: typer.Context) -> None:
    """Fit a model to labelled scans. Everything has a default that KEY=VALUE changes.

    `data=` says what is learned (folder: your own files; street: simulated ones), `model=` by which
    network; `augment=`, `criterion=`, `optim=`, `trainer=`, `logger=` and `experiment=` are the
    other choices, by the grammar of Hydra. `pctx train --cfg job` shows every key.
    """
    overrides, folder = with_resume(context.args)

    def task(config: Any, run: Path) -> float:
        from pctx.data.io.atomic import sweep
        from pctx.engine.ranks import own_processes

        if process_rank() != 0:  # the first speaks for all, but for warnings
            logging.getLogger("pctx").setLevel(logging.WARNING)
        known = folder is not None and folder.resolve() == run.resolve()
        with nullcontext() if known else run_lock(run), own_processes():
            if process_rank() == 0:
                for place in (run, run / "checkpoints"):  # of which the lock keeps others out
                    sweep(place, age=0.0)
            return fit(config, run).miou

    # Before Hydra writes into the folder, where that is known.
    with nullcontext() if folder is None else run_lock(folder):
        run_composed("train", overrides, task)


def fit(config: Any, run: Path) -> Scores:
    """Train what a composed configuration says, into the folder `run`; give the last scores."""
    start = time.monotonic()
    import pytorch_lightning as pl
    import torch
    from hydra.utils import instantiate
    from omegaconf import OmegaConf

    from pctx import checkpoint as checkpoints
    from pctx.data.ranges import measure_ranges
    from pctx.engine.blocks import recompute_blocks
    from pctx.engine.callbacks import Freeze
    from pctx.engine.checkpoints import Stopped
    from pctx.engine.datamodule import ScanDataModule
    from pctx.engine.losses import weigh_classes
    from pctx.engine.optim import parameter_groups
    from pctx.engine.saving import SaveModel, check_room
    from pctx.engine.segmentation import SegmentationModule
    from pctx.models.planner import planner_of

    check_settings(config)
    resume = find_state(run, config.trainer.max_epochs) if config.resume else None
    budget = make_budget(config.trainer, start)
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
    if config.recompute:
        recompute_blocks(model)
    if config.compile:
        model.compile(dynamic=True)
    if config.init_from and resume is None:  # a state has its own weights
        _start_from(config.init_from, model, pipeline)
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
        optimizer=instantiate(config.optim.optimizer, _convert_="all"),  # its state is saved
        scheduler=instantiate(config.optim.scheduler, _convert_="all"),
        labels=pipeline.labels,
        seed=config.seed,
        budget=budget,
        max_bad_steps=config.max_bad_steps,
    )

    def describe() -> checkpoints.Checkpoint:
        return checkpoints.Checkpoint(
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
    check_room(run, 4 * count)
    saved = SaveModel(describe, run)
    callbacks: list[pl.Callback] = [saved]
    if config.freeze is not None:
        callbacks.append(Freeze(_part(model, config.freeze)))
    trainer = make_trainer(config, run, callbacks, budget, resumed=resume is not None)
    if trainer.is_global_zero:
        keep_facts(config, run)
    try:
        trainer.fit(module, datamodule=datamodule, ckpt_path=resume, weights_only=True)
    except Stopped as stop:
        log.info("%s; it goes on with: pctx train resume=%s", stop, run)
        raise SystemExit(128 + stop.signal) from None
    except SystemExit as stop:
        if stop.code in STOPPED:
            raise
        raise KeyboardInterrupt from None  # Lightning's way out of Ctrl-C
    return _told(run, module, saved)


def _group_options(optim: Any) -> dict[str, Any]:
    """Give what `optim` says of the parameter groups: all but the optimiser and the schedule."""
    from omegaconf import OmegaConf

    options: Any = OmegaConf.to_container(optim, resolve=True)
    return {k: v for k, v in options.items() if k not in ("optimizer", "scheduler")}


def _told(run: Path, module: SegmentationModule, saved: SaveModel) -> Scores:
    """Print the last scores, and say of which validation the model is and what comes next."""
    from pctx.cli.tables import print_scores

    scores = module.scores
    if scores is None:
        raise ValueError(
            f"{run}: training ended before a validation, so there is no model.pt; "
            f"resume={run} goes on"
        )
    if module.trainer.is_global_zero:
        print_scores(scores, title="last epoch, validation")
    model = run / "model.pt"
    log.info("model: %s, of the best validation: mIoU %.3f", model, saved.best)
    log.info("next: pctx evaluate checkpoint=%s", model)
    log.info("      pctx predict %s SCAN -o LABELLED", model)
    return scores


def _part(model: Segmentor, path: str) -> nn.Module:
    """Find what `freeze` names: `backbone`, or a part of it such as `backbone.stem`."""
    parts = dict(model.named_modules())
    if not path or path not in parts:
        raise UsageError(f"freeze={path}: the model has no such part; it has backbone and head")
    return parts[path]


def _start_from(path: str, model: Segmentor, pipeline: Pipeline) -> None:
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
    if words := _seen_otherwise(source, pipeline):
        log.info("  those weights know clouds by other settings than this run's: %s", words)


def _seen_otherwise(source: Checkpoint, pipeline: Pipeline) -> str:
    """Give the settings that would show clouds as the weights know them, where the run's differ."""
    theirs, ours = source.features, pipeline.features
    words = []
    if source.grid_size != pipeline.grid_size:
        words.append(f"data.grid_size={source.grid_size:g}")
    if theirs.fields != ours.fields:
        words.append(f"'data.features.fields=[{','.join(theirs.fields)}]'")
    for name in theirs.fields:
        for key, none in (("scales", 1.0), ("centers", 0.0)):
            value = getattr(theirs, key).get(name, none)
            if value != getattr(ours, key).get(name, none):
                words.append(f"data.features.{key}.{name}={value:g}")
    return " ".join(words)
