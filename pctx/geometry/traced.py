"""Segments in operators that exported graphs hold, whatever the number of rows or segments.

The twins of what `packed` does at once; sums are added in any order on a GPU.

n rows, m segments, c channels.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def traced_segment(starts: Int[Tensor, "m+1"], n: int) -> Int[Tensor, "n"]:
    """Return the segment number of each of the `n` rows: how many starts lie at or before it."""
    # A mark at each start, the end's beyond all rows; those of empty segments fall on one another.
    marks = starts.new_zeros(n + 1).index_add(0, starts, torch.ones_like(starts))
    return torch.cumsum(marks[:n], 0) - 1


def traced_sum(rows: Float[Tensor, "n c"], starts: Int[Tensor, "m+1"]) -> Float[Tensor, "m c"]:
    """Sum the rows of each segment."""
    n, c = rows.shape
    none = rows.new_zeros(starts.shape[0] - 1, c)
    return none.index_add(0, traced_segment(starts, n), rows)


def traced_extreme(
    rows: Float[Tensor, "n c"], starts: Int[Tensor, "m+1"], reduce: str
) -> Float[Tensor, "m c"]:
    """Take the largest ("max") or smallest ("min") of each segment; 0 where there is none."""
    n, c = rows.shape
    index = traced_segment(starts, n)[:, None].expand(n, c)
    none = rows.new_zeros(starts.shape[0] - 1, c)
    return none.scatter_reduce(0, index, rows, f"a{reduce}", include_self=False)
