"""ScanDataModule: the loaders of a run."""

from __future__ import annotations

import logging
from typing import Any

import pytorch_lightning as pl
from torch.utils.data import DataLoader

from pctx.data.loader import Pipeline, evaluation_loader, training_loader

log = logging.getLogger(__name__)


class ScanDataModule(pl.LightningDataModule):
    """Training batches and validation samples of one dataset.

    Args:
        pipeline: how a scan becomes a sample.
        batch_size: clouds a training batch.
        samples_per_epoch: clouds an epoch; by default each training scan once.
        num_workers: loader processes; what is loaded does not depend on it.
        seed: of order and augmentation.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        batch_size: int,
        samples_per_epoch: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if batch_size < 1:
            raise ValueError(f"data.batch_size must be 1 or more, found {batch_size}")
        if samples_per_epoch is not None and samples_per_epoch < 1:
            raise ValueError(f"data.samples_per_epoch must be 1 or more, found {samples_per_epoch}")
        self.pipeline, self.batch_size = pipeline, batch_size
        self.samples_per_epoch = samples_per_epoch
        self.num_workers, self.seed = num_workers, seed

    def train_dataloader(self) -> DataLoader[Any]:
        """Give packed, augmented batches of the split `train`."""
        scans = self.pipeline.dataset.scans("train")
        samples = self.samples_per_epoch or len(scans)
        if samples < self.batch_size:
            log.warning(
                "data.batch_size=%d, but an epoch has %d clouds: each batch has %d",
                self.batch_size,
                samples,
                samples,
            )
        return training_loader(
            self.pipeline,
            scans,
            batch_size=min(self.batch_size, samples),
            num_samples=samples,
            num_workers=self.num_workers,
            seed=self.seed,
        )

    def val_dataloader(self) -> DataLoader[Any]:
        """Give whole clouds of the split `val`."""
        scans = self.pipeline.dataset.scans("val")
        return evaluation_loader(self.pipeline, scans, num_workers=self.num_workers)
