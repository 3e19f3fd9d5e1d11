"""What a CPU computes, a GPU computes too, and never waits for it between plan and logits."""

import pytest
import torch
import torch.nn.functional as F

from pctx.geometry.flat import named_tensors, settled
from pctx.models.factory import create_model, list_models
from tests.models.clouds import random_batch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

TINY = [name for name in list_models() if name.endswith("_tiny")]

# Other kernels, other orders of sums, through a dozen layers; logits are about 1.
CLOSE = {"rtol": 1e-3, "atol": 1e-4}


@pytest.fixture(params=TINY)
def model(request):
    torch.manual_seed(0)
    return create_model(request.param, 4, 3).eval()


def test_a_plan_is_the_same_on_a_gpu(model):
    batch = random_batch([900, 0, 30])
    here = named_tensors(settled(model.backbone.plan(batch)))
    there = named_tensors(settled(model.backbone.plan(batch.to("cuda"))))
    assert here.keys() == there.keys()
    for name, tensor in here.items():
        assert there[name].is_cuda, name
        # Means of coordinates are summed in another order.
        torch.testing.assert_close(there[name].cpu(), tensor, rtol=1e-5, atol=1e-6, msg=name)


def test_logits_and_gradients_are_those_of_the_cpu(model):
    batch = random_batch([900, 0, 30])
    plan, found = model.backbone.plan(batch), []
    for device in ("cpu", "cuda"):
        model.to(device).zero_grad()
        points = batch.to(device)
        logits = model(points, plan.to(device))
        F.cross_entropy(logits, points.label).backward()
        found.append([logits.cpu(), *(p.grad.cpu() for p in model.parameters())])
    for here, there in zip(*found, strict=True):
        torch.testing.assert_close(there, here, **CLOSE)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_stays_near(model, dtype):
    batch = random_batch([900, 30])
    expected = model(batch)
    with torch.autocast("cuda", dtype=dtype):
        half = model.to("cuda")(batch.to("cuda"))
    F.cross_entropy(half.float(), batch.label.cuda()).backward()
    # Eight bits of mantissa through a dozen layers.
    assert (half.float().cpu() - expected).abs().mean() < 0.05


@pytest.mark.parametrize("training", [False, True])
def test_nothing_waits_for_the_gpu(model, training):
    batch = random_batch([900, 0, 30]).to("cuda")
    model = model.to("cuda").train(training)
    plan = model.backbone.plan(batch)
    F.cross_entropy(model(batch, plan), batch.label).backward()  # engines are tried, once
    torch.cuda.set_sync_debug_mode("error")
    try:
        model(batch, plan).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_forward_is_captured_as_a_cuda_graph(model):
    batch = random_batch([900, 0, 30]).to("cuda")
    model = model.to("cuda")
    plan = model.backbone.plan(batch)
    with torch.no_grad():
        expected = model(batch, plan)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            model(batch, plan)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = model(batch, plan)
        graph.replay()
    torch.testing.assert_close(logits, expected, **CLOSE)
