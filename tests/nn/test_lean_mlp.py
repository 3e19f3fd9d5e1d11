"""An MLP taken in parts is the same MLP."""

import pytest
import torch
import torch.nn.functional as F

from pctx.nn import lean_mlp
from pctx.nn.lean_mlp import lean_suits
from pctx.nn.mlp import MLP

# Sums over all rows, in another order.
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def plainly(mlp, feat):
    hidden = F.linear(feat, mlp.fc1.weight, mlp.fc1.bias)
    hidden = F.gelu(hidden) if mlp.activation == "gelu" else hidden.relu()
    return F.linear(hidden, mlp.fc2.weight, mlp.fc2.bias)


@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("rows", [1, 16, 41])
def test_values_and_gradients_are_those_of_the_whole(monkeypatch, activation, rows):
    monkeypatch.setattr(lean_mlp, "HIDDEN_AT_ONCE", 16 * 24 if rows > 1 else 1)
    torch.manual_seed(0)
    mlp = MLP(8, 24, 5, activation=activation)
    feat = torch.randn(rows, 8, requires_grad=True)
    assert lean_suits(feat, 24) == (rows != 16)
    upstream = torch.randn(rows, 5)
    inputs = [feat, *mlp.parameters()]
    found = [
        torch.autograd.grad(run(feat), inputs, upstream) for run in (mlp, lambda x: plainly(mlp, x))
    ]
    torch.testing.assert_close(mlp(feat), plainly(mlp, feat), **CLOSE)
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, **CLOSE)


def test_no_hidden_row_is_kept(monkeypatch):
    monkeypatch.setattr(lean_mlp, "HIDDEN_AT_ONCE", 16 * 24)
    mlp, feat = MLP(8, 24), torch.randn(300, 8)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: (kept.append(t.shape), t)[1], lambda t: t
    ):
        mlp(feat)
    assert kept and (300, 24) not in kept


def test_few_rows_and_other_precisions_are_taken_at_once():
    hidden = lean_mlp.HIDDEN_AT_ONCE // 1000
    many = torch.empty(3000, 1, device="cpu")
    assert lean_suits(many, hidden)
    assert not lean_suits(many[:900], hidden)
    assert not lean_suits(many.bfloat16(), hidden)
    assert not lean_suits(many.to("meta"), hidden)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not lean_suits(many, hidden)


def test_a_layer_put_in_place_of_another_is_called(monkeypatch):
    monkeypatch.setattr(lean_mlp, "HIDDEN_AT_ONCE", 16 * 24)
    mlp, feat = MLP(8, 24), torch.randn(300, 8)
    mlp.fc1 = torch.nn.Sequential(mlp.fc1, torch.nn.Tanh())
    torch.testing.assert_close(mlp(feat), mlp.fc2(F.gelu(mlp.fc1(feat))))
