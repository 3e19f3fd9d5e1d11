import pytest
import torch

from pctx.geometry.windows import serial_windows
from pctx.nn.attentive import Attentive
from pctx.nn.rotary_attention import RotaryWindowAttention
from tests.nn.clouds import random_voxels


@pytest.fixture
def given():
    grid_coord, offsets = random_voxels([50, 5])
    windows = serial_windows(torch.arange(55), offsets, 16)
    feat = torch.randn(55, 24, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    return RotaryWindowAttention(24, 2), feat, grid_coord, windows


def test_scores_are_those_of_vectors_turned_at_each_point(given):
    attention, feat, grid_coord, windows = given
    query, key, value = attention.attention.qkv(feat).view(55, 3, 2, 12).unbind(1)  # (n, h, d)
    half = 2  # planes a third
    angle = grid_coord[:, :, None] * 100.0 ** (-torch.arange(half) / half)  # (n, 3, 2)
    turn = torch.polar(torch.ones_like(angle), angle)[:, None]

    def turned(heads):
        first, second = heads.view(55, 2, 3, 2, half).unbind(-2)
        return (torch.complex(first, second) * turn).flatten(-2)  # (n, h, 6)

    scores = torch.einsum("qhp,khp->hqk", turned(query), turned(key).conj()).real / 12**0.5
    expected = []
    for point in range(55):
        row = windows.slot[point] // 16
        there = windows.index[row][windows.valid[row]]
        weights = scores[:, point, there].softmax(-1)
        expected.append(torch.einsum("hk,khd->hd", weights, value[there]).flatten())
    expected = attention.attention.proj(torch.stack(expected))
    torch.testing.assert_close(attention(feat, grid_coord, windows), expected)


def test_whole_translations_change_nothing_and_positions_do(given):
    attention, feat, grid_coord, windows = given
    result = attention(feat, grid_coord, windows)
    moved = attention(feat, grid_coord + torch.tensor([5, -3, 100_000]), windows)
    assert torch.equal(moved, result)
    assert not torch.allclose(attention(feat, grid_coord * 2, windows), result, atol=1e-3)


def test_the_attention_paid_gives_the_result(given):
    attention, feat, grid_coord, windows = given
    assert isinstance(attention, Attentive)
    weights = attention.weights(feat, grid_coord, windows)
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    torch.testing.assert_close(
        attention.attend(weights, feat, grid_coord, windows), attention(feat, grid_coord, windows)
    )


def test_heads_that_cannot_be_cut_in_three_are_refused():
    with pytest.raises(ValueError, match="multiple of 6, found 16"):
        RotaryWindowAttention(32, 2)


def test_the_engine_can_be_chosen_and_changes_no_number(given):
    attention, feat, grid_coord, windows = given
    results = []
    for backend in ("plain", "sdpa"):
        other = RotaryWindowAttention(24, 2, backend=backend)
        other.load_state_dict(attention.state_dict())
        assert other.attention.backend == backend
        results.append(other(feat, grid_coord, windows))
    torch.testing.assert_close(*results)
    with pytest.raises(ValueError, match="backend must be one of .*, found 'fast'"):
        RotaryWindowAttention(24, 2, backend="fast")
