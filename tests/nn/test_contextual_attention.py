import pytest
import torch

from pctx.geometry.packed import offsets_from_counts
from pctx.geometry.windows import serial_windows
from pctx.nn.attention import WindowAttention
from pctx.nn.attentive import Attentive
from pctx.nn.contextual import ContextualEncoding
from pctx.nn.contextual_attention import ContextualWindowAttention

WINDOWS = serial_windows(torch.arange(16), offsets_from_counts(torch.tensor([10, 3, 3])), 4)


def attention_of(scale=10.0):
    torch.manual_seed(0)
    encoding = ContextualEncoding(2, 4, (3, 3, 3), (1, 1, 1))
    attention = ContextualWindowAttention(8, encoding).double()
    with torch.no_grad():
        for table in encoding.parameters():
            table.mul_(scale)
    return attention


def inputs():
    generator = torch.Generator().manual_seed(1)
    feat = torch.randn(16, 8, generator=generator, dtype=torch.float64, requires_grad=True)
    return feat, torch.randint(0, 6, (16, 3), generator=generator)


def test_it_is_the_equation_slot_by_slot():
    """The equation of `ContextualEncoding`, for one query after another."""
    attention, (feat, cells) = attention_of(), inputs()
    query, key, value = attention.attention.split(feat, WINDOWS)
    encoding = attention.encoding
    expected = torch.zeros_like(value)
    for w, places in enumerate(cells[WINDOWS.index]):
        for i in range(4):
            row = (places[i] - places).clamp(-3, 2) + 3 + torch.tensor([0, 6, 12])  # (k, 3)
            asks, answers, tells = (
                table[row].sum(1).transpose(0, 1)  # (h, k, d)
                for table in (encoding.query_table, encoding.key_table, encoding.value_table)
            )
            q = query[w, :, i, None]
            scores = (q * (key[w] + asks)).sum(-1) / 2 + (key[w] * answers).sum(-1)
            if WINDOWS.valid is not None:
                scores = scores.masked_fill(~WINDOWS.valid[w], -torch.inf)
            weights = scores.softmax(-1)[..., None]
            expected[w, :, i] = (weights * (value[w] + tells)).sum(1)
    torch.testing.assert_close(
        attention(feat, cells, WINDOWS), attention.attention.merge(expected, WINDOWS)
    )


def test_tables_of_zeros_are_plain_attention():
    attention, (feat, cells) = attention_of(scale=0), inputs()
    plain = WindowAttention(8, 2).double()
    plain.load_state_dict(attention.attention.state_dict())
    torch.testing.assert_close(attention(feat, cells, WINDOWS), plain(feat, WINDOWS))


def test_its_weights_are_those_it_pays():
    attention, (feat, cells) = attention_of(), inputs()
    assert isinstance(attention, Attentive)
    weights = attention.weights(feat, cells, WINDOWS)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    told = attention.attend(weights, feat, cells, WINDOWS)
    torch.testing.assert_close(told, attention(feat, cells, WINDOWS))


def test_the_encoding_must_have_heads_as_wide():
    with pytest.raises(ValueError, match=r"= channels 12, found 2 \* 4"):
        ContextualWindowAttention(12, ContextualEncoding(2, 4, (3,), (1,)))
