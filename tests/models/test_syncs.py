"""Given a plan, no value of a tensor is read: on a GPU nothing would wait for it.

On torch's meta device tensors have shapes and no numbers. Who asks for one is refused.
"""

import pytest
import torch

from pctx.models.classifier import Classifier
from pctx.models.factory import create_backbone, create_model, list_models
from tests.models.clouds import random_batch
from tests.models.test_custom import combinations, name_of
from tests.models.test_custom import make as make_custom

MODELS = [
    name if name.endswith("_tiny") else pytest.param(name, marks=pytest.mark.slow)
    for name in list_models()
]

COUNTS = [300, 0, 40, 7]


def run(model, training):
    """Plan on the CPU; run forward, and in training backward, where there are no numbers."""
    batch = random_batch(COUNTS)
    hierarchy = model.backbone.plan(batch).to("meta")
    model = model.to("meta").train(training)
    feat = batch.feat.to("meta").requires_grad_(training)
    with torch.set_grad_enabled(training):
        logits = model.head(model.backbone(feat, hierarchy))
        if training:
            logits.sum().backward()
            assert feat.grad is not None
    return logits


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_no_model_waits_for_a_number(name, training):
    with torch.device("meta"):
        model = create_model(name, 4, 3)
    logits = run(model, training)
    assert logits.shape == (sum(COUNTS), 3) and logits.device.type == "meta"


@pytest.mark.parametrize(
    ("window", "attention", "position"), combinations(sensible=True), ids=name_of
)
def test_no_recipe_waits_for_a_number(window, attention, position):
    assert run(make_custom(window, attention, position), training=True).device.type == "meta"


def test_a_classifier_does_not_either():
    with torch.device("meta"):
        model = Classifier(create_backbone("ptv3_tiny", 4, encoder_only=True), 5)
    batch = random_batch(COUNTS)
    plan = model.backbone.plan(batch).to("meta")
    assert model(batch.to("meta"), plan).shape == (4, 5)


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(),
        lambda x: int(x[0]),
        lambda x: bool((x > 0).any()),
        lambda x: x.tolist(),
        lambda x: x.cpu(),
        lambda x: x.to("cpu"),
        lambda x: x.numpy(),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: torch.equal(x, x + 1),
        lambda x: x.unique(),
        lambda x: torch.repeat_interleave(x, x),
    ],
    ids=[
        "item",
        "int",
        "bool",
        "tolist",
        "cpu",
        "to",
        "numpy",
        "nonzero",
        "mask",
        "equal",
        "unique",
        "repeat",
    ],
)
def test_whoever_asks_for_a_number_is_refused(wait):
    with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
        wait(torch.ones(3, dtype=torch.int64, device="meta"))
