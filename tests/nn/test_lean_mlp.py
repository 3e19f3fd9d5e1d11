"""An MLP taken in parts is the same MLP."""

import pytest
import torch
import torch.nn.functional as F

from pctx.nn import backend, lean_mlp
from pctx.nn.compiled_products import compiled_agrees
from pctx.nn.lean_mlp import lean_suits
from pctx.nn.mlp import MLP

# Sums over all rows, in another order.
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(params=["torch", "compiled"], autouse=True)
def engine(request, monkeypatch):
    compiled = request.param == "compiled"
    if compiled and not compiled_agrees():
        pytest.skip("there is no C compiler, or no cache")
    for module in (backend, lean_mlp):
        monkeypatch.setattr(module, "products_gain", lambda: compiled)
    monkeypatch.setattr(backend, "COMPILED_FROM", 0)
    monkeypatch.setattr(backend, "PANEL", 1)
    return request.param


@pytest.fixture
def limit(monkeypatch):
    def set_to(numbers):
        for name in ("HIDDEN_AT_ONCE", "LEAN_FROM"):
            monkeypatch.setattr(lean_mlp, name, numbers)

    return set_to


def plainly(mlp, feat, norm=None):
    feat = feat if norm is None else norm(feat)
    hidden = F.linear(feat, mlp.fc1.weight, mlp.fc1.bias)
    hidden = F.gelu(hidden) if mlp.activation == "gelu" else hidden.relu()
    return F.linear(hidden, mlp.fc2.weight, mlp.fc2.bias)


@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("rows", [1, 16, 41])
@pytest.mark.parametrize("normed", [False, True])
def test_values_and_gradients_are_those_of_the_whole(limit, activation, rows, normed):
    limit(16 * 24 if rows == 16 else rows)
    torch.manual_seed(0)
    mlp, norm = MLP(8, 24, 5, activation=activation), torch.nn.LayerNorm(8) if normed else None
    feat = torch.randn(rows, 8, requires_grad=True)
    assert lean_suits(feat, 24) == (rows != 16)
    upstream = torch.randn(rows, 5)
    inputs = [feat, *mlp.parameters(), *(norm.parameters() if normed else ())]
    if normed:
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    ours, plain = mlp(feat, norm), plainly(mlp, feat, norm)
    torch.testing.assert_close(ours, plain, **CLOSE)
    with torch.no_grad():
        torch.testing.assert_close(mlp(feat, norm), plain, **CLOSE)
    found = [torch.autograd.grad(out, inputs, upstream) for out in (ours, plain)]
    for mine, expected in zip(*found, strict=True):
        torch.testing.assert_close(mine, expected, **CLOSE)


def test_a_norm_that_is_listened_to_is_called(limit):
    limit(1)
    mlp, norm, heard = MLP(8, 24), torch.nn.LayerNorm(8), []
    norm.register_forward_hook(lambda *_: heard.append(1))
    feat = torch.randn(30, 8)
    torch.testing.assert_close(mlp(feat, norm), plainly(mlp, feat, norm), **CLOSE)
    assert len(heard) == 2


def test_no_hidden_row_and_no_normalised_row_is_kept(limit):
    limit(16 * 24)
    mlp, feat = MLP(8, 24), torch.randn(300, 8)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t), t)[1], lambda t: t):
        mlp(feat, torch.nn.LayerNorm(8))
    assert kept and [each for each in kept if len(each) == 300] == [feat]


def test_few_rows_and_other_precisions_are_taken_at_once(engine):
    least = lean_mlp.LEAN_FROM if engine == "compiled" else 2 * lean_mlp.HIDDEN_AT_ONCE
    hidden = least // 1000
    many = torch.zeros(3000, 1)
    assert lean_suits(many, hidden)
    assert not lean_suits(many[:900], hidden)
    assert not lean_suits(many.bfloat16(), hidden)
    assert not lean_suits(many.to("meta"), hidden)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not lean_suits(many, hidden)


def test_a_layer_put_in_place_of_another_is_called(limit):
    limit(16 * 24)
    mlp, feat = MLP(8, 24), torch.randn(300, 8)
    mlp.fc1 = torch.nn.Sequential(mlp.fc1, torch.nn.Tanh())
    torch.testing.assert_close(mlp(feat), mlp.fc2(F.gelu(mlp.fc1(feat))))


def test_weights_of_any_layout_get_their_gradients(limit):
    limit(16 * 24)
    torch.manual_seed(0)
    mlp, feat = MLP(8, 24), torch.randn(300, 8)
    for layer in (mlp.fc1, mlp.fc2):
        layer.weight = torch.nn.Parameter(layer.weight.detach().t().contiguous().t())
    found, expected = (
        torch.autograd.grad(out.sin().sum(), list(mlp.parameters()))
        for out in (mlp(feat), plainly(mlp, feat))
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


@pytest.mark.parametrize("hook", ["forward", "forward_pre", "full_backward"])
def test_a_layer_that_is_listened_to_is_called(limit, hook):
    limit(1)
    mlp, heard = MLP(8, 24), []
    getattr(mlp.fc2, f"register_{hook}_hook")(lambda *_: heard.append(1))
    mlp(torch.randn(300, 8, requires_grad=True)).sum().backward()
    assert heard


def test_rows_of_another_width_are_refused(limit):
    limit(1)
    with pytest.raises(RuntimeError):
        MLP(8, 24)(torch.randn(300, 7))
    with pytest.raises(RuntimeError):
        MLP(8, 24)(torch.randn(300, 8), torch.nn.LayerNorm(7))
