"""TimeBudget: a run that ends when its time is up, its learning rate with it."""

from __future__ import annotations

import logging
import re
import time
from typing import Any

import pytorch_lightning as pl
from torch.optim.lr_scheduler import LRScheduler

log = logging.getLogger(__name__)

BETWEEN_SCORES = 600.0
"""Seconds that lie at least between two validations under a budget, but for the last."""
STEPS = 10_000
"""What a schedule is divided into where only the time ends a run."""

TRIED = 2
"""Scans of the validation that come before training."""

_NEVER = 1 << 40
"""Epochs."""
_WRITING = 2.0
"""Seconds for the files at the end."""
_MARGIN = 1.2
"""Times what the last validation is expected to take."""
_MOST = 0.25
"""Part of the budget that is kept for the end, at most."""


class TimeBudget(pl.Callback):
    """Ends training in time for one validation, and lets the schedule end with it.

    How far a run is, is the larger of its share of steps and its share of time; so runs of one seed
    differ, as machines do. Two scans of the validation come before training; the second, when
    all is started, tells how long the last validation will take.

    Args:
        seconds: for everything, counted from `start`.
        start: of the run, by `time.monotonic`.
    """

    def __init__(self, seconds: float, start: float) -> None:
        self.seconds, self.start = seconds, start
        self.before = 0.0
        self.reserve = _WRITING
        self._began = self._scored = start
        self._every: int | None = 1
        self._share = 0.0

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep time for the last validation, by the last of the scans that come before training."""
        if trainer.sanity_checking:
            now = time.monotonic()
            self._keep((now - self._began) * sum(trainer.num_val_batches))
            self._began = now

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take over when validation is done."""
        self._every, self._scored = trainer.check_val_every_n_epoch, time.monotonic()
        trainer.check_val_every_n_epoch = _NEVER

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Look at the clock: that of the first process, so that all have the same rate."""
        room = max(self.seconds - self.reserve, 1e-9)
        self._share = trainer.strategy.broadcast(min(self.spent / room, 1.0))

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Stop when time is up; validate at the end, and now and then before."""
        last = trainer.current_epoch + 1 == trainer.max_epochs
        due = trainer.strategy.broadcast(time.monotonic() - self._scored >= BETWEEN_SCORES)
        if self._share >= 1.0 and not trainer.should_stop:
            log.info("time is up after %d steps: the last validation", trainer.global_step)
            trainer.should_stop = True
        every = self._every if due else _NEVER
        trainer.check_val_every_n_epoch = 1 if last or trainer.should_stop else every

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin to time a validation."""
        self._began = time.monotonic()

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keep as much time for the next."""
        if not trainer.sanity_checking:
            self._scored = time.monotonic()
            self._keep(self._scored - self._began)

    @property
    def spent(self) -> float:
        """Seconds of the budget that are gone, those before a stop too."""
        return self.before + time.monotonic() - self.start

    def move(self, schedule: LRScheduler, steps: int, total_steps: int) -> None:
        """Let a schedule go on to where the steps or the time is."""
        place = max(steps, int(self._share * total_steps))
        while schedule.last_epoch < min(place, total_steps - 1):
            schedule.step()

    def state_dict(self) -> dict[str, Any]:
        """Remember the time spent, and what is kept for the end."""
        return {"spent": self.spent, "reserve": self.reserve}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with what is left of the time."""
        self.before, self.reserve = state_dict["spent"], state_dict["reserve"]

    def _keep(self, seconds: float) -> None:
        self.reserve = min(_MARGIN * seconds + _WRITING, _MOST * self.seconds)


def parse_time(text: str) -> float:
    """Read days:hours:minutes:seconds, such as 00:00:03:00; give seconds.

    Raises:
        ValueError: it is something else, or no time at all.
    """
    found = re.fullmatch(r"(\d+):(\d\d):(\d\d):(\d\d)", text.strip())
    if found is None:
        raise ValueError(
            f"trainer.max_time={text} is not days:hours:minutes:seconds, such as 00:00:03:00"
        )
    days, hours, minutes, seconds = map(int, found.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if total == 0:
        raise ValueError(f"trainer.max_time={text} leaves no time to train")
    return float(total)
