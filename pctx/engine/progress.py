"""Progress of a run: its losses as rows, a bar on a terminal, lines in a plain log."""

from __future__ import annotations

import logging
import sys
import time
from contextlib import ExitStack
from typing import Any

import pytorch_lightning as pl
from tqdm import tqdm  # type: ignore[import-untyped]
from tqdm.contrib.logging import logging_redirect_tqdm  # type: ignore[import-untyped]

from pctx.engine.budget import TimeBudget

log = logging.getLogger(__name__)

BETWEEN_LINES = 30.0
"""Seconds between two lines of a plain log, within an epoch."""

_LOGGED = ("train/loss", "val/loss", "val/miou")


class Pace(pl.Callback):
    """Logs the loss of every so manyth step, and knows points a second and the time left.

    Args:
        budget: of time, which then says what is left.
    """

    def __init__(self, budget: TimeBudget | None = None) -> None:
        self.budget = budget
        self.points, self.seconds = 0, 0.0
        self._start, self._first = time.monotonic(), 0
        self._mark = self._start

    @property
    def rate(self) -> float:
        """Points of training a second, loading included; 0 at first."""
        return self.points / self.seconds if self.seconds else 0.0

    def left(self, trainer: pl.Trainer) -> float | None:
        """Give the seconds that are left; None where nothing ends the run."""
        if self.budget is not None:
            return max(self.budget.seconds - self.budget.spent, 0.0)
        total, done = trainer.estimated_stepping_batches, trainer.global_step
        if total == float("inf"):
            return None
        a_step = (time.monotonic() - self._start) / max(done - self._first, 1)
        return a_step * (total - done)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin to count."""
        self._start, self._first = time.monotonic(), trainer.global_step
        self._mark = self._start

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Count the points, and log the loss at once: a state that is saved now has it."""
        now = time.monotonic()
        self.points += len(batch.points) * trainer.world_size
        self.seconds += now - self._mark
        self._mark = now
        stepped = trainer.is_last_batch or (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        loss = trainer.callback_metrics.get("train/loss")
        if outputs is None or loss is None or not stepped:
            return
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if trainer.global_step % every == 0:
            row = {"epoch": trainer.current_epoch, "train/loss": loss.item()}
            for logger in trainer.loggers:
                logger.log_metrics(row, trainer.global_step - 1)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave the validation out of the rate."""
        self._mark = time.monotonic()


class Lines(pl.Callback):
    """A line an epoch, and one now and then.

    Args:
        pace: tells the points a second and the time left.
        between: seconds between two lines within an epoch.
    """

    def __init__(self, pace: Pace, between: float = BETWEEN_LINES) -> None:
        self.pace, self.between = pace, between
        self._told = time.monotonic()

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Say how far it is, if nothing was said for a while."""
        if time.monotonic() - self._told >= self.between:
            self._tell(trainer, f"step {trainer.global_step}", _LOGGED[:1])

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Say loss and score."""
        self._tell(trainer, _epoch(trainer), _LOGGED)

    def _tell(self, trainer: pl.Trainer, what: str, names: tuple[str, ...]) -> None:
        self._told = time.monotonic()
        metrics = trainer.callback_metrics
        words = [f"{name} {metrics[name]:.3f}" for name in names if name in metrics]
        left = self.pace.left(trainer)
        end = "" if left is None else f"  {span(left)} left"
        log.info("%s  %s  %s points/s%s", what, "  ".join(words), f"{self.pace.rate:,.0f}", end)


class Bar(pl.Callback):
    """A line of the terminal, drawn anew and anew: how far the run is, and what is left of it.

    What is logged meanwhile stands above it; it is gone when training ends, however it does.

    Args:
        pace: tells the points a second and the time left.
    """

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self._bar: tqdm[Any] | None = None
        self._logs = ExitStack()

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Take the line; of several processes the first."""
        if trainer.is_global_zero and self._bar is None:
            # What matters most comes first: a narrow terminal cuts the end off.
            form = "{desc} |{bar}|"
            self._bar = tqdm(file=sys.stderr, leave=False, dynamic_ncols=True, bar_format=form)
            self._logs.enter_context(logging_redirect_tqdm())

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin anew."""
        self._draw(trainer, 0, trainer.num_training_batches)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Tell the loss of the step."""
        self._draw(trainer, batch_idx + 1, trainer.num_training_batches)

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Tell how far the validation is."""
        totals = (
            trainer.num_sanity_val_batches if trainer.sanity_checking else trainer.num_val_batches
        )
        self._draw(trainer, batch_idx + 1, sum(totals))

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Leave the line."""
        self._close()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Leave the line."""
        self._close()

    def _draw(self, trainer: pl.Trainer, done: int, total: float) -> None:
        if self._bar is None:
            return
        words = [_epoch(trainer), f"{done}/{total}"]
        if trainer.training:
            left, loss = self.pace.left(trainer), trainer.callback_metrics.get("train/loss")
            if done and left is not None:
                words.append(f"{span(left)} left")
            if loss is not None:
                words.append(f"loss {loss:.3f}")
            if done:
                words.append(f"{self.pace.rate:,.0f} points/s")
        else:
            words.insert(1, "validation")
        self._bar.set_description_str("  ".join(words), refresh=False)
        if done <= self._bar.n or self._bar.total != total:
            self._bar.reset(total)
        self._bar.update(done - self._bar.n)

    def _close(self) -> None:
        self._logs.close()
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _epoch(trainer: pl.Trainer) -> str:
    total = trainer.max_epochs
    of = f"/{total}" if total is not None and total > 0 else ""
    return f"epoch {trainer.current_epoch + 1}{of}"


def span(seconds: float) -> str:
    """Write a time: 42 s, 3 min 5 s, 2 h 10 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
