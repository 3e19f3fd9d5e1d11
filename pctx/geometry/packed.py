"""Packed segments: clouds or clusters one after another, and reductions over them.

n rows, b clouds, m segments, c channels.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, Real
from torch import Tensor


def offsets_from_counts(counts: Int[Tensor, "b"]) -> Int[Tensor, "b+1"]:
    """Turn segment sizes into offsets: 0, then the running total."""
    offsets = counts.new_zeros(len(counts) + 1, dtype=torch.int64)
    torch.cumsum(counts, 0, out=offsets[1:])
    return offsets


def counts_from_offsets(offsets: Int[Tensor, "b+1"]) -> Int[Tensor, "b"]:
    """Return the size of each segment."""
    return offsets.diff()


def batch_from_offsets(offsets: Int[Tensor, "b+1"], n: int) -> Int[Tensor, "n"]:
    """Return the segment number of each of the `n` rows; needs no host sync, as `n` is given."""
    segments = torch.arange(len(offsets) - 1, device=offsets.device)
    return torch.repeat_interleave(segments, offsets.diff(), output_size=n)


def segment_sum(values: Float[Tensor, "n c"], starts: Int[Tensor, "m+1"]) -> Float[Tensor, "m c"]:
    """Sum the rows starts[i] : starts[i + 1]; an empty segment gives 0.

    Half-precision values are summed in float32. `starts` runs from 0 to n.
    """
    return _segment_reduce(values, starts, "sum")


def segment_mean(values: Float[Tensor, "n c"], starts: Int[Tensor, "m+1"]) -> Float[Tensor, "m c"]:
    """Average the rows starts[i] : starts[i + 1]; an empty segment gives 0.

    Half-precision values are summed in float32. `starts` runs from 0 to n.
    """
    return _segment_reduce(values, starts, "mean")


def segment_max(values: Float[Tensor, "n c"], starts: Int[Tensor, "m+1"]) -> Float[Tensor, "m c"]:
    """Take the largest of the rows starts[i] : starts[i + 1]; an empty segment gives 0.

    Equal largest values share the gradient evenly. `starts` runs from 0 to n.
    """
    return _segment_reduce(values, starts, "max")


def segment_min(values: Float[Tensor, "n c"], starts: Int[Tensor, "m+1"]) -> Float[Tensor, "m c"]:
    """Take the smallest of the rows starts[i] : starts[i + 1]; an empty segment gives 0.

    Equal smallest values share the gradient evenly. `starts` runs from 0 to n.
    """
    return _segment_reduce(values, starts, "min")


def cloud_minimum(
    coord: Real[Tensor, "n 3"], offsets: Int[Tensor, "b+1"]
) -> Real[Tensor, "b 3"]:
    """Return the smallest coordinate of each cloud on each axis; 0 for an empty cloud."""
    return _cloud_extreme(coord, offsets, "min")


def cloud_maximum(
    coord: Real[Tensor, "n 3"], offsets: Int[Tensor, "b+1"]
) -> Real[Tensor, "b 3"]:
    """Return the largest coordinate of each cloud on each axis; 0 for an empty cloud."""
    return _cloud_extreme(coord, offsets, "max")


def _cloud_extreme(coord: Tensor, offsets: Tensor, reduce: str) -> Tensor:
    cells = coord if coord.is_floating_point() else coord.long()
    if len(offsets) == 2 and len(cells):
        # One cloud: five times as fast as one segment.
        return cells.amin(0, keepdim=True) if reduce == "min" else cells.amax(0, keepdim=True)
    # torch reduces segments of floats only; float64 holds integers to 2**53.
    return _segment_reduce(cells.double(), offsets, reduce).to(cells.dtype)


def _segment_reduce(values: Tensor, starts: Tensor, reduce: str) -> Tensor:
    lengths = starts.diff()
    wide = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
    reduced = torch.segment_reduce(wide.contiguous(), reduce, lengths=lengths, axis=0, unsafe=True)
    # The extremes of nothing are infinite and its mean is not a number.
    if reduce != "sum":
        reduced = reduced.masked_fill((lengths == 0)[:, None], 0)
    return reduced.to(values.dtype)
