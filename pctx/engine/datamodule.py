"""ScanDataModule: the loaders of a run."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytorch_lightning as pl
from torch.utils.data import DataLoader

from pctx.data.batch import Planner
from pctx.data.coarseness import too_coarse
from pctx.data.loader import count_voxels, evaluation_loader, training_loader
from pctx.data.pipeline import Pipeline, count_class_scans
from pctx.data.sampler import EpochSampler

log = logging.getLogger(__name__)


class ScanDataModule(pl.LightningDataModule):
    """Training batches and validation samples of one dataset, voxelised and planned by workers.

    Its state is the place in the epoch, from which a resumed run goes on.

    Args:
        pipeline: how a scan becomes a sample.
        batch_size: clouds a training batch, of each process that trains.
        batch_points: voxels a training batch, in place of `batch_size`: the voxels of all scans
            are counted first.
        samples_per_epoch: clouds an epoch; by default each training scan once.
        plan: plans what is loaded; None leaves it to the model.
        num_workers: loader processes; what is loaded does not depend on it.
        start_method: of these, fork or spawn; None is what the system does by itself.
        seed: of order, augmentation and plans.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        batch_size: int | None = 1,
        batch_points: int | None = None,
        samples_per_epoch: int | None = None,
        plan: Planner | None = None,
        num_workers: int = 0,
        start_method: str | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        counts = {
            "batch_size": batch_size,
            "batch_points": batch_points,
            "samples_per_epoch": samples_per_epoch,
        }
        for name, count in counts.items():
            if count is not None and count < 1:
                raise ValueError(f"data.{name} must be 1 or more, found {count}")
        self.pipeline, self.batch_size, self.batch_points = pipeline, batch_size, batch_points
        self.samples_per_epoch, self.plan = samples_per_epoch, plan
        self.num_workers, self.start_method, self.seed = num_workers, start_method, seed
        self.place = (0, 0)

    def state_dict(self) -> dict[str, Any]:
        """Tell the epoch, and how many of its batches are done."""
        assert self.trainer is not None
        loop = self.trainer.fit_loop
        epochs = loop.epoch_progress.current.ready
        done = loop.epoch_loop.batch_progress.current.ready
        if done >= self.trainer.num_training_batches:
            return {"epoch": epochs, "batch": 0}
        return {"epoch": epochs - 1, "batch": done}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Begin the loading at that batch."""
        self.place = (state_dict["epoch"], state_dict["batch"])

    def train_dataloader(self) -> DataLoader[Any]:
        """Give packed, augmented batches of the split `train`."""
        share = self._share()
        scans = self.pipeline.dataset.scans("train")
        first = self.pipeline.dataset.read(scans[0])
        if coarse := too_coarse(first.coord[first.finite], self.pipeline.grid_size):
            log.warning("%s: %s", scans[0], coarse)
        size = (self.batch_size or 1) * share[1]
        samples = self.samples_per_epoch or len(scans)
        sizes = None
        if self.batch_points is not None:
            log.info("data.batch_points: the voxels of %d scans are counted", len(scans))
            sizes = count_voxels(self.pipeline, scans, num_workers=self.num_workers)
        elif samples < size:
            log.warning(
                "data.batch_size=%d, but an epoch has %d clouds: each batch has %d",
                size,
                samples,
                samples,
            )
        pipeline = self.pipeline
        if pipeline.crop_centers == "balanced":
            pipeline = replace(pipeline, class_scans=count_class_scans(pipeline.dataset))
        loader = training_loader(
            pipeline,
            scans,
            batch_size=min(size, samples),
            batch_points=None if self.batch_points is None else self.batch_points * share[1],
            sizes=sizes,
            num_samples=samples,
            plan=self.plan,
            num_workers=self.num_workers,
            start_method=self.start_method,
            share=share,
            seed=self.seed,
        )
        assert isinstance(loader.sampler, EpochSampler)
        loader.sampler.resume(*self.place)
        return loader

    def val_dataloader(self) -> DataLoader[Any]:
        """Give whole clouds of the split `val`."""
        return evaluation_loader(
            self.pipeline,
            self.pipeline.dataset.scans("val"),
            plan=self.plan,
            num_workers=self.num_workers,
            start_method=self.start_method,
            share=self._share(),
        )

    def _share(self) -> tuple[int, int]:
        """Give this process's number, and how many there are."""
        trainer = self.trainer
        return (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)
