"""Planners: what plans without weights, in another process, as the model does."""

import pickle

import pytest
import torch

from pctx.models.factory import create_model, list_models
from pctx.models.planner import planner_of
from tests.models.clouds import random_batch

TINY = [name for name in list_models() if name.endswith("_tiny")]


def tensors(value):
    """Every tensor of a plan, in a fixed order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    elif hasattr(value, "__dataclass_fields__"):
        value = [getattr(value, name) for name in value.__dataclass_fields__]
    return [t for each in value for t in tensors(each)] if isinstance(value, list | tuple) else []


@pytest.mark.parametrize("name", TINY)
def test_a_planner_plans_as_its_model_and_carries_no_weights(name):
    backbone = create_model(name, in_channels=4, num_classes=3).backbone
    sent = pickle.dumps(planner_of(backbone))
    weights = sum(p.numel() * p.element_size() for p in backbone.parameters())
    assert len(sent) < weights / 4
    points = random_batch([300, 0, 40])
    for seed in (None, 3):
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        ours = tensors(backbone.plan(points, generator))
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        theirs = tensors(pickle.loads(sent)(points, generator))
        assert len(ours) == len(theirs) > 3
        assert all(a.equal(b) for a, b in zip(ours, theirs, strict=True))
    assert not any(p.is_meta for p in backbone.parameters())
