"""Schedules are as long as a run has steps of the optimiser, whatever the loader gives."""

import logging
from functools import partial

import pytest
import pytorch_lightning as pl
import torch

from pctx.checkpoint import build_model
from pctx.data.dataset import ScanDataset
from pctx.data.features import FeatureSpec
from pctx.data.labels import Card
from pctx.data.pipeline import Pipeline
from pctx.engine.datamodule import ScanDataModule
from pctx.engine.losses import CrossEntropy
from pctx.engine.optim import parameter_groups
from pctx.engine.schedules import cosine
from pctx.engine.segmentation import SegmentationModule
from tests.toy import ARGUMENTS, BACKBONE, LABELS, toy_cloud

FEATURES = FeatureSpec(fields=("height",))


class Scans(ScanDataset):
    card = Card(name="five", labels=LABELS)

    def scans(self, split):
        return [str(i) for i in range(5)]

    def read(self, scan):
        return toy_cloud(120, seed=int(scan))


def module():
    torch.manual_seed(0)
    return SegmentationModule(
        model=build_model(BACKBONE, ARGUMENTS, FEATURES, LABELS),
        criterion=CrossEntropy(),
        groups=partial(parameter_groups, lr=0.01, weight_decay=0.1),
        optimizer=torch.optim.AdamW,
        scheduler=cosine,
        labels=LABELS,
    )


def trainer_for(folder, **options):
    return pl.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        default_root_dir=folder,
        **options,
    )


def data(batch_size):
    pipeline = Pipeline(dataset=Scans(), grid_size=1.0, features=FEATURES)
    return ScanDataModule(pipeline, batch_size=batch_size)


@pytest.mark.filterwarnings("ignore")  # Lightning gives advice by warnings
@pytest.mark.parametrize(
    ("batch_size", "accumulated", "epochs", "steps"),
    [(2, 1, 2, 6), (2, 2, 2, 4), (5, 1, 3, 3), (9, 1, 3, 3), (9, 4, 3, 3)],
)
def test_the_rate_falls_to_its_end_in_the_last_step(
    batch_size, accumulated, epochs, steps, tmp_path, caplog
):
    network = module()
    trainer = trainer_for(tmp_path, max_epochs=epochs, accumulate_grad_batches=accumulated)
    with caplog.at_level(logging.WARNING, "pctx"):
        trainer.fit(network, datamodule=data(batch_size))
    schedule = network.lr_schedulers()
    assert trainer.global_step == schedule.total_steps == schedule.last_epoch == steps
    assert schedule.get_last_lr() == pytest.approx([0.0] * len(schedule.get_last_lr()))
    notices = [m for m in caplog.messages if "an epoch has 5 clouds" in m]
    assert bool(notices) == (batch_size > 5)


@pytest.mark.filterwarnings("ignore")  # Lightning gives advice by warnings
def test_a_resumed_run_with_more_steps_than_it_had_is_refused(tmp_path):
    first = module()
    trainer_for(tmp_path, max_epochs=1).fit(first, datamodule=data(2))
    state = {}
    first.on_save_checkpoint(state)
    again = module()
    again.on_load_checkpoint(state)
    with pytest.raises(ValueError, match="a learning rate for 3 steps, and would have 5; leave"):
        trainer_for(tmp_path, max_epochs=1).fit(again, datamodule=data(1))
