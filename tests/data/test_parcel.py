"""Parcels: values that come from other processes as they were."""

import gc
import os
import pickle
from dataclasses import dataclass

import pytest
import torch

from pctx.data.parcel import Sender, can_send

pytestmark = pytest.mark.skipif(not can_send(), reason="this system has no files in memory")


@dataclass
class Held:
    one: torch.Tensor
    more: dict[str, torch.Tensor | None]
    words: str = "words"


def value(size=1000, seed=0):
    generator = torch.Generator().manual_seed(seed)
    one = torch.randn(size, 3, generator=generator)
    more = {
        "same": one,
        "none": None,
        "empty": torch.zeros(0, 3, dtype=torch.int64),
        "scalar": torch.tensor(7, dtype=torch.int16),
        "turned": one.T,
        "flags": one[:, 0] > 0,
        "half": one.bfloat16(),
    }
    return Held(one=one, more=more)


def sent(sender, held):
    return pickle.loads(pickle.dumps(sender.pack(held)))


def assert_equal(found, held):
    assert found.one.equal(held.one) and found.words == held.words
    assert found.more["none"] is None
    for name in ("same", "empty", "scalar", "turned", "flags", "half"):
        assert found.more[name].equal(held.more[name])
        assert found.more[name].dtype == held.more[name].dtype


def test_a_value_arrives_as_it_was_and_shares_what_it_shared():
    found = sent(Sender(), value())
    assert_equal(found, value())
    assert found.more["same"] is found.one


def test_a_file_is_not_written_to_while_anything_lies_in_it():
    sender = Sender()
    found = [sent(sender, value(seed=seed)) for seed in range(3)]
    for seed, each in enumerate(found):
        assert_equal(each, value(seed=seed))
    assert len(sender._files) == 3


def test_a_view_of_what_arrived_keeps_its_file():
    sender = Sender()
    row = sent(sender, value(seed=1)).one[5:6]
    gc.collect()
    sent(sender, value(seed=2))
    assert row.equal(value(seed=1).one[5:6])


def test_a_file_is_used_anew_when_all_that_lay_in_it_is_gone():
    sender = Sender()
    for seed in range(10):
        assert_equal(
            sent(sender, value(seed=seed, size=10 + 300 * seed)), value(300 * seed + 10, seed)
        )
        gc.collect()
    assert len(sender._files) == 1


def test_what_needs_a_gradient_arrives_with_all_that_was_computed_of_it():
    sender = Sender()
    held = sent(sender, value(seed=1))
    weight = torch.ones(3, requires_grad=True)
    loss = (held.one * weight).square().sum()
    expected = (2 * value(seed=1).one.square()).sum(0)
    del held
    gc.collect()
    sent(sender, value(seed=2))  # would write over what the graph holds
    loss.backward()
    torch.testing.assert_close(weight.grad, expected)


def test_files_end_with_their_sender():
    sender = Sender()
    sent(sender, value())
    files = [file.number for file in sender._files]
    del sender
    gc.collect()
    for file in files:
        with pytest.raises(OSError):
            os.fstat(file)


def test_what_was_filled_in_its_place_arrives_as_what_was_copied():
    sender = Sender()
    for seed in range(5):  # the first finds no room; of the fourth, one is not sent
        placed = sender.empty((1000, 3), torch.float32)
        if seed == 3:
            placed = sender.empty((1000, 3), torch.float32)
        held = value(seed=seed)
        placed.copy_(held.one)
        held.one = held.more["same"] = placed
        held.more["turned"] = placed.T
        held.more["words"] = placed[5:6]  # starts within another
        found = sent(sender, held)
        assert_equal(found, value(seed=seed))
        assert found.more["words"].equal(value(seed=seed).one[5:6])
        del found, held, placed
        gc.collect()
    assert len(sender._files) == 1


def test_only_what_has_no_room_is_copied():
    sender = Sender()
    sent(sender, value())
    gc.collect()
    placed = sender.empty((10, 3), torch.int64)
    file = sender._files[0].block
    assert file.data_ptr() < placed.data_ptr() < file.data_ptr() + len(file)
    huge = sender.empty((10**6,), torch.int64)
    assert not file.data_ptr() < huge.data_ptr() < file.data_ptr() + len(file)
