"""Callbacks: a part of the model that stays as it is, pictures of a run."""

from __future__ import annotations

from pathlib import Path

import pytorch_lightning as pl
from torch import nn

from pctx.engine.figures import save_curves


class Freeze(pl.Callback):
    """Keeps a part of a model as it is: no gradients, and norms that stay in evaluation mode.

    With the backbone frozen, training fits the head alone (a linear probe).
    """

    def __init__(self, part: nn.Module) -> None:
        self.part = part

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Take the gradients away, before the optimiser is made."""
        self.part.requires_grad_(False)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave training mode, also where a resumed run begins within an epoch."""
        self.part.eval()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Leave training mode."""
        self.part.eval()


class Curves(pl.Callback):
    """Draws `curves.png` from `metrics.csv` when training ends, also by an interrupt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Draw what there is."""
        table = self.folder / "metrics.csv"
        if stage == "fit" and trainer.is_global_zero and table.is_file():
            save_curves(table, self.folder / "curves.png")
