"""Sort and search 64-bit keys: numpy's vector instructions on the CPU, torch elsewhere.

n keys, q queries.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

WORD_BITS = 63
"""Bits of a non-negative int64."""


def argsort_clouds(
    code: Int[Tensor, "n"], code_bits: int, batch: Int[Tensor, "n"], num_clouds: int
) -> Int[Tensor, "n"]:
    """Order rows by cloud, then code, then row.

    Cloud, code and row share one word where they fit; deep codes of many clouds take two sorts.

    Args:
        code: non-negative, below 2**code_bits.
        code_bits: at most 63.
        batch: the cloud of each row, ascending.
        num_clouds: how many clouds there are.
    """
    cloud_bits = max(num_clouds - 1, 0).bit_length()
    if code_bits + cloud_bits + _index_bits(len(code)) <= WORD_BITS:
        return argsort_packed(code | (batch << code_bits))
    order = torch.argsort(code, stable=True)
    return order[torch.argsort(batch[order], stable=True)]


def argsort_packed(key: Int[Tensor, "n"]) -> Int[Tensor, "n"]:
    """Order rows by key, then row; the bits of key and row number together must be at most 63."""
    bits = _index_bits(len(key))
    packed = key << bits
    packed |= torch.arange(len(key), device=key.device)
    return sort(packed) & ((1 << bits) - 1)


def sort(key: Int[Tensor, "n"]) -> Int[Tensor, "n"]:
    """Sort keys ascending."""
    if key.device.type == "cpu":
        return torch.from_numpy(np.sort(key.numpy()))
    return torch.sort(key).values


def search(ascending: Int[Tensor, "n"], query: Int[Tensor, "q"]) -> Int[Tensor, "q"]:
    """Return the first place in ascending keys that is not below each query: 0 to n."""
    if ascending.device.type == "cpu":
        return torch.from_numpy(np.searchsorted(ascending.numpy(), query.numpy()))
    return torch.searchsorted(ascending, query)


def _index_bits(n: int) -> int:
    return max(n - 1, 0).bit_length()
