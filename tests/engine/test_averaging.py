"""The mean of the weights is a mean, and lent to validation alone."""

import pytest
import torch

from pctx.checkpoint import build_model
from pctx.data.features import FeatureSpec
from pctx.engine.averaging import Averaging
from pctx.engine.blocks import recompute_blocks
from pctx.engine.segmentation import SegmentationModule
from pctx.geometry.points import PointBatch
from tests.toy import ARGUMENTS, BACKBONE, LABELS


def model():
    torch.manual_seed(0)
    return build_model(BACKBONE, ARGUMENTS, FeatureSpec(fields=("height",)), LABELS)


def module():
    parts = {"groups": None, "optimizer": None, "scheduler": None}
    return SegmentationModule(model=model(), criterion=torch.nn.Identity(), labels=LABELS, **parts)


class Trainer:
    global_step = 0


def step(mean, network, trainer):
    trainer.global_step += 1
    mean.on_train_batch_end(trainer, network, None, None, 0)


def test_the_mean_follows_the_weights_and_is_lent_to_validation_alone():
    network, trainer, mean = module(), Trainer(), Averaging(0.5)
    weight = network.model.head.weight
    first = weight.detach().clone()
    mean.on_train_start(trainer, network)
    with torch.no_grad():
        weight.add_(1.0)
    step(mean, network, trainer)
    share = 1 - 2 / 11  # the first step's
    expected = first + share
    torch.testing.assert_close(mean.mean["head.weight"], expected)
    for _ in range(20):
        step(mean, network, trainer)
    torch.testing.assert_close(mean.mean["head.weight"], first + 1)
    mean.mean["head.weight"].fill_(7.0)
    mean.on_validation_start(trainer, network)
    assert (weight == 7).all()
    checkpoint = {"state_dict": {"model.head.weight": weight}}
    mean.on_save_checkpoint(trainer, network, checkpoint)
    assert torch.equal(checkpoint["state_dict"]["model.head.weight"], first + 1)
    mean.on_validation_end(trainer, network)
    assert torch.equal(weight, first + 1)


@pytest.mark.parametrize("decay", [0.0, 1.0, -1.0])
def test_a_decay_is_between_0_and_1(decay):
    with pytest.raises(ValueError, match="average must be between 0 and 1"):
        Averaging(decay)


def test_recomputed_blocks_have_the_same_numbers():
    generator = torch.Generator().manual_seed(0)
    coord = torch.rand(200, 3, generator=generator) * 20
    points = PointBatch(
        coord=coord,
        grid_coord=torch.stack(
            [torch.arange(200), torch.arange(200) % 7, torch.zeros(200).long()], 1
        ),
        feat=coord[:, 2:],
        offsets=torch.tensor([0, 120, 200]),
    )
    found = []
    for change in (lambda network: None, recompute_blocks):
        network = model().train()
        change(network)
        torch.manual_seed(1)
        network(points, network.backbone.plan(points)).square().mean().backward()
        found.append({name: p.grad for name, p in network.named_parameters()})
        found.append(dict(network.named_buffers()))
    plain, buffers, again, buffers_again = found
    for name in plain:
        torch.testing.assert_close(again[name], plain[name])
    for name in buffers:
        torch.testing.assert_close(buffers_again[name], buffers[name])


def test_a_model_without_blocks_is_told():
    with pytest.raises(ValueError, match="this one has none"):
        recompute_blocks(torch.nn.Linear(2, 2))
