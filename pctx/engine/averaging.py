"""Averaging: the exponential mean of the weights, by which a run is scored and saved."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import FSDPStrategy
from torch import Tensor

from pctx.engine.segmentation import SegmentationModule


class Averaging(pl.Callback):
    """Keeps a mean of weights and running statistics that forgets; validation uses it.

    After step t the mean moves towards the weights by 1 - min(decay, (1 + t) / (10 + t)), so that
    it leaves the first weights early in short runs too. (Tarvainen and Valpola, 2017.)

    Args:
        decay: in (0, 1): the share that stays, such as 0.999.
    """

    def __init__(self, decay: float) -> None:
        if not 0 < decay < 1:
            raise ValueError(f"average must be between 0 and 1, such as 0.999; found {decay}")
        self.decay = decay
        self.mean: dict[str, Tensor] = {}
        self.steps = 0
        self._own: dict[str, Tensor] | None = None

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Refuse what splits the weights.

        Raises:
            ValueError: the strategy is FSDP.
        """
        if isinstance(trainer.strategy, FSDPStrategy):
            raise ValueError("average needs whole weights, and trainer=fsdp splits them: use ddp")

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begin with the weights as they are; a resumed run has its mean."""
        own = _weights(pl_module)
        if not self.mean:
            self.mean = {name: value.clone() for name, value in own.items()}
        self.mean = {name: value.to(own[name].device) for name, value in self.mean.items()}

    @torch.no_grad()
    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Move towards the weights after a step of the optimiser."""
        if trainer.global_step == self.steps:
            return
        self.steps = trainer.global_step
        share = 1 - min(self.decay, (1 + self.steps) / (10 + self.steps))
        for name, value in _weights(pl_module).items():
            if value.is_floating_point():
                self.mean[name].lerp_(value, share)
            else:
                self.mean[name].copy_(value)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Lend the mean to the model."""
        if self.mean:
            own = _weights(pl_module)
            self._own = {name: value.clone() for name, value in own.items()}
            _copy(self.mean, own)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Give the model its own weights back."""
        if self._own is not None:
            _copy(self._own, _weights(pl_module))
            self._own = None

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Let a state that is saved while the mean is lent have the weights."""
        if self._own is not None:
            checkpoint["state_dict"] |= {f"model.{name}": v for name, v in self._own.items()}

    def state_dict(self) -> dict[str, Any]:
        """Keep the mean over a resume."""
        return {"mean": self.mean, "steps": self.steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the mean of the stopped run."""
        self.mean, self.steps = dict(state_dict["mean"]), state_dict["steps"]


def _weights(module: pl.LightningModule) -> dict[str, Tensor]:
    assert isinstance(module, SegmentationModule)
    return dict(module.model.state_dict())


@torch.no_grad()
def _copy(source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    for name, value in target.items():
        value.copy_(source[name])
