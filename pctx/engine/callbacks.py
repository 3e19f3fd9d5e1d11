"""Callbacks: the best model as a file, a plain log of epochs, pictures of a run."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from torch import nn

from pctx.checkpoint import Checkpoint
from pctx.engine.figures import save_confusion, save_curves
from pctx.engine.segmentation import SegmentationModule

log = logging.getLogger(__name__)


class SaveModel(pl.Callback):
    """Writes `model.pt` and `confusion.png` each time the validation mIoU is the best so far.

    Args:
        checkpoint: what the model file says beside its weights.
        folder: where the files go.
    """

    def __init__(self, checkpoint: Checkpoint, folder: Path) -> None:
        self.checkpoint, self.folder = checkpoint, folder
        self.best = -1.0

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare and write."""
        if not isinstance(pl_module, SegmentationModule) or pl_module.scores is None:
            return
        if trainer.sanity_checking or not trainer.is_global_zero:
            return
        scores = pl_module.scores
        miou = trainer.callback_metrics["val/miou"].item()
        if miou <= self.best:
            return
        self.best = miou
        metrics = {"miou": scores.miou, "macc": scores.macc, "oa": scores.oa}
        weights = pl_module.model.state_dict()
        found = replace(
            self.checkpoint, weights=weights, metrics=metrics, temperature=pl_module.temperature
        )
        found.save(self.folder / "model.pt")
        save_confusion(scores, self.folder / "confusion.png")

    def state_dict(self) -> dict[str, Any]:
        """Remember the best score over a resume."""
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from the best score of the stopped run."""
        self.best = state_dict["best"]


class Freeze(pl.Callback):
    """Keeps a part of a model as it is: no gradients, and norms that stay in evaluation mode.

    With the backbone frozen, training fits the head alone (a linear probe).
    """

    def __init__(self, part: nn.Module) -> None:
        self.part = part

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Take the gradients away, before the optimiser is made."""
        self.part.requires_grad_(False)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave training mode."""
        self.part.eval()


class EpochLog(pl.Callback):
    """Logs one line an epoch, for runs without a terminal."""

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock."""
        self.start = time.monotonic()
        self.first_epoch = trainer.current_epoch

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Say loss, score and the time left."""
        done = trainer.current_epoch + 1
        elapsed = time.monotonic() - self.start
        total = trainer.max_epochs or done
        left = elapsed / (done - self.first_epoch) * (total - done)
        metrics = trainer.callback_metrics
        words = [f"{name} {metrics[name]:.3f}" for name in _LOGGED if name in metrics]
        log.info("epoch %d/%d  %s  %.0f s left", done, total, "  ".join(words), max(left, 0))


class Curves(pl.Callback):
    """Draws `curves.png` from `metrics.csv` when training ends, also by an interrupt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Draw what there is."""
        table = self.folder / "metrics.csv"
        if stage == "fit" and trainer.is_global_zero and table.is_file():
            save_curves(table, self.folder / "curves.png")


_LOGGED = ("train/loss", "val/loss", "val/miou")
