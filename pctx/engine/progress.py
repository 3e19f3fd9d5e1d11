"""Progress of a run: its losses as rows, a bar on a terminal, lines in a plain log."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import TQDMProgressBar

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
    """A line now and then, and one an epoch, where there is no terminal."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
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
        if time.monotonic() - self._told >= BETWEEN_LINES:
            self._tell(trainer, f"step {trainer.global_step}", _LOGGED[:1])

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Say loss and score."""
        total = trainer.max_epochs
        of = f"/{total}" if total is not None and total > 0 else ""
        self._tell(trainer, f"epoch {trainer.current_epoch + 1}{of}", _LOGGED)

    def _tell(self, trainer: pl.Trainer, what: str, names: tuple[str, ...]) -> None:
        self._told = time.monotonic()
        metrics = trainer.callback_metrics
        words = [f"{name} {metrics[name]:.3f}" for name in names if name in metrics]
        left = self.pace.left(trainer)
        end = "" if left is None else f"  {span(left)} left"
        log.info("%s  %s  %s points/s%s", what, "  ".join(words), f"{self.pace.rate:,.0f}", end)


class Bar(TQDMProgressBar):
    """Lightning's bar, with points a second and the time left of the whole run."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self.pace = pace

    def get_metrics(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """Give what stands beside the bar."""
        items = super().get_metrics(trainer, pl_module)
        items.pop("v_num", None)
        items["points/s"] = f"{self.pace.rate:,.0f}"
        left = self.pace.left(trainer)
        return items if left is None else {**items, "left": span(left)}


def span(seconds: float) -> str:
    """Write a time: 42 s, 3 min 5 s, 2 h 10 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
