import logging
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.precision import MixedPrecision

from pctx.checkpoint import build_model
from pctx.data.dataset import ScanDataset
from pctx.data.features import FeatureSpec
from pctx.data.labels import Card
from pctx.data.pipeline import Pipeline
from pctx.engine.datamodule import ScanDataModule
from pctx.engine.losses import CrossEntropy
from pctx.engine.optim import parameter_groups
from pctx.engine.schedules import one_cycle
from pctx.engine.segmentation import MAX_BAD_STEPS, SegmentationModule
from tests.toy import ARGUMENTS, BACKBONE, LABELS, toy_cloud

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning gives advice by warnings

FEATURES = FeatureSpec(fields=("height",))


class FourScans(ScanDataset):
    card = Card(name="four", labels=LABELS)

    def scans(self, split):
        return [f"scan_{i}.laz" for i in range(4)]

    def read(self, scan):
        return toy_cloud(400, seed=int(scan[5]))


class Poisoned(Pipeline):
    """One feature of some scans is not a number."""

    bad: tuple[str, ...] = ()

    def training_points(self, scan, rng, another=None):
        points = super().training_points(scan, rng, another)
        if scan in self.bad:
            feat = points.feat.clone()
            feat[7] = torch.nan
            return replace(points, feat=feat)
        return points


def poisoned(*bad):
    pipeline = Poisoned(dataset=FourScans(), grid_size=1.0, features=FEATURES)
    object.__setattr__(pipeline, "bad", bad)
    return ScanDataModule(pipeline, batch_size=1)


class Criterion(CrossEntropy):
    """Finite losses whose gradients are infinite at some calls."""

    def __init__(self, bad_calls=()):
        super().__init__()
        self.bad_calls, self.calls = bad_calls, 0

    def forward(self, logits, label):
        loss = super().forward(logits, label)
        bad, self.calls = self.calls in self.bad_calls, self.calls + 1
        # The square root of nothing: 0, of infinite slope.
        return loss + (0 * logits.sum()).sqrt() if bad else loss


def module(criterion=None, **options):
    torch.manual_seed(0)
    return SegmentationModule(
        model=build_model(BACKBONE, ARGUMENTS, FEATURES, LABELS),
        criterion=criterion or Criterion(),
        groups=partial(parameter_groups, lr=0.01, weight_decay=0.1),
        optimizer=torch.optim.AdamW,
        scheduler=one_cycle,
        labels=LABELS,
        **options,
    )


def fit(network, data, tmp_path, epochs=2, **options):
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        gradient_clip_val=1.0,
        default_root_dir=tmp_path,
        **options,
    )
    trainer.fit(network, datamodule=data)


def is_finite(network):
    return all(t.isfinite().all() for t in network.model.state_dict().values())


def half(precision):
    if precision == "16-mixed":  # Lightning turns the name alone into bf16 on a CPU.
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        return {"plugins": [MixedPrecision("16-mixed", "cpu", scaler)]}
    return {"precision": precision}


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
def test_a_step_whose_loss_is_not_finite_is_skipped_and_its_scan_named(precision, tmp_path, caplog):
    network = module()
    before = {name: t.clone() for name, t in network.model.state_dict().items()}
    with caplog.at_level(logging.WARNING, "pctx"):
        fit(network, poisoned("scan_2.laz"), tmp_path, **half(precision))
    assert len(caplog.messages) == 2
    assert all("the loss of scan_2.laz is not finite" in message for message in caplog.messages)
    assert is_finite(network)
    after = network.model.state_dict()
    assert any(not torch.equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
def test_a_step_whose_gradients_are_not_finite_changes_no_weight(precision, tmp_path, caplog):
    network = module(Criterion(bad_calls=range(100)), max_bad_steps=9)
    before = {name: p.clone() for name, p in network.model.named_parameters()}
    with caplog.at_level(logging.WARNING, "pctx"):
        fit(network, poisoned(), tmp_path, epochs=1, **half(precision))
    if precision == "16-mixed":  # until its scale is 1, the scaler's own matter
        assert not caplog.messages
    else:
        assert len(caplog.messages) == 4
        assert all("a gradient of scan_" in message for message in caplog.messages)
    for name, parameter in network.model.named_parameters():
        assert torch.equal(parameter, before[name]), name
    assert is_finite(network)


def test_skipped_steps_change_neither_weights_nor_running_statistics(tmp_path):
    network, data = module(max_bad_steps=99), poisoned(*FourScans().scans("train"))
    before = {name: t.clone() for name, t in network.model.state_dict().items()}
    fit(network, data, tmp_path)
    for name, tensor in network.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize("what", ["the loss", "a gradient"])
def test_a_run_ends_after_too_many_bad_steps_with_its_weights_finite(what, tmp_path):
    if what == "the loss":
        network, data = module(), poisoned(*FourScans().scans("train"))
    else:
        network, data = module(Criterion(bad_calls=range(100))), poisoned()
    with pytest.raises(FloatingPointError, match=rf"{what} of scan_\d.laz is not finite, and 3"):
        fit(network, data, tmp_path, epochs=9)
    assert network.global_step == MAX_BAD_STEPS - 1
    assert is_finite(network)


def test_only_bad_steps_in_a_row_count(tmp_path):
    fit(module(max_bad_steps=2), poisoned("scan_1.laz"), tmp_path, epochs=4)
    every_other = Criterion(bad_calls=range(0, 100, 2))
    fit(module(every_other, max_bad_steps=2), poisoned(), tmp_path, epochs=2)


def test_gradients_that_no_scale_of_float16_mends_end_a_run(tmp_path):
    network = module(Criterion(bad_calls=range(100)))
    with pytest.raises(FloatingPointError, match="a gradient of scan_.* is not finite, and 3"):
        fit(network, poisoned(), tmp_path, epochs=9, **half("16-mixed"))
    assert network.global_step == 6 + MAX_BAD_STEPS - 1  # from a scale of 64 down to 1
    assert is_finite(network)


def test_gathered_gradients_name_the_scans_of_all_their_batches(tmp_path, caplog):
    network = module(Criterion(bad_calls=[3]))
    with caplog.at_level(logging.WARNING, "pctx"):
        fit(network, poisoned(), tmp_path, epochs=1, accumulate_grad_batches=2)
    (message,) = caplog.messages
    order = np.random.default_rng([0, 0]).permutation(4)
    assert f"a gradient of scan_{order[2]}.laz, scan_{order[3]}.laz is not finite" in message
    assert is_finite(network)


class Steep(CrossEntropy):
    """Losses whose gradients are longer than any clip."""

    def forward(self, logits, label):
        return 1000 * super().forward(logits, label)


def test_gathered_gradients_are_clipped_as_one(tmp_path):
    norms = []

    class Recorded(torch.optim.SGD):
        def step(self, closure):
            closure()
            grads = [p.grad for group in self.param_groups for p in group["params"]]
            norms.append(torch.nn.utils.get_total_norm(grads).item())
            return super().step()

    network = module(Steep())
    network.make_optimizer = Recorded
    fit(network, poisoned(), tmp_path, epochs=1, accumulate_grad_batches=2)
    assert norms == pytest.approx([1.0, 1.0])
