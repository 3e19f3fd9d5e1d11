"""The engines of a GPU give what those of a CPU give, values and gradients."""

import pytest
import torch

from pctx.geometry.kernel_map import kernel_map
from pctx.nn.dot_product import dot_product_attention
from pctx.nn.segment import segment_reduce, segment_softmax
from pctx.nn.sparse_conv import SubmanifoldConv3d
from pctx.nn.spconv_engine import spconv_is_installed
from tests.nn.clouds import random_voxels

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

# Other kernels, other orders of sums.
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def both(function, *tensors):
    """The value and the gradients of a function, on the CPU and on the GPU."""
    found = []
    for device in ("cpu", "cuda"):
        given = [t.to(device).requires_grad_(t.is_floating_point()) for t in tensors]
        out = function(*given)
        grads = torch.autograd.grad(out.sin().sum(), [t for t in given if t.requires_grad])
        found.append([each.cpu() for each in (out, *grads)])
    return zip(*found, strict=True)


@pytest.mark.parametrize("k", [7, 48, 1024])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_attention(k, masked, biased):
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 4, 2, k, 16).unbind()
    valid = torch.rand(4, k) < 0.7 if masked else None
    bias = torch.randn(4, 2, k, k)

    def attend(query, key, value, bias):
        mask = None if valid is None else valid.to(query.device)
        added = bias if biased else None
        heard = dot_product_attention(query, key, value, valid=mask, bias=added)
        return heard + 0 * bias.sum()

    for here, there in both(attend, query, key, value, bias):
        torch.testing.assert_close(there, here, **CLOSE)


@pytest.mark.parametrize("backend", ["torch", "spconv"])
def test_sparse_convolution(backend):
    if backend == "spconv" and not spconv_is_installed():
        pytest.skip("spconv is not here")
    torch.manual_seed(0)
    cells, offsets = random_voxels([400, 30])
    pairs = kernel_map(cells, offsets, 3)
    convolution = SubmanifoldConv3d(16, 32, 3, backend=backend)

    def convolve(feat):
        return convolution.to(feat.device)(feat, pairs.to(feat.device))

    for here, there in both(convolve, torch.randn(len(cells), 16)):
        torch.testing.assert_close(there, here, **CLOSE)


@pytest.mark.parametrize("reduction", ["sum", "mean", "max", "min", "softmax"])
def test_segments(reduction):
    torch.manual_seed(0)
    starts = torch.tensor([0, 3, 3, 50, 64])

    def reduce(values):
        here = starts.to(values.device)
        if reduction == "softmax":
            return segment_softmax(values, here)
        return segment_reduce(values, here, reduction)

    for here, there in both(reduce, torch.randn(64, 8)):
        torch.testing.assert_close(there, here, **CLOSE)
