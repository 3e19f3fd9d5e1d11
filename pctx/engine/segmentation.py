"""SegmentationModule: what Lightning's Trainer trains and validates."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.precision import MixedPrecision
from pytorch_lightning.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torchmetrics import MeanMetric, Metric

from pctx.data.batch import TrainingBatch
from pctx.data.labels import IGNORE_INDEX, LabelSet
from pctx.data.loader import TrainingSet
from pctx.data.prepare import Sample
from pctx.engine.budget import STEPS, TimeBudget
from pctx.engine.calibration import Calibration, CalibrationMetric
from pctx.engine.losses import loss_of
from pctx.engine.metrics import Scores, confusion_matrix
from pctx.engine.optim import describe_groups
from pctx.engine.ranks import gather_points, sync_norms
from pctx.models.segmentor import Segmentor

log = logging.getLogger(__name__)

MAX_BAD_STEPS = 3
"""Steps in a row that are skipped before the run is given up, where nothing else is said."""

_LEAST_SCALE = 1.0
"""The loss scale of float16 from which on its own skips are no longer a matter of the scale."""


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
        max_bad_steps: steps in a row that may be bad; as many end the run.

    Several processes are one: a step's loss and its norms are those of the whole batch.
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
        max_bad_steps: int = MAX_BAD_STEPS,
    ) -> None:
        super().__init__()
        if max_bad_steps < 1:
            raise ValueError(f"max_bad_steps must be 1 or more, found {max_bad_steps}")
        self.model, self.criterion, self.labels = model, criterion, labels
        self.make_groups, self.make_optimizer, self.make_scheduler = groups, optimizer, scheduler
        self.seed, self.budget = seed, budget
        self.total_steps, self.steps_before = 1, 0
        self.confusion = Confusion(len(labels))
        self.calibration = CalibrationMetric()
        self.val_loss = MeanMetric(nan_strategy="disable")
        self.scores: Scores | None = None
        self.temperature = 1.0
        self.bad_steps, self.max_bad_steps = 0, max_bad_steps

    def setup(self, stage: str) -> None:
        """Let the norms of several processes look at one another's points."""
        if self.trainer.world_size > 1:
            sync_norms(self.model)

    def training_step(self, batch: TrainingBatch, batch_idx: int) -> Tensor | None:
        """Give the loss; None, which skips the step, where it is not finite.

        Raises:
            FloatingPointError: `max_bad_steps` steps in a row were skipped.
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
            raise ValueError(
                "training needs labels, and the batch has none; `pctx check` names such scans"
            )
        processes = self.trainer.world_size
        if processes > 1:
            loader: Any = self.trainer.train_dataloader
            if loader.sampler.fills_in(batch_idx):
                points = replace(points, label=torch.full_like(points.label, IGNORE_INDEX))
            logits, points = gather_points(logits, points)
        assert points.label is not None
        loss = loss_of(self.criterion, logits, points.label, points)
        fine = _finite([loss.detach(), *statistics])
        # All processes skip together, as each waits for the gradients of the others.
        if not self.trainer.strategy.reduce_boolean_decision(fine, all=True):
            for values, old in zip(statistics, before, strict=True):
                values.copy_(old)
            self._skip("the loss", [batch_idx])
            return None
        self.log("train/loss", loss, prog_bar=True, logger=False, batch_size=batch.num_clouds)
        return loss * processes  # as the gradients of all are averaged

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Let no gradient that is not finite into the weights."""
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        if not grads:  # a step without a loss
            return
        if self.trainer.strategy.reduce_boolean_decision(_finite(grads), all=True):
            self.bad_steps = 0
            return
        optimizer.zero_grad(set_to_none=True)  # without gradients no weight is changed
        precision = self.trainer.precision_plugin
        scaler = precision.scaler if isinstance(precision, MixedPrecision) else None
        if scaler is not None and scaler.get_scale() > _LEAST_SCALE:
            log.info("step %d: float16 is too narrow; the loss scale is lowered", self.global_step)
            return
        last = self.trainer.fit_loop.batch_idx
        first = last - last % self.trainer.accumulate_grad_batches
        self._skip("a gradient", range(first, last + 1))

    def _skip(self, what: str, batches: Iterable[int]) -> None:
        """Name the scans of a bad step; give up after too many in a row."""
        self.bad_steps += 1
        named = ", ".join(_scans(self.trainer.train_dataloader, batches))
        found = f"step {self.global_step}: {what} of {named} is not finite"
        log.warning("%s; the step is skipped", found)
        if self.bad_steps >= self.max_bad_steps:
            raise FloatingPointError(
                f"{found}, and {self.bad_steps} steps in a row were skipped; lower optim.lr or "
                "look for broken input (pctx info)"
            )

    def validation_step(self, batch: Sample, batch_idx: int) -> None:
        """Score one cloud at full resolution; with several processes, each cloud in one of them."""
        logits = self.model(batch.points, batch.hierarchy)
        label = batch.points.label
        if label is None or batch.label is None:
            raise ValueError(
                "validation needs labels, and a scan has none; `pctx check` names such scans"
            )
        place = batch_idx * self.trainer.world_size + self.trainer.global_rank
        loader: Any = self.trainer.val_dataloaders
        if place >= len(loader.dataset):
            return
        if (label >= 0).any():
            self.val_loss.update(loss_of(self.criterion, logits, label, batch.points))
        self.confusion.update(batch.label, batch.spread(logits.argmax(dim=1)))
        self.calibration.update(logits, label)

    def on_validation_epoch_end(self) -> None:
        """Log the means of all raw points seen."""
        loss = self.val_loss.compute()
        scores = Scores(confusion=self.confusion.compute(), labels=self.labels)
        found = self.calibration.compute()
        for metric in (self.val_loss, self.confusion, self.calibration):
            metric.reset()
        if self.trainer.sanity_checking:
            return
        self.scores = scores
        self.temperature = Calibration(**found).temperature
        if loss.isfinite():
            self.log("val/loss", loss)
        self.log("val/miou", float(np.nan_to_num(scores.miou)), prog_bar=True)
        self.log("val/macc", float(np.nan_to_num(scores.macc)))
        self.log("val/oa", float(np.nan_to_num(scores.oa)))

    def whole_weights(self) -> dict[str, Tensor]:
        """Give the weights of the model, joined where processes have parts; all have to ask."""
        prefix = "model."
        state = self.trainer.strategy.lightning_module_state_dict()
        return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Remember the steps of the schedule, and the bad ones that came last."""
        checkpoint["total_steps"], checkpoint["bad_steps"] = self.total_steps, self.bad_steps

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on counting them."""
        self.bad_steps = checkpoint["bad_steps"]
        self.steps_before = checkpoint.get("total_steps", 0)

    def transfer_batch_to_device(
        self, batch: Any, device: torch.device, dataloader_idx: int
    ) -> Any:
        """Move voxels and plans; raw labels and the way back stay where they are."""
        if isinstance(batch, TrainingBatch | Sample):
            return batch.to(device)
        return super().transfer_batch_to_device(batch, device, dataloader_idx)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Make the optimiser over groups and the schedule over the trainer's steps.

        Raises:
            ValueError: a resumed run has more steps than it had.
        """
        groups = self.make_groups(self.model)
        for line in describe_groups(groups, self.model):
            log.info("%s", line)
        optimizer = self.make_optimizer(groups)
        steps = self.trainer.estimated_stepping_batches
        self.total_steps = STEPS if steps == float("inf") else int(steps)
        if 0 < self.steps_before < self.total_steps:
            raise ValueError(
                f"the run that is resumed has a learning rate for {self.steps_before} steps, and "
                f"would have {self.total_steps}; leave data and batches as they were"
            )
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
