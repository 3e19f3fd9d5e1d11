"""Sort, search and compact integers: on the CPU by whichever of numpy and torch is faster.

n keys, q queries. Milliseconds on one core of an AMD EPYC (Zen 4), torch 2.13, numpy 2.4:

    n                              20 k    60 k    1 M
    np.sort of key and row         0.57    2.1     51      (by AVX2: 0.16, 0.40, 10.6)
    torch.sort, too few to radix   0.95    -       -
    torch.sort by radix            -       0.8     24
    the same of int32              -       0.4     12
    np.searchsorted in order               1.2
    torch.searchsorted in order            2.1
    np.flatnonzero                         0.03
    torch.nonzero                          0.18

The AVX-512 sort of numpy is slow on Zen 4 and the fastest of all elsewhere, so a few milliseconds
of sorting decide, once a process.
"""

from __future__ import annotations

import platform
import time
from functools import cache

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

WORD_BITS = 63
"""Bits of a non-negative int64."""

_RADIX_FROM = 1 << 15
"""Keys from which torch sorts integers by radix: with FBGEMM, which only x86 builds carry."""

_INT32_BITS = 31
"""Bits of a non-negative int32."""


def stable_sort(key: Int[Tensor, "n"], bits: int) -> tuple[Int[Tensor, "n"], Int[Tensor, "n"]]:
    """Sort keys ascending, equal keys by row: (sorted keys, their rows).

    Args:
        key: int64, in [0, 2**bits).
        bits: at most 63.
    """
    n = len(key)
    row_bits = max(n - 1, 0).bit_length()
    if key.device.type == "cpu" and bits + row_bits <= WORD_BITS:
        if n < _RADIX_FROM or not _radix_is_faster():
            return _sort_packed(key, row_bits)
        if bits <= _INT32_BITS:
            narrow, order = torch.sort(key.int(), stable=True)
            return narrow.long(), order
    ascending, order = torch.sort(key, stable=True)
    return ascending, order


def argsort_pairs(
    major: Int[Tensor, "n"], major_bits: int, minor: Int[Tensor, "n"], minor_bits: int
) -> Int[Tensor, "n"]:
    """Order rows by major, then minor key, then row; by two sorts where 63 bits hold not both.

    Args:
        major: int64, in [0, 2**major_bits).
        major_bits: at most 63.
        minor: int64, in [0, 2**minor_bits).
        minor_bits: at most 63.
    """
    if major_bits == 0:
        return stable_sort(minor, minor_bits)[1]
    if major_bits + minor_bits <= WORD_BITS:
        key = minor | (major << minor_bits)
        # Voxels often come sorted; to look costs a tenth of a sort.
        if key.device.type == "cpu" and bool((key[1:] >= key[:-1]).all()):
            return torch.arange(len(key), device=key.device)
        return stable_sort(key, major_bits + minor_bits)[1]
    order = stable_sort(minor, minor_bits)[1]
    return order[stable_sort(major[order], major_bits)[1]]


def search(ascending: Int[Tensor, "n"], query: Int[Tensor, "q"]) -> Int[Tensor, "q"]:
    """Return the first place in ascending keys that is not below each query: 0 to n."""
    if ascending.device.type == "cpu":
        return torch.from_numpy(np.searchsorted(ascending.numpy(), query.numpy()))
    return torch.searchsorted(ascending, query)


def places(mask: Bool[Tensor, "n"]) -> Int[Tensor, "q"]:
    """Return where a mask is true, ascending. Syncs with the host."""
    if mask.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(mask.numpy()))
    return mask.nonzero().squeeze(1)


def changes(values: Int[Tensor, "n"]) -> Bool[Tensor, "n"]:
    """Mark each value that differs from the one before it, and the first."""
    head = torch.ones(len(values), dtype=torch.bool, device=values.device)
    torch.ne(values[1:], values[:-1], out=head[1:])
    return head


def bit_length(value: Int[Tensor, "b"]) -> Int[Tensor, "b"]:
    """Return how many bits non-negative integers take: 0 for 0."""
    powers = 2 ** torch.arange(63, device=value.device)
    return (value[:, None] >= powers).sum(1)


def _sort_packed(key: Tensor, row_bits: int) -> tuple[Tensor, Tensor]:
    """Sort key and row in one word."""
    packed = key << row_bits
    packed |= torch.arange(len(key), device=key.device)
    packed.numpy().sort()
    return packed >> row_bits, packed & ((1 << row_bits) - 1)


@cache
def _radix_is_faster() -> bool:
    """Time both sorts: processor time, the shortest of a few, as the machine may be busy."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    key = torch.arange(2 * _RADIX_FROM, device="cpu") * 0x9E3779B1 % (1 << 36)  # as good as random
    row_bits = (len(key) - 1).bit_length()
    radix, packed = [], []
    for _ in range(5):
        start = time.thread_time()
        torch.sort(key, stable=True)
        between = time.thread_time()
        _sort_packed(key, row_bits)
        radix.append(between - start)
        packed.append(time.thread_time() - between)
    return min(radix) < min(packed)
