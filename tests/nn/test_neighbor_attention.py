import pytest
import torch

from pctx.geometry.neighbors import Neighborhood, knn
from pctx.geometry.packed import offsets_from_counts
from pctx.geometry.windows import serial_windows
from pctx.nn.attention import WindowAttention
from pctx.nn.neighbor_attention import NeighborAttention

OFFSETS = offsets_from_counts(torch.tensor([11, 0, 3, 20]))


def attention_of(seed=0, **options):
    torch.manual_seed(seed)
    return NeighborAttention(8, 2, **options).double()


def features(n=34, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 8, generator=generator, dtype=torch.float64, requires_grad=True)


def nearest(k):
    coord = torch.rand(34, 3, generator=torch.Generator().manual_seed(1))
    return knn(coord, OFFSETS, k)


def test_neighbours_that_are_a_window_hear_what_a_window_hears():
    windows = serial_windows(torch.arange(34), OFFSETS, 5)
    row = windows.slot // 5
    around = Neighborhood(index=windows.index[row], valid=windows.valid[row])
    attention, feat = attention_of(), features()
    dense = WindowAttention(8, 2).double()
    dense.load_state_dict(attention.state_dict())
    torch.testing.assert_close(attention(feat, around), dense(feat, windows))


def test_a_bias_is_added_to_the_scores():
    attention, feat, around = attention_of(), features(), nearest(3)
    # So loud that only the last neighbour is heard.
    bias = torch.zeros(34, 2, 1, 3, dtype=torch.float64)
    bias[..., -1] = 1000
    value = attention.qkv(feat)[:, 16:]
    expected = attention.proj(value[around.index[:, -1]])
    torch.testing.assert_close(attention(feat, around, bias), expected)


def test_missing_neighbours_are_not_heard():
    attention, feat, around = attention_of(), features(), nearest(6)
    assert around.valid is not None and not around.valid.all()
    feat_of_others = around.index.masked_fill(~around.valid, 20)
    other = Neighborhood(index=feat_of_others, valid=around.valid)
    torch.testing.assert_close(attention(feat, around), attention(feat, other))


def test_without_neighbours_there_is_only_the_bias():
    attention, feat = attention_of(), features()
    none = Neighborhood(
        index=torch.zeros(34, 4, dtype=torch.long), valid=torch.zeros(34, 4, dtype=torch.bool)
    )
    torch.testing.assert_close(attention(feat, none), attention.proj.bias.expand(34, 8))


def test_no_points_give_no_rows():
    none = Neighborhood(index=torch.zeros(0, 4, dtype=torch.long), valid=None)
    assert attention_of()(features(0), none).shape == (0, 8)


def test_both_engines_give_the_same_values_and_gradients():
    found = []
    for engine in ("sdpa", "plain"):
        attention, feat, around = attention_of(backend=engine), features(), nearest(6)
        bias = torch.randn(
            34, 2, 1, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64
        ).requires_grad_()
        result = attention(feat, around, bias)
        result.square().sum().backward()
        found.append([result, feat.grad, bias.grad, attention.qkv.weight.grad])
    for fused, plain in zip(*found, strict=True):
        torch.testing.assert_close(fused, plain)


def test_heads_must_divide_channels():
    with pytest.raises(ValueError, match="channels 8 must be a multiple of num_heads 3"):
        NeighborAttention(8, 3)
    with pytest.raises(ValueError, match="backend must be one of .*, found 'fast'"):
        NeighborAttention(8, 2, backend="fast")


def test_its_weights_are_those_it_pays():
    attention, feat, around = attention_of(), features(), nearest(6)
    bias = torch.randn(34, 2, 1, 6, generator=torch.Generator().manual_seed(2)).double()
    weights = attention.weights(feat, around, bias)  # (n, h, k)
    assert around.valid is not None
    torch.testing.assert_close(weights.sum(-1), torch.ones(34, 2).double())
    assert (weights.transpose(1, 2)[~around.valid] == 0).all()
    told = attention.attend(weights, feat, around, bias)
    torch.testing.assert_close(told, attention(feat, around, bias))


def test_a_few_points_can_be_asked():
    attention, feat, around = attention_of(), features(), nearest(3)
    few = around.rows(torch.arange(5))
    weights = attention.weights(feat, few)
    torch.testing.assert_close(weights, attention.weights(feat, around)[:5])
    torch.testing.assert_close(attention.attend(weights, feat, few), attention(feat, around)[:5])
