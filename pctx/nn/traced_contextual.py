"""Contextual look-ups of all signals at once, for exported graphs: the twins of `contextual`'s.

A quarter of the operators, at the price of a number a signal for each pair.

w windows, k slots a window, a signals, h heads, d channels a head, r rows of the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from jaxtyping import Float, Int
from torch import Tensor


def traced_rows(place: Float[Tensor, "w k a"], bounds: Sequence[int]) -> Int[Tensor, "w k k*a"]:
    """Return the row of every query, key and signal in tables that hold the signals in turn."""
    bound = torch.tensor(bounds, dtype=place.dtype, device=place.device)
    widths = [2 * each for each in bounds]
    first = torch.tensor([*accumulate(widths[:-1], initial=0)], device=place.device)
    offset = (place[:, :, None] - place[:, None, :]).floor()  # (w, k, k, a)
    row = (torch.minimum(torch.maximum(offset, -bound), bound - 1) + bound).long() + first
    return row.flatten(2)


def traced_read(
    scores: Float[Tensor, "w h k r"], rows: Int[Tensor, "w k k*a"], signals: int
) -> Float[Tensor, "w h k k"]:
    """Sum, for every query and key, the scores in its row of each signal."""
    w, h, k, _ = scores.shape
    read = scores.gather(-1, rows[:, None].expand(w, h, k, k * signals))
    return read.view(w, h, k, k, signals).sum(-1)


def traced_write(
    weights: Float[Tensor, "w h k k"], rows: Int[Tensor, "w k k*a"], size: int, signals: int
) -> Float[Tensor, "w h k r"]:
    """Add, for every query, the weight of each key to its row of each signal."""
    w, h, k, _ = weights.shape
    every = weights[..., None].expand(w, h, k, k, signals).reshape(w, h, k, k * signals)
    index = rows[:, None].expand(w, h, k, k * signals)
    return weights.new_zeros(w, h, k, size).scatter_add(-1, index, every)
