import pytest
import torch
import torch.nn.functional as F

from pctx.geometry.packed import batch_from_offsets, offsets_from_counts
from pctx.geometry.windows import serial_windows
from pctx.nn.attention import (
    WindowAttention,
    attention_weights,
    dot_product_attention,
    plain_dot_product_attention,
)


def windows_of(counts, size):
    offsets = offsets_from_counts(torch.tensor(counts))
    return serial_windows(torch.arange(sum(counts)), offsets, size)


def heads(w=3, h=2, k=7, d=4, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(w, h, k, d, generator=generator, dtype=dtype, requires_grad=True)
        for _ in range(3)
    ]


def test_one_key_is_its_value():
    query, key, value = heads(k=1)
    torch.testing.assert_close(dot_product_attention(query, key, value), value)


def test_equal_keys_are_averaged():
    query, key, value = heads()
    mean = value.mean(2, keepdim=True).expand_as(value)
    torch.testing.assert_close(dot_product_attention(query, torch.zeros_like(key), value), mean)


def test_a_loud_key_is_chosen():
    _query, key, value = heads(k=3, d=3)
    loud = torch.eye(3, dtype=torch.float64).expand_as(key) * 1000
    chosen = dot_product_attention(loud[..., [2, 0, 1], :], loud, value)
    torch.testing.assert_close(chosen, value[..., [2, 0, 1], :])


def test_two_keys_by_hand():
    query = torch.tensor([[[[2.0, 0.0], [0.0, 0.0]]]])
    key = torch.tensor([[[[1.0, 5.0], [0.0, 5.0]]]])
    value = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]]]])
    first = torch.tensor(2.0 / 2**0.5).sigmoid()  # softmax of (sqrt 2, 0)
    expected = torch.tensor([[[[first, 1 - first], [0.5, 0.5]]]])
    torch.testing.assert_close(dot_product_attention(query, key, value), expected)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_plain_twin_is_equal_in_value_and_gradient(masked, biased, dtype):
    inputs = heads(k=40, d=16, dtype=dtype)
    valid, bias = None, None
    if masked:
        valid = torch.arange(40) < torch.tensor([[40], [1], [17]])
    if biased:
        bias = torch.randn(3, 2, 40, 40, dtype=dtype, requires_grad=True)
        inputs = [*inputs, bias]
    fast = dot_product_attention(*inputs[:3], valid=valid, bias=bias)
    plain = plain_dot_product_attention(*inputs[:3], valid=valid, bias=bias).feat
    torch.testing.assert_close(fast, plain)
    upstream = torch.randn_like(fast)
    found = torch.autograd.grad(fast, inputs, upstream)
    for grad, expected in zip(found, torch.autograd.grad(plain, inputs, upstream), strict=True):
        torch.testing.assert_close(grad, expected)


def test_weights_of_each_query_sum_to_one_and_spare_masked_keys():
    query, key, _ = heads(k=5)
    valid = torch.arange(5) < torch.tensor([[5], [1], [3]])
    weights = attention_weights(query, key, valid=valid)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert (weights.transpose(2, 3)[~valid[:, None, :].expand(-1, 2, -1)] == 0).all()


class TestWindowAttention:
    def test_it_is_attention_over_the_points_of_each_window(self):
        torch.manual_seed(0)
        attention, windows = WindowAttention(8, 2).double(), windows_of([11, 3], 4)
        feat = torch.randn(14, 8, dtype=torch.float64)
        out = attention(feat, windows)
        query, key, value = attention.qkv(feat).view(14, 3, 2, 4).unbind(1)
        for point in range(14):
            window = windows.slot[point] // 4
            keys = windows.index[window]
            if windows.valid is not None:
                keys = keys[windows.valid[window]]
            attended = F.scaled_dot_product_attention(
                query[point, :, None], key[keys].transpose(0, 1), value[keys].transpose(0, 1)
            )
            torch.testing.assert_close(out[point], attention.proj(attended.reshape(8)))

    def test_points_hear_only_their_own_cloud(self):
        attention, windows = WindowAttention(8, 2), windows_of([11, 3, 20], 4)
        feat = torch.randn(34, 8, requires_grad=True)
        batch = batch_from_offsets(offsets_from_counts(torch.tensor([11, 3, 20])), 34)
        for cloud in range(3):
            out = attention(feat, windows)[batch == cloud].sum()
            (grad,) = torch.autograd.grad(out, feat)
            assert (grad[batch != cloud] == 0).all() and (grad[batch == cloud] != 0).any()

    def test_its_weights_are_those_it_pays(self):
        torch.manual_seed(0)
        attention, windows = WindowAttention(8, 2).double(), windows_of([11, 3], 4)
        feat, bias = torch.randn(14, 8).double(), torch.randn(4, 2, 4, 4).double()
        weights = attention.weights(feat, windows, bias)
        value = attention.qkv(feat)[:, 16:].view(14, 2, 4)[windows.index].transpose(1, 2)
        slots = (weights @ value).transpose(1, 2).reshape(-1, 8)
        torch.testing.assert_close(
            attention(feat, windows, bias), attention.proj(slots[windows.slot])
        )

    def test_no_points_give_no_rows(self):
        assert WindowAttention(8, 2)(torch.zeros(0, 8), windows_of([0, 0], 4)).shape == (0, 8)

    def test_channels_that_do_not_divide_are_refused(self):
        with pytest.raises(ValueError, match="channels 10 must be a multiple of num_heads 4"):
            WindowAttention(10, 4)
