"""SaveModel: the best model of a run as a file that describes itself."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from pctx.checkpoint import Checkpoint
from pctx.engine.figures import save_confusion
from pctx.engine.metrics import Scores
from pctx.engine.segmentation import SegmentationModule

log = logging.getLogger(__name__)

STATES = 4
"""Checkpoints that lie in a folder at once, at most: last, previous, best, and one half written."""
_COPIES = 3
"""Of the weights in a checkpoint with two moments of each."""


class SaveModel(pl.Callback):
    """Writes `model.pt` and `confusion.png` each time the validation mIoU is the best so far.

    Where the disk is full training goes on, and the file is tried again at the end; if that fails
    too, the model goes to the system's folder of temporary files.

    Args:
        describe: gives what the model file says beside its weights; called when it is written.
        folder: where the files go.
    """

    def __init__(self, describe: Callable[[], Checkpoint], folder: Path) -> None:
        self.describe, self.folder = cache(describe), folder
        self.best = -1.0
        self._unsaved: tuple[Checkpoint, Scores] | None = None

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare and write."""
        if not isinstance(pl_module, SegmentationModule) or pl_module.scores is None:
            return
        if trainer.sanity_checking:
            return
        scores = pl_module.scores
        miou = trainer.callback_metrics["val/miou"].item()
        if miou <= self.best:
            return
        self.best = miou
        weights = pl_module.whole_weights()
        if not trainer.is_global_zero:
            return
        found = replace(
            self.describe(),
            weights={name: value.detach().cpu().clone() for name, value in weights.items()},
            metrics={"miou": scores.miou, "macc": scores.macc, "oa": scores.oa},
            temperature=pl_module.temperature,
        )
        self._unsaved = found, scores
        try:
            self._write()
        except (OSError, RuntimeError) as error:  # the latter is torch's word for a full disk
            log.warning("model.pt could not be written (%s); training goes on", error)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Try again what could not be written.

        Raises:
            OSError: it cannot be; the message says where the model is.
        """
        try:
            self._write()
        except (OSError, RuntimeError) as error:
            assert self._unsaved is not None
            refuge = Path(tempfile.mkdtemp(prefix="pctx-")) / "model.pt"
            self._unsaved[0].save(refuge)
            raise OSError(
                f"{self.folder / 'model.pt'} cannot be written ({error}); the model is in {refuge}"
            ) from error

    def state_dict(self) -> dict[str, Any]:
        """Remember the best score over a resume."""
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from the best score of the stopped run."""
        self.best = state_dict["best"]

    def _write(self) -> None:
        if self._unsaved is not None:
            found, scores = self._unsaved
            found.save(self.folder / "model.pt")
            self._unsaved = None
            save_confusion(scores, self.folder / "confusion.png")


def check_room(folder: Path, weights: int) -> None:
    """Find out, before training, whether the files of a run can be written.

    Args:
        folder: of the run.
        weights: bytes of the model.

    Raises:
        OSError: the folder cannot be written to, or its disk has too little room.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass
    needed, free = (STATES * _COPIES + 2) * weights, shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            f"{folder}: {free / 1e6:,.0f} MB are free, and the checkpoints of this model take "
            f"{needed / 1e6:,.0f} MB; make room, or choose another hydra.run.dir"
        )
