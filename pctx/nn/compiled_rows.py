"""Rows taken and added by index by a small compiled kernel, `rows.c`: the bytes that torch gives.

torch sorts the targets of each sum first, which takes as long as the sums. Who calls asks
`rows_suit` first; one thread does it all.

n rows, p pairs, c channels.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pctx.geometry.compiled import kernel

MOST_THREADS = 4
"""Threads from which torch's own, which share the rows, are taken to be faster."""

_SOURCE = Path(__file__).with_name("rows.c")


def rows_suit(*tensors: Tensor) -> bool:
    """Tell whether the kernel can read and write rows of these."""
    return (
        not torch.compiler.is_compiling()
        and torch.get_num_threads() <= MOST_THREADS
        and all(
            type(tensor) in (Tensor, nn.Parameter)  # others have no numbers to point to
            and tensor.device.type == "cpu"
            and tensor.dtype == torch.float32
            for tensor in tensors
        )
        and compiled_agrees()
    )


def take_rows(
    feat: Float[Tensor, "n c"], index: Int[Tensor, "p"], out: Float[Tensor, "p c"]
) -> Float[Tensor, "p c"]:
    """Copy feat[index] to `out`; all are contiguous.

    Raises:
        IndexError: an index lies outside.
    """
    _call("pctx_take_rows", feat, index, out)
    return out


def add_rows(
    total: Float[Tensor, "n c"], index: Int[Tensor, "p"], rows: Float[Tensor, "p c"]
) -> None:
    """Add rows[i] to total[index[i]], one after the other, in place; all are contiguous.

    Raises:
        IndexError: an index lies outside.
    """
    _call("pctx_add_rows", total, index, rows)


@cache
def compiled_agrees() -> bool:
    """Build or find the kernel and try it once, against torch."""
    if _library() is None:
        return False
    generator = torch.Generator().manual_seed(0)
    feat, rows = (torch.randn(n, 5, generator=generator) for n in (40, 100))
    index = torch.randint(40, (100,), generator=generator)
    total = feat.clone()
    for row, place in zip(rows, index, strict=True):
        total[place] += row
    added = feat.clone()
    add_rows(added, index, rows)
    taken = take_rows(feat, index, torch.empty_like(rows))
    return torch.equal(added, total) and torch.equal(taken, feat[index])


def _call(name: str, whole: Tensor, index: Tensor, some: Tensor) -> None:
    there, channels = whole.shape
    done = getattr(_library(), name)(
        ctypes.c_void_p(whole.data_ptr()),
        ctypes.c_int64(there),
        ctypes.c_void_p(index.data_ptr()),
        ctypes.c_int64(len(index)),
        ctypes.c_int64(channels),
        ctypes.c_void_p(some.data_ptr()),
    )
    if not done:
        raise IndexError(f"an index is outside of {there} rows")


def _library() -> ctypes.CDLL | None:
    return kernel(_SOURCE)
