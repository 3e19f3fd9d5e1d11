"""Which parameter learns at which rate."""

import math

import pytest
import torch

from pctx.engine.optim import depths_from_head, parameter_groups
from pctx.models.factory import create_model, list_models
from pctx.models.unet import UNet

TINY = [name for name in list_models() if name.endswith("_tiny")]


def model_of(name="ptv3_tiny"):
    with torch.device("meta"):
        return create_model(name, 4, 3)


def has_unet(model):
    return any(isinstance(part, UNet) for part in model.backbone.modules())


def rates(model, **options):
    """The rate of each parameter, and whether it decays."""
    found = {}
    for group in parameter_groups(model, weight_decay=0.1, lr=1.0, **options):
        for parameter in group["params"]:
            assert parameter not in found
            found[parameter] = (group["lr"], group["weight_decay"] > 0)
    return {name: found[p] for name, p in model.named_parameters() if p in found}


def test_every_parameter_is_in_one_group_and_norms_and_biases_do_not_decay():
    model = model_of()
    found = rates(model, block_factor=0.1)
    assert set(found) == {name for name, _ in model.named_parameters()}
    for name, p in model.named_parameters():
        assert found[name] == (0.1 if ".blocks." in name else 1.0, p.ndim > 1)
    assert len(parameter_groups(model, weight_decay=0.1, lr=1.0)) == 2


@pytest.mark.parametrize("name", TINY)
def test_in_any_unet_layers_are_numbered_from_the_head_back_to_the_points(name):
    model = model_of(name)
    if not has_unet(model):
        with pytest.raises(ValueError, match="layer_decay needs a backbone with a U-Net"):
            depths_from_head(model)
        return
    depth = depths_from_head(model)
    unet = next(part for part in model.backbone.modules() if isinstance(part, UNet))
    number = {p: depth[key] for key, p in model.named_parameters()}

    def of(part):
        numbers = {number[p] for p in part.parameters()}
        assert len(numbers) == 1
        return numbers.pop()

    walk = [model.head, *unet.decoder, *([unet.bottom] if unet.bottom else [])]
    walk += [stage for stage in reversed(unet.encoder) if any(True for _ in stage.parameters())]
    found = [of(part) for part in walk]
    assert found == sorted(found) and len(set(found)) == len(found) and found[0] == 0
    for step, coarse in zip(unet.down, unet.encoder[1:], strict=True):
        if any(True for _ in step.parameters()):
            assert of(step) == of(coarse)
    inside = {id(p) for part in (model.head, unet) for p in part.parameters()}
    assert all(number[p] == max(number.values()) for p in number if id(p) not in inside)


def test_a_layer_learns_at_a_share_of_the_rate_of_the_one_nearer_to_the_head():
    model = model_of()
    depth = depths_from_head(model)
    found = rates(model, layer_decay=0.5, block_factor=0.1)
    assert set(depth.values()) == set(range(9))  # head, 3 decoder and 4 encoder stages, stem
    for name, (rate, _) in found.items():
        share = 0.1 if ".blocks." in name else 1.0
        assert math.isclose(rate, share * 0.5 ** depth[name])


def test_frozen_parameters_are_in_no_group():
    model = model_of()
    model.backbone.requires_grad_(False)
    assert set(rates(model)) == {"head.weight", "head.bias"}
    model.head.requires_grad_(False)
    with pytest.raises(ValueError, match="nothing is left to learn"):
        parameter_groups(model, weight_decay=0.1, lr=1.0)


@pytest.mark.parametrize("name", ["lr", "block_factor", "layer_decay"])
def test_rates_and_shares_are_above_zero(name):
    with pytest.raises(ValueError, match=f"optim.{name} must be above 0, found 0"):
        parameter_groups(model_of(), **{"weight_decay": 0.1, "lr": 1.0, name: 0})
