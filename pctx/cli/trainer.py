"""What surrounds a model in training: the trainer, its callbacks, its loggers."""

from __future__ import annotations

import logging
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pctx.cli.config import UsageError
from pctx.cli.settings import choose_precision

if TYPE_CHECKING:
    import pytorch_lightning as pl

    from pctx.engine.budget import TimeBudget

log = logging.getLogger(__name__)

_PROFILERS = ("simple", "advanced", "pytorch")


def make_budget(trainer: Any, start: float) -> TimeBudget | None:
    """Read `trainer.max_time`, of which Lightning would not tell the schedule."""
    from pctx.engine.budget import TimeBudget, parse_time

    if trainer.max_time is None:
        return None
    try:
        return TimeBudget(parse_time(str(trainer.max_time)), start)
    except ValueError as error:
        raise UsageError(str(error)) from error


def make_trainer(
    config: Any,
    run: Path,
    callbacks: list[pl.Callback],
    budget: TimeBudget | None,
    *,
    resumed: bool,
) -> pl.Trainer:
    """Make Lightning's trainer, with what saves and tells beside the callbacks given."""
    from hydra.errors import InstantiationException
    from hydra.utils import instantiate

    from pctx.engine.budget import TRIED
    from pctx.engine.callbacks import Curves
    from pctx.engine.checkpoints import CheckpointFiles, Checkpoints
    from pctx.engine.progress import Bar, Lines, Pace
    from pctx.engine.table import MetricsTable

    for name in ("pytorch_lightning", "lightning.pytorch", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    terminal = sys.stderr.isatty()
    table = MetricsTable(run / "metrics.csv", resumed=resumed)
    pace = Pace(budget)
    callbacks = [*_wanted(config), *callbacks, *([] if budget is None else [budget])]
    # Where a bar tells how far an epoch is, lines tell of epochs alone.
    callbacks += [pace, *([Bar(pace), Lines(pace, math.inf)] if terminal else [Lines(pace)])]
    # States come last, as they hold those of the others.
    callbacks += [Checkpoints(run / "checkpoints", table, **config.save_every), Curves(run)]
    precision = choose_precision(config.trainer)
    if config.trainer.precision == "auto":
        log.info("trainer.precision=auto: %s", precision)
    settings = {"profiler": _profiler(config.trainer.profiler, run), "precision": precision}
    if budget is not None:
        settings["num_sanity_val_steps"] = TRIED
    loggers = _loggers(config.logger, run)
    try:
        trainer: pl.Trainer = instantiate(
            config.trainer,
            max_time=None,
            default_root_dir=str(run),
            callbacks=callbacks,
            logger=[table, *loggers],
            plugins=[CheckpointFiles()],
            enable_checkpointing=False,  # `Checkpoints` does it
            enable_progress_bar=False,  # `Bar` is one
            use_distributed_sampler=False,  # the loaders share the scans themselves
            **settings,
            _convert_="all",
        )
    except InstantiationException as error:
        raise UsageError(f"trainer: {error.__cause__ or error}") from error
    return trainer


def _wanted(config: Any) -> list[pl.Callback]:
    """Make what a configuration asks for: the rates as a curve, a mean of weights, an early end."""
    from pytorch_lightning.callbacks import EarlyStopping, LearningRateMonitor

    from pctx.engine.averaging import Averaging

    found: list[pl.Callback] = [LearningRateMonitor("step")]
    if config.average is not None:
        found.append(Averaging(config.average))
    if config.patience is not None:
        found.append(EarlyStopping("val/miou", mode="max", patience=config.patience))
    return found


def _profiler(name: str | None, run: Path) -> Any:
    """Let a profiler write into the folder of the run."""
    from pytorch_lightning import profilers

    if name is None:
        return None
    if name not in _PROFILERS:
        known = ", ".join(_PROFILERS)
        raise UsageError(f"trainer.profiler must be one of {known}, found {name}")
    kinds = {
        "simple": profilers.SimpleProfiler,
        "advanced": profilers.AdvancedProfiler,
        "pytorch": profilers.PyTorchProfiler,
    }
    return kinds[name](dirpath=run, filename="profile")


def _loggers(config: Any, run: Path) -> list[Any]:
    """Make the loggers of a configuration, beside the table that every run has."""
    from hydra.utils import instantiate

    found = []
    for name, settings in config.items():
        if settings is None:
            continue
        try:
            found.append(instantiate(settings, save_dir=str(run)))
        except Exception as error:
            missing = error.__cause__ if error.__cause__ is not None else error
            if not isinstance(missing, ModuleNotFoundError):
                raise
            if name != "tensorboard":
                raise ImportError(f"logger={name} needs a package: pip install {name}") from error
            log.info("no TensorBoard events: pip install 'pctx[log]' adds them")
    return found
