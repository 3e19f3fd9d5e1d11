import pytest
import torch
import torch.nn.functional as F

from pctx.nn import backend
from pctx.nn.compiled_products import compiled_agrees

# Sums of a few hundred products, in another order.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture
def no_kernel(monkeypatch):
    monkeypatch.setattr(backend, "products_gain", lambda: False)


@pytest.fixture
def one_dnn(no_kernel):
    if "oneDNN" not in backend.engines()["matrix products"]:
        pytest.skip("oneDNN is not in this build of torch")


@pytest.fixture(params=["one_dnn", "compiled"])
def engine(request, monkeypatch):
    if request.param == "one_dnn":
        request.getfixturevalue("one_dnn")
        monkeypatch.setattr(backend, "ONEDNN_FROM", 1_000_000)
    elif not compiled_agrees():
        pytest.skip("there is no C compiler, or no cache")
    else:
        monkeypatch.setattr(backend, "products_gain", lambda: True)
        monkeypatch.setattr(backend, "COMPILED_FROM", 0)
        monkeypatch.setattr(backend, "PANEL", 1)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("shape", [(9000, 16), (3, 3000, 16), (5, 16), (0, 16)])
@pytest.mark.parametrize("out", [32, 19])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.usefixtures("engine")
def test_linear_equals_the_public_one_in_value_and_gradients(shape, out, biased):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator, requires_grad=True)
    weight = torch.randn(out, 16, generator=generator, requires_grad=True)
    bias = torch.randn(out, generator=generator, requires_grad=True) if biased else None
    inputs = [x, weight] + ([bias] if bias is not None else [])
    ours, public = backend.linear(x, weight, bias), F.linear(x, weight, bias)
    torch.testing.assert_close(ours, public, **CLOSE)
    upstream = torch.randn(ours.shape, generator=generator)
    found = torch.autograd.grad(ours, inputs, upstream)
    for grad, expected in zip(found, torch.autograd.grad(public, inputs, upstream), strict=True):
        # A weight's gradient sums over all rows.
        torch.testing.assert_close(grad, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("one_dnn")
def test_large_products_run_on_onednn_and_small_ones_on_torch():
    weight = torch.randn(64, 64)
    assert backend.product_engine(torch.randn(20000, 64), weight) == "onednn"
    assert backend.product_engine(torch.randn(5000, 64), weight) == "torch"
    assert backend.product_engine(torch.randn(20000, 64, dtype=torch.float64), weight) == "torch"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert backend.product_engine(torch.randn(20000, 64), weight) == "torch"


@pytest.mark.usefixtures("one_dnn")
def test_a_broken_onednn_is_not_used(monkeypatch):
    def wrong(x, weight, bias):
        return F.linear(x, weight, bias) + 1

    def absent(x, weight, bias):
        raise AttributeError("no such operator")

    for impostor in (wrong, absent):
        with monkeypatch.context() as patch:
            patch.setattr(backend, "_onednn_linear", impostor)
            backend._onednn_agrees.cache_clear()
            assert backend.product_engine(torch.randn(5000, 64), torch.randn(65, 64)) == "torch"
    backend._onednn_agrees.cache_clear()
    assert backend.product_engine(torch.randn(5000, 64), torch.randn(65, 64)) == "onednn"


@pytest.mark.usefixtures("engine")
def test_a_strided_weight_is_repacked():
    stack = torch.randn(65, 27, 64)
    x = torch.randn(5000, 64)
    torch.testing.assert_close(
        backend.linear(x, stack[:, 3]), x @ stack[:, 3].T, rtol=1e-4, atol=1e-4
    )


@pytest.mark.usefixtures("engine")
def test_bytes_do_not_depend_on_the_number_of_threads(threads):
    generator = torch.Generator().manual_seed(0)
    for n, i, o in [
        (20000, 32, 96),
        (333, 32, 19),
        (333, 32, 16),
        (50, 96, 6),
        (2001, 48, 48),
        (7, 64, 32),
    ]:
        x = torch.randn(n, i, generator=generator)
        weight, bias = torch.randn(o, i, generator=generator), torch.randn(o, generator=generator)
        rows = []
        for count in (1, 2, 4):
            threads(count)
            rows.append(backend.linear(x, weight, bias))
        assert torch.equal(rows[0], rows[1]) and torch.equal(rows[0], rows[2]), (n, i, o)


@pytest.mark.usefixtures("engine")
def test_linear_has_second_derivatives():
    x = torch.randn(9000, 16, requires_grad=True)
    weight = torch.randn(33, 16, requires_grad=True)
    (grad,) = torch.autograd.grad(
        backend.linear(x, weight).square().sum(), weight, create_graph=True
    )
    (second,) = torch.autograd.grad(grad.sum(), weight)
    (plain,) = torch.autograd.grad(F.linear(x, weight).square().sum(), weight, create_graph=True)
    torch.testing.assert_close(
        second, torch.autograd.grad(plain.sum(), weight)[0], rtol=1e-4, atol=1e-2
    )
