"""Checkpoints: the state of a run on disk, from which it goes on exactly where it was."""

from __future__ import annotations

import logging
import pickle
import signal
import threading
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

from pctx.data.io.atomic import replacing
from pctx.engine.table import MetricsTable

log = logging.getLogger(__name__)

LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"

_ONCE = 0.5
"""Seconds within which two signals are one: `timeout` sends each twice."""
_DAMAGES = (
    RuntimeError,
    EOFError,
    ValueError,
    KeyError,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What reading a damaged archive may raise."""


class Stopped(Exception):
    """A signal ends the run, whose state is saved.

    Attributes:
        signal: its number; in a process that did not get it itself, Ctrl-C's.
    """

    def __init__(self, asked: str | None, step: int) -> None:
        super().__init__(f"{asked or 'stopped'}: step {step} is saved")
        self.signal = signal.Signals[asked or "SIGINT"]


class CheckpointFiles(TorchCheckpointIO):
    """Writes a checkpoint beside its name, then renames it; of `last.ckpt` the one before stays."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Write one file.

        Raises:
            OSError: the disk is full, or may not be written to; what was there stays.
        """
        path = Path(path)
        try:
            with replacing(path, overwrite=True) as beside:
                torch.save(checkpoint, beside)
                if path.name == LAST and path.is_file():
                    path.replace(path.with_name(PREVIOUS))
        except RuntimeError as error:  # torch's word for a write that failed
            raise OSError(f"{path}: cannot be written ({error}); is the disk full?") from error


class Checkpoints(pl.Callback):
    """Saves `last.ckpt` now and then, around each validation and when a signal asks for it.

    Within an epoch a state is that after a step of the optimiser. Before a validation one is saved
    whose resumption begins with the validation; after it, one that goes on with the next epoch.

    Args:
        folder: of the files.
        table: of metrics, written with each state, so that both tell the same.
        steps: of the optimiser between two states; None does not count them.
        minutes: between two states; None does not look at the clock.
    """

    def __init__(
        self, folder: Path, table: MetricsTable, *, steps: int | None, minutes: float | None
    ) -> None:
        for name, value in {"steps": steps, "minutes": minutes}.items():
            if value is not None and not value > 0:
                raise ValueError(f"save_every.{name} must be above 0, found {value}")
        self.folder, self.table = folder, table
        self.steps, self.minutes = steps, minutes
        self.finished = False
        self.best = -1.0
        self.epochs: int | None = None
        self._saved = (0, time.monotonic())
        self._validates = False
        self._asked: str | None = None
        self._asked_at = 0.0
        self._handlers: dict[signal.Signals, Any] = {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Listen for the signals that end a run."""
        if self.epochs is None:
            self.epochs = trainer.max_epochs
        self._saved = (trainer.global_step, time.monotonic())

        def ask(number: int, _: object) -> None:
            if self._asked is None:
                self._asked, self._asked_at = signal.Signals(number).name, time.monotonic()
            elif time.monotonic() - self._asked_at > _ONCE:  # the second time it is meant at once
                raise KeyboardInterrupt

        if threading.current_thread() is not threading.main_thread():
            return  # which alone may
        for name in ("SIGTERM", "SIGINT", "SIGHUP"):
            if name in signal.Signals.__members__:  # Windows lacks one
                which = signal.Signals[name]
                if signal.getsignal(which) is not signal.SIG_IGN:  # as nohup has it
                    self._handlers[which] = signal.signal(which, ask)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Save after a step, if it is time to; the end of an epoch has its own moments."""
        if trainer.is_last_batch or trainer.should_stop:
            return
        if (batch_idx + 1) % trainer.accumulate_grad_batches:  # gradients are not saved
            return
        step, at = self._saved
        due = self.steps is not None and trainer.global_step - step >= self.steps
        due |= self.minutes is not None and time.monotonic() - at >= 60 * self.minutes
        if _any(trainer, due or self._asked is not None):
            self.save(trainer)
            self._leave(trainer)

    def on_validation_batch_start(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Save before the first scan; within a validation leave without, as it begins anew."""
        if trainer.sanity_checking:
            return
        if batch_idx == 0:
            self._validates = True
            self.save(trainer)
            self._validates = False
        self._leave(trainer)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Mark a validation as just begun: Lightning goes back into one that is, and skips others.

        One that was begun before, by a run that was killed, is not counted.
        """
        if self._validates:
            progress = checkpoint["loops"]["fit_loop"]["epoch_loop.val_loop.batch_progress"]
            for counts in (progress["total"], progress["current"]):
                counts["ready"] = counts["started"] = counts["completed"] + 1

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Keep the state of the best score."""
        if trainer.sanity_checking:
            return
        score = trainer.callback_metrics["val/miou"].item()
        if score > self.best:
            self.best = score
            try:
                trainer.save_checkpoint(self.folder / BEST)
            except OSError as error:
                log.warning("%s; training goes on", error)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save between epochs; after the last, that nothing is left to do."""
        self.finished = trainer.should_stop
        self.save(trainer)
        self._leave(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save that the run is over."""
        self.finished = True
        self.save(trainer)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Leave signals to whom they were."""
        self._unlisten()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Leave signals to whom they were."""
        self._unlisten()

    def _unlisten(self) -> None:
        while self._handlers:
            signal.signal(*self._handlers.popitem())

    def save(self, trainer: pl.Trainer) -> None:
        """Write the table and the state; where the disk is full, training goes on without.

        Raises:
            OSError: the run is about to stop, and its state cannot be written.
        """
        self._saved = (trainer.global_step, time.monotonic())
        try:
            self.table.save()
            trainer.save_checkpoint(self.folder / LAST)
        except OSError as error:
            if self._asked is not None:
                raise
            log.warning("%s; training goes on, and the state before stays", error)

    def state_dict(self) -> dict[str, Any]:
        """Tell what the files do not."""
        return {
            "finished": self.finished,
            "epochs": self.epochs,
            "best": self.best,
            "rows": len(self.table.rows),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from the best score, with the rows that were there."""
        self.best, self.epochs = state_dict["best"], state_dict["epochs"]
        self.table.keep(state_dict["rows"])

    def _leave(self, trainer: pl.Trainer) -> None:
        if _any(trainer, self._asked is not None):
            raise Stopped(self._asked, trainer.global_step)


def _any(trainer: pl.Trainer, here: bool) -> bool:
    """Find out whether something is so in any process."""
    return bool(trainer.strategy.reduce_boolean_decision(here, all=False))


def sound_checkpoint(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Find the newest checkpoint of a folder that is whole; give its path and its content.

    Only tensors and plain values are read: no code in a file is run.

    Raises:
        FileNotFoundError: there is none.
        ValueError: all there are are damaged.
    """
    damaged = []
    for path in (folder / LAST, folder / PREVIOUS):
        if not path.is_file():
            continue
        try:
            with zipfile.ZipFile(path) as archive:  # torch does not look at the checksums
                if broken := archive.testzip():
                    raise ValueError(f"the checksum of {broken}")
            state = torch.load(path, map_location="cpu", weights_only=True)
        except _DAMAGES as error:
            damaged.append(path)
            log.warning("%s: a damaged checkpoint (%s)", path, str(error).splitlines()[0])
            continue
        return path, state
    if damaged:
        raise ValueError(
            f"{damaged[0]}: a damaged checkpoint; init_from= starts anew from model.pt"
        )
    raise FileNotFoundError(f"{folder.parent}: nothing to resume, it has no {folder.name}/{LAST}")
