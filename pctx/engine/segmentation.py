"""SegmentationModule: what Lightning's Trainer trains and validates."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torchmetrics import Metric

from pctx.data.batch import TrainingBatch
from pctx.data.labels import LabelSet
from pctx.data.loader import TrainingSet
from pctx.data.prepare import Sample
from pctx.engine.budget import STEPS, TimeBudget
from pctx.engine.calibration import Calibration, CalibrationMetric
from pctx.engine.losses import loss_of
from pctx.engine.metrics import Scores, confusion_matrix
from pctx.models.segmentor import Segmentor

log = logging.getLogger(__name__)

MAX_BAD_STEPS = 10
"""Steps in a row that are skipped before the run is given up.

The loss scale of float16, halved at each, is then down to a thousandth.
"""


class Confusion(Metric):
    """The confusion matrix of raw points, summed over steps and processes."""

    matrix: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes
        empty = torch.zeros(num_classes, num_classes + 1, dtype=torch.int64)
        self.add_state("matrix", empty, dist_reduce_fx="sum")

    def update(self, truth: Tensor, predicted: Tensor) -> None:
        """Count the points of one cloud."""
        counts = confusion_matrix(truth.cpu().numpy(), predicted.cpu().numpy(), self.num_classes)
        self.matrix += torch.from_numpy(counts).to(self.matrix.device)

    def compute(self) -> np.ndarray:
        """Give (c, c + 1) int64."""
        return self.matrix.cpu().numpy()


class SegmentationModule(pl.LightningModule):
    """A Segmentor with its loss, its optimiser and its scores.

    Training steps take a TrainingBatch; validation steps a Sample, scored on every raw point. A
    step whose loss, running statistics or gradients are not finite changes nothing: it is skipped,
    and its scans are named.

    Args:
        model: gives logits for a batch.
        criterion: (logits, labels) to a scalar.
        groups: splits the model's parameters into groups, such as `parameter_groups`.
        optimizer: makes an optimiser of the groups.
        scheduler: makes a schedule of an optimiser and `total_steps`.
        labels: the classes.
        seed: of the shuffled curves.
        budget: of time, which ends the schedule too.
    """

    def __init__(
        self,
        *,
        model: Segmentor,
        criterion: nn.Module,
        groups: Callable[[Segmentor], list[dict[str, Any]]],
        optimizer: Callable[..., Optimizer],
        scheduler: Callable[..., LRScheduler],
        labels: LabelSet,
        seed: int = 0,
        budget: TimeBudget | None = None,
    ) -> None:
        super().__init__()
        self.model, self.criterion, self.labels = model, criterion, labels
        self.make_groups, self.make_optimizer, self.make_scheduler = groups, optimizer, scheduler
        self.seed, self.budget = seed, budget
        self.total_steps = 1
        self.confusion = Confusion(len(labels))
        self.calibration = CalibrationMetric()
        self.scores: Scores | None = None
        self.temperature = 1.0
        self.bad_steps = 0

    def training_step(self, batch: TrainingBatch, batch_idx: int) -> Tensor | None:
        """Give the loss; None, which skips the step, where it is not finite.

        Raises:
            FloatingPointError: `MAX_BAD_STEPS` steps in a row were skipped.
        """
        # A step's draws (curves, paths dropped) hang on its number alone, so that a resumed run
        # goes on the same.
        step_seed = self.seed * 1_000_003 + self.global_step
        torch.manual_seed(step_seed)
        points, hierarchy = batch.points, batch.hierarchy
        if hierarchy is None:
            generator = torch.Generator().manual_seed(step_seed)
            hierarchy = self.model.backbone.plan(points, generator)
        statistics = _running_statistics(self.model)
        before = [values.clone() for values in statistics]
        logits = self.model(points, hierarchy)
        if points.label is None:
            raise ValueError("training needs labels, and the batch has none")
        loss = loss_of(self.criterion, logits, points.label, points)
        fine = _finite([loss.detach(), *statistics])
        # All processes skip together, as each waits for the gradients of the others.
        if not self.trainer.strategy.reduce_boolean_decision(fine, all=True):
            for values, old in zip(statistics, before, strict=True):
                values.copy_(old)
            self._skip("the loss", [batch_idx])
            return None
        self.log("train/loss", loss, prog_bar=True, batch_size=batch.num_clouds)
        return loss

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Let no gradient that is not finite into the weights."""
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        if not grads:  # a step without a loss
            return
        if _finite(grads):
            self.bad_steps = 0
            return
        optimizer.zero_grad(set_to_none=True)  # without gradients no weight is changed
        last = self.trainer.fit_loop.batch_idx
        first = last - last % self.trainer.accumulate_grad_batches
        self._skip("a gradient", range(first, last + 1))

    def _skip(self, what: str, batches: Iterable[int]) -> None:
        """Name the scans of a bad step; give up after too many in a row."""
        self.bad_steps += 1
        named = ", ".join(_scans(self.trainer.train_dataloader, batches))
        found = f"step {self.global_step}: {what} of {named} is not finite"
        log.warning("%s; the step is skipped", found)
        if self.bad_steps >= MAX_BAD_STEPS:
            raise FloatingPointError(
                f"{found}, and {self.bad_steps} steps in a row were skipped; lower optim.lr or "
                "look for broken input (pctx info)"
            )

    def validation_step(self, batch: Sample, batch_idx: int) -> None:
        """Score one cloud at full resolution."""
        logits = self.model(batch.points, batch.hierarchy)
        label = batch.points.label
        if label is None or batch.label is None:
            raise ValueError("validation needs labels, and a scan has none")
        if (label >= 0).any():
            loss = loss_of(self.criterion, logits, label, batch.points)
            self.log("val/loss", loss, on_epoch=True, batch_size=1, sync_dist=True)
        predicted = batch.spread(logits.argmax(dim=1))
        self.confusion.update(batch.label, predicted)
        self.calibration.update(logits, label)

    def on_validation_epoch_end(self) -> None:
        """Log the means of all raw points seen."""
        if self.trainer.sanity_checking:
            self.confusion.reset()
            self.calibration.reset()
            return
        self.scores = Scores(confusion=self.confusion.compute(), labels=self.labels)
        self.confusion.reset()
        self.temperature = Calibration(**self.calibration.compute()).temperature
        self.calibration.reset()
        self.log("val/miou", float(np.nan_to_num(self.scores.miou)), prog_bar=True)
        self.log("val/macc", float(np.nan_to_num(self.scores.macc)))
        self.log("val/oa", float(np.nan_to_num(self.scores.oa)))

    def transfer_batch_to_device(
        self, batch: Any, device: torch.device, dataloader_idx: int
    ) -> Any:
        """Move voxels and plans; raw labels and the way back stay where they are."""
        if isinstance(batch, TrainingBatch | Sample):
            return batch.to(device)
        return super().transfer_batch_to_device(batch, device, dataloader_idx)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Make the optimiser over groups and the schedule over the trainer's steps."""
        optimizer = self.make_optimizer(self.make_groups(self.model))
        steps = self.trainer.estimated_stepping_batches
        self.total_steps = STEPS if steps == float("inf") else int(steps)
        scheduler = self.make_scheduler(optimizer, total_steps=self.total_steps)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

    def lr_scheduler_step(self, scheduler: LRScheduler, metric: Any) -> None:
        """Go on by a step, or to where the time is."""
        if self.budget is None:
            super().lr_scheduler_step(scheduler, metric)
        else:
            self.budget.move(scheduler, self.global_step, self.total_steps)


def _running_statistics(model: nn.Module) -> list[Tensor]:
    norms = (module for module in model.modules() if isinstance(module, nn.BatchNorm1d))
    return [values for norm in norms for values in norm.buffers()]


def _finite(tensors: Iterable[Tensor]) -> bool:
    """Whether every number is finite, and their sum of squares; syncs with the device once."""
    norms = [torch.linalg.vector_norm(t) for t in tensors if t.is_floating_point()]
    return bool(torch.stack(norms).isfinite().all())


def _scans(loader: Any, batches: Iterable[int]) -> list[str]:
    """Name the scans of some batches of the epoch that runs."""
    dataset = loader.dataset
    if not isinstance(dataset, TrainingSet):
        return [f"batch {i}" for i in batches]
    drawn = loader.sampler.batches()
    return [dataset.scans[draw.scan] for i in batches for draw in drawn[i]]
