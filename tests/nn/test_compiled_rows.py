"""The compiled kernel moves rows as torch does, to the byte, and looks at no other memory."""

import pytest
import torch

from pctx.geometry.kernel_map import kernel_map
from pctx.nn import compiled_rows, tap_convolution
from pctx.nn.compiled_rows import add_rows, compiled_agrees, rows_suit, take_rows
from pctx.nn.tap_convolution import convolve_by_tap
from tests.nn.clouds import random_voxels


@pytest.fixture(autouse=True)
def compiled():
    if compiled_rows._library() is None:
        pytest.skip("there is no C compiler, or no cache")
    assert compiled_agrees()


@pytest.mark.parametrize("pairs", [0, 1, 300])
@pytest.mark.parametrize("channels", [0, 1, 6, 64])
def test_rows_are_those_of_torch(pairs, channels):
    feat, rows = torch.randn(50, channels), torch.randn(pairs, channels)
    index = torch.randint(50, (pairs,))
    assert torch.equal(take_rows(feat, index, torch.empty_like(rows)), feat[index])
    total = feat.clone()
    for row, place in zip(rows, index, strict=True):
        total[place] += row
    add_rows(feat, index, rows)
    assert torch.equal(feat, total)


@pytest.mark.parametrize("outside", [-1, 50, 2**40])
def test_an_index_outside_is_an_error_and_nothing_is_written_there(outside):
    feat, rows, index = torch.randn(50, 4), torch.randn(3, 4), torch.tensor([0, 49, outside])
    with pytest.raises(IndexError, match="outside of 50 rows"):
        take_rows(feat, index, rows)
    with pytest.raises(IndexError, match="outside of 50 rows"):
        add_rows(feat, index, rows)


def test_convolutions_have_the_same_bytes_with_it_and_without(monkeypatch):
    grid_coord, offsets = random_voxels([400])
    feat = torch.randn(len(grid_coord), 16, requires_grad=True)
    weight = torch.randn(32, 3, 3, 3, 16, requires_grad=True)
    found = []
    for suits in (rows_suit, lambda *_: False):
        monkeypatch.setattr(tap_convolution, "rows_suit", suits)
        out = convolve_by_tap(feat, weight, kernel_map(grid_coord, offsets, 3))
        found.append((out, *torch.autograd.grad(out.sin().sum(), (feat, weight))))
    for ours, plain in zip(*found, strict=True):
        assert torch.equal(ours, plain)


def test_what_does_not_suit_is_left_to_torch(monkeypatch):
    feat = torch.zeros(5, 4)
    assert rows_suit(feat, torch.nn.Parameter(feat))
    for other in (feat.double(), feat.to("meta"), feat.half()):
        assert not rows_suit(feat, other)
    monkeypatch.setattr(compiled_rows, "MOST_THREADS", 0)
    assert not rows_suit(feat)
