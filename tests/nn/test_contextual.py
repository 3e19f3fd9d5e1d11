import math

import pytest
import torch

from pctx.geometry.packed import offsets_from_counts
from pctx.geometry.windows import serial_windows
from pctx.nn.contextual import ContextualEncoding
from pctx.nn.dot_product import attention_weights, dot_product_attention


def case(counts=(7, 3), size=4, h=2, d=3, m=3, dtype=torch.float64, spread=1.0):
    torch.manual_seed(0)
    windows = serial_windows(
        torch.arange(sum(counts)), offsets_from_counts(torch.tensor(counts)), size
    )
    w, k = windows.index.shape
    query, key, value = (torch.randn(w, h, k, d, dtype=dtype) for _ in range(3))
    return torch.randn(sum(counts), m) * spread, windows, query, key, value


def slow(encode, signal, windows, query, key, value):
    """The equations of the class, a pair at a time: (score, result)."""
    w, h, k, d = query.shape
    score, result = query.new_zeros(w, h, k, k), torch.zeros_like(query)
    starts = [2 * sum(encode.bounds[:a]) for a in range(len(encode.bounds))]

    def looked_up(table, window, i, j):
        total = table.new_zeros(h, d)
        for a, (bound, step, start) in enumerate(
            zip(encode.bounds, encode.steps, starts, strict=True)
        ):
            s_i, s_j = (signal[windows.index[window, slot], a] / step for slot in (i, j))
            quantised = min(max(math.floor(s_i - s_j), -bound), bound - 1)
            total = total + table[start + bound + quantised]
        return total

    for window in range(w):
        for i in range(k):
            for j in range(k):
                q, key_ = query[window, :, i] / math.sqrt(d), key[window, :, j]
                score[window, :, i, j] = (
                    q * key_
                    + q * looked_up(encode.query_table, window, i, j)
                    + key_ * looked_up(encode.key_table, window, i, j)
                ).sum(-1)
        if windows.valid is not None:
            score[window, :, :, ~windows.valid[window]] = -torch.inf
        weights = score[window].softmax(-1)
        for i in range(k):
            for j in range(k):
                told = value[window, :, j] + looked_up(encode.value_table, window, i, j)
                result[window, :, i] += weights[:, i, j, None] * told
    return score, result


@pytest.mark.parametrize("bounds", [(2, 3, 1), (1, 1, 1)])
def test_attention_with_it_is_the_published_equation(bounds):
    signal, windows, query, key, value = case()
    encode = ContextualEncoding(2, 3, bounds, (0.5, 0.4, 1.0)).double()
    for table in encode.parameters():
        torch.nn.init.normal_(table)
    bias, value_term = encode(signal, windows, query, key)
    weights = attention_weights(query, key, valid=windows.valid, bias=bias)
    score, result = slow(encode, signal, windows, query, key, value)
    torch.testing.assert_close(weights, score.softmax(-1))
    torch.testing.assert_close(weights @ value + value_term(weights), result)
    fast = dot_product_attention(query, key, value, valid=windows.valid, bias=bias)
    torch.testing.assert_close(fast, weights @ value)


def test_gradients_are_those_of_differences():
    signal, windows, query, key, value = case(counts=(4,), d=2, m=2)
    encode = ContextualEncoding(2, 2, (2, 1), (0.5, 0.4)).double()
    names = [name for name, _ in encode.named_parameters()]

    def attend(query, key, *tables):
        state = dict(zip(names, tables, strict=True))
        bias, value_term = torch.func.functional_call(encode, state, (signal, windows, query, key))
        weights = attention_weights(query, key, bias=bias)
        return weights @ value + value_term(weights)

    inputs = [t.detach().requires_grad_() for t in (query, key, *encode.parameters())]
    assert torch.autograd.gradcheck(attend, inputs)


def test_offsets_past_the_bound_are_told_alike():
    windows = serial_windows(torch.arange(3), offsets_from_counts(torch.tensor([3])), 3)
    _, _, query, key, _ = case(counts=(3,), size=3, m=1)
    query, key = query[:, :, :1].expand_as(query), key[:, :, :1].expand_as(key)
    bias = ContextualEncoding(2, 3, (2,), (1.0,)).double()
    near, edge, far = (
        bias(torch.tensor([[0.0], [1.0], [at]]), windows, query, key).bias
        for at in (1.0, 2.0, 50.0)
    )
    torch.testing.assert_close(edge[..., 0, 2], far[..., 0, 2])
    torch.testing.assert_close(near[..., 0, 2], near[..., 0, 1])
    assert not torch.allclose(edge[..., 0, 2], near[..., 0, 2])


def test_whole_steps_of_translation_change_nothing():
    signal, windows, query, key, _ = case(dtype=torch.float32)
    encode, signal = ContextualEncoding.crse(2, 3, 5, groups=1), (signal * 64).round() / 64
    moved = encode(signal + torch.tensor([100.0, -7.25, 3.5]), windows, query, key)
    assert torch.equal(moved.bias, encode(signal, windows, query, key).bias)


def test_scores_follow_the_order_of_slots():
    signal, _, query, key, _ = case(counts=(6,), size=6)
    encode = ContextualEncoding(2, 3, (2, 2, 2), (0.5, 0.5, 0.5)).double()
    offsets, order = offsets_from_counts(torch.tensor([6])), torch.randperm(6)
    plain = encode(signal, serial_windows(torch.arange(6), offsets, 6), query, key)
    mixed = encode(signal, serial_windows(order, offsets, 6), query[:, :, order], key[:, :, order])
    torch.testing.assert_close(mixed.bias, plain.bias[:, :, order][..., order])
    weights = torch.rand_like(plain.bias)
    torch.testing.assert_close(
        mixed.value(weights[:, :, order][..., order]), plain.value(weights)[:, :, order]
    )


def test_crpe_has_the_published_tables():
    # S3DIS: windows of 0.16 m, steps of 0.01 m; keys reach over two windows.
    encode = ContextualEncoding.crpe(3, 16, reach=0.32, step=0.01)
    assert encode.query_table.shape == (3 * 64, 3, 16) and encode.bounds == (32, 32, 32)


@pytest.mark.parametrize(("groups", "rows"), [(1, 120), (2, 216), (3, 312)])
def test_crse_has_the_published_tables(groups, rows):
    # Windows of 5 voxels, 4 steps a voxel: 2 * 5 * 4 rows; colours: 2 * 2 * 8.
    encode = ContextualEncoding.crse(6, 8, 5, groups=groups)
    assert encode.value_table.shape == (rows, 6, 8) and len(encode.bounds) == 3 * groups


def test_no_offset_inside_a_window_or_between_colours_reaches_the_bound():
    encode = ContextualEncoding.crse(1, 2, 5, groups=2)
    extreme = torch.tensor([4.999] * 3 + [2.0] * 3) / torch.tensor(encode.steps)
    assert (extreme.floor() <= torch.tensor(encode.bounds)).all()
    assert (extreme[:3].floor() < torch.tensor(encode.bounds[:3])).all()


def test_half_precision_is_near_and_teaches_every_table():
    signal, windows, query, key, value = case(m=9, dtype=torch.float32)
    encode = ContextualEncoding.crse(2, 3, 2)

    def attend():
        bias, value_term = encode(signal, windows, query, key)
        weights = attention_weights(query, key, valid=windows.valid, bias=bias)
        return weights @ value + value_term(weights)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = attend()
    torch.testing.assert_close(half.float(), attend(), atol=0.05, rtol=0.05)
    half.float().square().sum().backward()
    for name, parameter in encode.named_parameters():
        assert parameter.grad is not None and (parameter.grad != 0).any(), name


def test_no_points_have_no_scores():
    signal, windows, query, key, _ = case(counts=(0,))
    bias, value_term = ContextualEncoding.crse(2, 3, 5, groups=1)(signal, windows, query, key)
    assert bias.shape == (0, 2, 1, 1) and value_term(bias).shape == (0, 2, 1, 3)


@pytest.mark.parametrize(
    ("bounds", "steps"), [((), ()), ((2, 2), (1.0,)), ((0,), (1.0,)), ((2,), (0.0,))]
)
def test_signals_without_steps_are_refused(bounds, steps):
    with pytest.raises(ValueError, match="bounds and steps must be positive, one of each"):
        ContextualEncoding(2, 4, bounds, steps)


def test_other_signals_than_the_tables_are_refused():
    signal, windows, query, key, _ = case()
    with pytest.raises(ValueError, match="must have 9 columns, found 3"):
        ContextualEncoding.crse(2, 3, 5)(signal, windows, query, key)
