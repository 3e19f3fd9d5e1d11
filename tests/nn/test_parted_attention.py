import pytest
import torch

from pctx.geometry.window_parts import part_windows
from pctx.geometry.windows import grid_windows
from pctx.nn.attentive import Attentive
from pctx.nn.contextual import ContextualEncoding
from pctx.nn.contextual_attention import ContextualWindowAttention
from pctx.nn.parted_attention import PartedAttention
from tests.nn.clouds import random_voxels

# Sums over masked slots add zeros; sums of gradients come in another order.
CLOSE = {"rtol": 0, "atol": 1e-12}


@pytest.fixture
def case():
    torch.manual_seed(0)
    attention = ContextualWindowAttention(12, ContextualEncoding.crse(2, 6, 5, groups=1)).double()
    for table in attention.encoding.parameters():
        torch.nn.init.normal_(table)
    cells, offsets = random_voxels([300, 0, 20])
    windows = grid_windows(cells, offsets, 5)
    feat = torch.randn(320, 12, dtype=torch.float64, requires_grad=True)
    return PartedAttention(attention), feat, cells.float(), windows, part_windows(windows)


def test_parts_change_neither_values_nor_gradients(case):
    parted, feat, signal, windows, parts = case
    assert len(parts.parts) > 1
    leaves = [feat, *parted.parameters()]
    seen = torch.randn(320, 12, dtype=torch.float64)
    found = []
    for told in (parted(feat, signal, windows, parts), parted.attention(feat, signal, windows)):
        found.append([told, *torch.autograd.grad((told * seen).sum(), leaves)])
    for ours, dense in zip(*found, strict=True):
        torch.testing.assert_close(ours, dense, **CLOSE)


def test_it_can_be_looked_into(case):
    parted, *inputs = case
    assert isinstance(parted, Attentive)
    weights = parted.weights(*inputs)
    torch.testing.assert_close(parted.attend(weights, *inputs), parted(*inputs), **CLOSE)
