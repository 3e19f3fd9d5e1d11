import pytest
import torch

from pctx.geometry.kernel_map import kernel_map
from pctx.nn.attention import WindowAttention
from pctx.nn.dot_product import dot_product_attention
from pctx.nn.sparse_conv import SubmanifoldConv3d


def biased_attention():
    query, key, value = torch.randn(3, 2, 2, 64, 8).requires_grad_()
    bias = torch.randn(2, 2, 64, 64, requires_grad=True)
    return dot_product_attention(query, key, value, bias=bias, backend="sdpa").sum(), bias


def convolution():
    cells = torch.cartesian_prod(*[torch.arange(3)] * 3)
    feat = torch.randn(27, 4, requires_grad=True)
    conv = SubmanifoldConv3d(4, 4, 3)
    return conv(feat, kernel_map(cells, torch.tensor([0, 27]), 3)).sum(), feat


@pytest.mark.parametrize("layer", [biased_attention, convolution])
def test_a_second_derivative_is_refused_where_it_would_be_a_constant(layer):
    # The gradient of a sum is constant: torch's own decorator lets this pass.
    score, inputs = layer()
    with pytest.raises(RuntimeError, match="second derivatives .* are not to be had through"):
        torch.autograd.grad(score, inputs, create_graph=True)


@pytest.mark.parametrize("layer", [biased_attention, convolution])
def test_a_first_derivative_is_not(layer):
    score, inputs = layer()
    (grad,) = torch.autograd.grad(score, inputs)
    assert grad.isfinite().all() and grad.abs().sum() > 0


def test_an_unknown_backend_is_refused_when_the_layer_is_made():
    with pytest.raises(ValueError, match="backend must be one of auto, plain, sdpa, found 'flash'"):
        WindowAttention(8, 2, backend="flash")
