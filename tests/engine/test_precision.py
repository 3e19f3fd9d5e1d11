"""Under bf16-mixed norms, softmax and losses are in float32, in every family of models."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pctx.engine.losses import loss_of
from tests.engine.test_losses import CRITERIA, criterion_of, random_batch
from tests.models import clouds
from tests.models.test_contract import MODELS, make

HALF = (torch.bfloat16, torch.float16)
WIDE_INSIDE = ("aten.native_layer_norm.default", "aten.sum.dim_IntList")
"""Kernels of torch that read half precision, sum in float32 and round their result."""
SUMS = ("norm", "softmax", "exp.", "exp_", "sum", "mean", "var", "rsqrt", "scatter", "index_add")


class Spied(TorchDispatchMode):
    """Keeps what sums and normalises in half precision, and how far norms are from float32."""

    def __init__(self):
        super().__init__()
        self.half, self.losses, self.error = set(), set(), 0.0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name, narrow = str(function), [t for t in args if _is_half(t)]
        if narrow and any(part in name for part in SUMS) and name not in WIDE_INSIDE:
            self.half.add(name)
        if narrow and "_to_copy" not in name:
            self.losses.add(name)
        if narrow and "layer_norm" in name:
            exact = function(*(t.float() if _is_half(t) else t for t in args))[0]
            # A rounding of the result is 2**-8 of it at most.
            off = (result[0].float() - exact).abs() / exact.abs().clamp(min=1e-3)
            self.error = max(self.error, off.max().item())
        return result


def _is_half(value):
    return isinstance(value, torch.Tensor) and value.dtype in HALF


@pytest.mark.parametrize("name", MODELS)
def test_norms_and_softmax_of_a_model_are_in_float32(name):
    model, batch = make(name).train(), clouds.random_batch([300, 40])
    hierarchy = model.backbone.plan(batch)
    with torch.autocast("cpu", dtype=torch.bfloat16), Spied() as spied:
        logits = model(batch, hierarchy)
    assert logits.dtype == torch.bfloat16
    assert not spied.half
    assert spied.error <= 2**-8


@pytest.mark.parametrize("name", CRITERIA)
def test_a_loss_is_in_float32_where_autocast_is_on(name):
    logits, points = random_batch()
    logits, criterion = logits.detach().bfloat16(), criterion_of(name)
    with torch.autocast("cpu", dtype=torch.bfloat16), Spied() as spied:
        loss = loss_of(criterion, logits, points.label, points)
    assert loss.dtype == torch.float32
    assert all("index" in name or "alias" in name for name in spied.losses), spied.losses
