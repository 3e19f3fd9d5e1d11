import pytest
import torch

from pctx.nn.batch_norm import ROWS_AT_ONCE, mean_and_variance, normalize


def plainly(x, weight, bias, eps):
    centred = x - x.mean(0)
    return centred / (centred.square().mean(0) + eps).sqrt() * weight + bias


@pytest.mark.parametrize("n", [2, 7, ROWS_AT_ONCE, ROWS_AT_ONCE + 1, 3 * ROWS_AT_ONCE - 5])
def test_values_and_gradients_are_those_of_the_formula(n):
    torch.manual_seed(0)
    inputs = [t.requires_grad_() for t in (torch.randn(n, 5) * 3 + 4, torch.rand(5), torch.rand(5))]
    inputs = [t.detach().double().requires_grad_() for t in inputs]
    ours, expected = normalize(*inputs, 1e-3)[0], plainly(*inputs, 1e-3)
    torch.testing.assert_close(ours, expected)
    up = torch.randn(n, 5, dtype=torch.float64)
    grads = (torch.autograd.grad(y, inputs, up) for y in (ours, expected))
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


def test_it_may_be_differentiated_twice():
    torch.manual_seed(0)
    inputs = [torch.randn(s, dtype=torch.float64).requires_grad_() for s in ((6, 3), (3,), (3,))]
    assert torch.autograd.gradcheck(lambda *a: normalize(*a, 1e-3)[0], inputs)
    assert torch.autograd.gradgradcheck(lambda *a: normalize(*a, 1e-3)[0], inputs)


def test_rows_of_any_layout_and_constant_gradients_are_fine():
    torch.manual_seed(0)
    wide, weight, bias = torch.randn(9, 8).requires_grad_(), torch.rand(4), torch.rand(4)
    y = normalize(wide[:, ::2], weight, bias, 1e-3)[0]
    torch.testing.assert_close(y, plainly(wide[:, ::2], weight, bias, 1e-3))
    y.sum().backward()  # an expanded gradient
    torch.testing.assert_close(wide.grad, torch.zeros(9, 8), atol=1e-5, rtol=0)


def test_the_moments_of_many_far_rows_are_exact():
    x = torch.randn(300_000, 3, generator=torch.Generator().manual_seed(0)) + 50
    mean, var = mean_and_variance(x)
    wide = x.double()
    # Rounding x itself, near 50, to float32 moves a row by 4e-6.
    assert (mean - wide.mean(0)).abs().max() < 1e-5
    assert (var / wide.var(0, correction=0) - 1).abs().max() < 1e-5
