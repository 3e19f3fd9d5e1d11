"""Packed segments: clouds or clusters one after another, and reductions over groups of rows.

n rows, b clouds, m segments, * any further dimensions.

The rows of `segment_*` come sorted: segment i owns the rows starts[i] : starts[i + 1], and `starts`
run from 0 to n. Those of `scatter_*` come in any order: row j belongs to segment index[j], of
`num_segments` = m. For both

- an empty segment gives 0; no rows give no softmax;
- half precision is computed in float32 and rounded once;
- rows that share a maximum or a minimum share its gradient evenly, channel by channel;
- on the CPU a segment's rows are added in their order: no byte depends on the threads;
- gradients have gradients.

By index, extremes and softmax sort first: who uses the same groups again sorts them once, by
`group_rows`, gathers the rows, and reduces them as segments. Wrong starts or a wrong
index are a ValueError (on a GPU they are not looked at).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Real
from torch import Tensor

from pctx.geometry.checks import check_index, check_offsets
from pctx.geometry.sorting import search, stable_sort
from pctx.geometry.traced import traced_extreme, traced_segment, traced_sum


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
    if torch.compiler.is_compiling():
        return traced_segment(offsets, n)
    segments = torch.arange(len(offsets) - 1, device=offsets.device)
    return torch.repeat_interleave(segments, offsets.diff(), output_size=n)


def segment_sum(values: Float[Tensor, "n *c"], starts: Int[Tensor, "m+1"]) -> Float[Tensor, "m *c"]:
    """Sum the rows of each segment."""
    return _reduce(_sum, values, _in_order(values, starts))


def segment_mean(
    values: Float[Tensor, "n *c"], starts: Int[Tensor, "m+1"]
) -> Float[Tensor, "m *c"]:
    """Average the rows of each segment."""
    return _reduce(_mean, values, _in_order(values, starts))


def segment_max(values: Float[Tensor, "n *c"], starts: Int[Tensor, "m+1"]) -> Float[Tensor, "m *c"]:
    """Take the largest of each segment, channel by channel."""
    return _reduce(_max, values, _in_order(values, starts))


def segment_min(values: Float[Tensor, "n *c"], starts: Int[Tensor, "m+1"]) -> Float[Tensor, "m *c"]:
    """Take the smallest of each segment, channel by channel."""
    return _reduce(_min, values, _in_order(values, starts))


def segment_softmax(
    values: Float[Tensor, "n *c"], starts: Int[Tensor, "m+1"]
) -> Float[Tensor, "n *c"]:
    """Divide the exponential of each row by the sum of its segment's, channel by channel."""
    return _reduce(_softmax, values, _in_order(values, starts))


def scatter_sum(
    values: Float[Tensor, "n *c"], index: Int[Tensor, "n"], num_segments: int
) -> Float[Tensor, "m *c"]:
    """Sum the rows of each segment, found by index."""
    check_index(index, num_segments, len(values))
    return _reduce(_index_sum, values, index, num_segments)


def scatter_mean(
    values: Float[Tensor, "n *c"], index: Int[Tensor, "n"], num_segments: int
) -> Float[Tensor, "m *c"]:
    """Average the rows of each segment, found by index."""
    check_index(index, num_segments, len(values))
    return _reduce(_index_mean, values, index, num_segments)


def scatter_max(
    values: Float[Tensor, "n *c"], index: Int[Tensor, "n"], num_segments: int
) -> Float[Tensor, "m *c"]:
    """Take the largest of each segment, found by index, channel by channel."""
    return _reduce(_max, values, _by_index(values, index, num_segments))


def scatter_min(
    values: Float[Tensor, "n *c"], index: Int[Tensor, "n"], num_segments: int
) -> Float[Tensor, "m *c"]:
    """Take the smallest of each segment, found by index, channel by channel."""
    return _reduce(_min, values, _by_index(values, index, num_segments))


def scatter_softmax(
    values: Float[Tensor, "n *c"], index: Int[Tensor, "n"], num_segments: int
) -> Float[Tensor, "n *c"]:
    """Divide the exponential of each row by the sum of its segment's, found by index."""
    return _reduce(_softmax, values, _by_index(values, index, num_segments))


def group_rows(
    index: Int[Tensor, "n"], num_segments: int
) -> tuple[Int[Tensor, "n"], Int[Tensor, "m+1"]]:
    """Sort rows by segment, those of a segment in their order: (order, starts).

    Segment i owns order[starts[i] : starts[i + 1]].

    Raises:
        ValueError: if an index is not from 0 to num_segments - 1; a GPU is not asked.
    """
    check_index(index, num_segments, len(index))
    ascending, order = stable_sort(index.long(), max(num_segments - 1, 0).bit_length())
    return order, search(ascending, torch.arange(num_segments + 1, device=index.device))


def cloud_minimum(coord: Real[Tensor, "n 3"], offsets: Int[Tensor, "b+1"]) -> Real[Tensor, "b 3"]:
    """Return the smallest coordinate of each cloud on each axis; 0 for an empty cloud."""
    return _cloud_extreme(coord, offsets, "min")


def cloud_maximum(coord: Real[Tensor, "n 3"], offsets: Int[Tensor, "b+1"]) -> Real[Tensor, "b 3"]:
    """Return the largest coordinate of each cloud on each axis; 0 for an empty cloud."""
    return _cloud_extreme(coord, offsets, "max")


def from_corner(
    coord: Real[Tensor, "n 3"],
    offsets: Int[Tensor, "b+1"],
    batch: Int[Tensor, "n"] | None = None,
) -> Real[Tensor, "n 3"]:
    """Measure coordinates from the smallest of their cloud on each axis.

    Args:
        coord: metres or voxel numbers.
        offsets: the limits of the clouds.
        batch: the cloud of each point, where it is known.
    """
    corner = cloud_minimum(coord, offsets)
    if len(corner) == 1:
        return coord - corner
    if batch is None:
        batch = batch_from_offsets(offsets, len(coord))
    return coord - corner.index_select(0, batch)


def _cloud_extreme(coord: Tensor, offsets: Tensor, reduce: str) -> Tensor:
    # Sizes by `shape`: `len` would fix them in an exported graph.
    offsets, traced = check_offsets(offsets, coord.shape[0]), torch.compiler.is_compiling()
    cells = coord if coord.is_floating_point() else coord.long()
    if not traced and len(offsets) == 2 and len(cells):
        # One cloud: five times as fast as one segment.
        return cells.amin(0, keepdim=True) if reduce == "min" else cells.amax(0, keepdim=True)
    if cells.is_floating_point():
        return _extreme(cells.double(), _Groups(offsets), reduce).to(cells.dtype)
    if cells.device.type == "cpu" and not traced:
        return _integer_extreme(cells, offsets, reduce)
    batch = batch_from_offsets(offsets, cells.shape[0])[:, None].expand_as(cells)
    none = cells.new_zeros(offsets.shape[0] - 1, cells.shape[1])
    return none.scatter_reduce_(0, batch, cells, f"a{reduce}", include_self=False)


def _integer_extreme(cells: Tensor, offsets: Tensor, reduce: str) -> Tensor:
    """Reduce by numpy: torch reduces segments of floats only, and float64 ends at 2**53."""
    extreme = np.zeros((len(offsets) - 1, cells.shape[1]), np.int64)
    starts = offsets.numpy()
    some = starts[1:] > starts[:-1]
    if some.any():
        ufunc = np.minimum if reduce == "min" else np.maximum
        extreme[some] = ufunc.reduceat(cells.numpy(), starts[:-1][some], axis=0)
    return torch.from_numpy(extreme)


def _reduce(operation: Callable[..., Tensor], values: Tensor, *groups: Any) -> Tensor:
    """Apply an operation of rows (n, c) and their groups to rows of any shape and precision."""
    n, *shape = values.shape
    rows = values.reshape(n, math.prod(shape))
    if rows.dtype in (torch.float16, torch.bfloat16):
        rows = rows.float()
    reduced = operation(rows, *groups)
    return reduced.reshape(reduced.shape[0], *shape).to(values.dtype)


class _Groups(NamedTuple):
    """The rows of segments.

    Attributes:
        starts: (m + 1,)
        order: (n,) the rows sorted by segment; None if they are.
        segment: (n,) of each row; None if `starts` say it all.
    """

    starts: Tensor
    order: Tensor | None = None
    segment: Tensor | None = None

    def spread(self, reduced: Tensor, n: int) -> Tensor:
        """Copy the row of each segment (m, c) to its rows (n, c)."""
        segment = self.segment
        return reduced.index_select(
            0, batch_from_offsets(self.starts, n) if segment is None else segment
        )


def _in_order(values: Tensor, starts: Tensor) -> _Groups:
    return _Groups(check_offsets(starts, values.shape[0], "starts"))


def _by_index(values: Tensor, index: Tensor, num_segments: int) -> _Groups:
    check_index(index, num_segments, len(values))
    order, starts = group_rows(index, num_segments)
    return _Groups(starts, order, index)


def _sum(rows: Tensor, groups: _Groups) -> Tensor:
    if torch.compiler.is_compiling() and groups.order is None:
        return traced_sum(rows, groups.starts)
    total: Tensor = _SegmentSum.apply(rows, *groups)
    return total


def _mean(rows: Tensor, groups: _Groups) -> Tensor:
    return _sum(rows, groups) / groups.starts.diff().clamp(min=1)[:, None]


def _extreme(rows: Tensor, groups: _Groups, reduce: str) -> Tensor:
    if torch.compiler.is_compiling() and groups.order is None:
        return traced_extreme(rows, groups.starts, reduce)
    extreme: Tensor = _SegmentExtreme.apply(rows, *groups, reduce)
    return extreme


_max, _min = partial(_extreme, reduce="max"), partial(_extreme, reduce="min")


def _softmax(rows: Tensor, groups: _Groups) -> Tensor:
    weights: Tensor = _SegmentSoftmax.apply(rows, *groups)
    return weights


class _SegmentSum(torch.autograd.Function):
    """An embedding bag, three times as fast as torch's segment sum; back, copies of its rows."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, starts: Tensor, order: Tensor | None, segment: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(starts, order, segment)
        ctx.n = len(rows)
        if order is None:
            order = torch.arange(ctx.n, dtype=starts.dtype, device=rows.device)
        return F.embedding_bag(order, rows, starts, mode="sum", include_last_offset=True)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return _Groups(*ctx.saved_tensors).spread(grads[0], ctx.n), None, None, None


class _SegmentExtreme(torch.autograd.Function):
    """torch's maximum or minimum; its own backward shares no negative gradient among equals."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        starts: Tensor,
        order: Tensor | None,
        segment: Tensor | None,
        reduce: str,
    ) -> Tensor:
        ordered = rows if order is None else rows.index_select(0, order)
        lengths = starts.diff()
        extreme = torch.segment_reduce(ordered, reduce, lengths=lengths, axis=0, unsafe=True)
        extreme.masked_fill_((lengths == 0)[:, None], 0)  # those of nothing are infinite
        ctx.save_for_backward(rows, extreme, starts, order, segment)
        return extreme

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, extreme, *rest = ctx.saved_tensors
        groups, n = _Groups(*rest), len(rows)
        with torch.no_grad():
            equal = groups.spread(extreme, n).eq_(rows)  # 1 or 0; half the time of a mask
            share = _sum(equal, groups).clamp_(min=1).reciprocal_()
        return equal.mul_(groups.spread(grads[0] * share, n)), None, None, None, None


class _SegmentSoftmax(torch.autograd.Function):
    """Keeps the result w alone; back, w * (gradient - the segment's sum of w * gradient)."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, starts: Tensor, order: Tensor | None, segment: Tensor | None
    ) -> Tensor:
        groups, n = _Groups(starts, order, segment), len(rows)
        weights = (rows - groups.spread(_max(rows, groups), n)).exp_()
        weights /= groups.spread(_sum(weights, groups), n)
        ctx.save_for_backward(weights, starts, order, segment)
        return weights

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        weights, *rest = ctx.saved_tensors
        groups, weighted = _Groups(*rest), weights * grads[0]
        sums = groups.spread(_sum(weighted, groups), len(weights))
        return weighted - weights * sums, None, None, None


def _index_sum(rows: Tensor, index: Tensor, num_segments: int) -> Tensor:
    # No sort, at the price that a GPU adds in any order.
    return rows.new_zeros(num_segments, rows.shape[1]).index_add_(0, index, rows)


def _index_mean(rows: Tensor, index: Tensor, num_segments: int) -> Tensor:
    counts = index.new_zeros(num_segments).index_add_(0, index, torch.ones_like(index))
    return _index_sum(rows, index, num_segments) / counts.clamp(min=1)[:, None]
