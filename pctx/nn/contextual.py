"""ContextualEncoding: relative encodings that also depend on what query, key and value are.

n points, m signals a point, w windows, k slots a window, h heads, d channels a head, r rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pctx.geometry.windows import Windows
from pctx.nn.mlp import widen
from pctx.nn.position import TABLE_STD
from pctx.nn.traced_contextual import traced_read, traced_rows, traced_write

SIGNAL_EXTENT = 2
"""The colours and normals of Swin3D run from -1 to 1."""


class ContextualTerms(NamedTuple):
    """What a contextual encoding adds to attention.

    Attributes:
        bias: (w, h, k, k), added to the scaled scores, row = query, column = key; goes with fast
            attention as it is.
        value: from the attention paid, (w, h, k, k), to what is added to the result, (w, h, k, d).
            It needs the weights themselves; leave it out to attend by fast attention.
    """

    bias: Float[Tensor, "w h k k"]
    value: Callable[[Float[Tensor, "w h k k"]], Float[Tensor, "w h k d"]]


class ContextualEncoding(nn.Module):
    """Vectors looked up by the quantised differences of signals, met by query, key and weights.

    With r_a(i, j) = clamp(floor((s_i - s_j)_a / step_a), -bound_a, bound_a - 1) for signal a of
    query i and key j, and T = sum over a of t_a[r_a(i, j)] for each of three tables:

        score_ij = (q_i . k_j + q_i . Tq_ij) / sqrt(d) + k_j . Tk_ij
        result_i = sum over j of softmax_j(score_ij) (v_j + Tv_ij)

    `crpe` makes the encoding of coordinates of Lai et al., Stratified Transformer, 2022 (contextual
    relative position encoding), `crse` that of voxels, colours and normals of Yang et al., Swin3D,
    2023 (contextual relative signal encoding). As both have released it, the query is scaled in its
    look-up, the key is not.

    Args:
        num_heads: h.
        head_channels: d.
        bounds: steps told apart either way, a number a signal.
        steps: in the unit of each signal.

    Attributes:
        query_table: (2 * sum of bounds, h, d), a signal's rows from -bound to bound - 1, then those
            of the next.
        key_table: the same for keys.
        value_table: the same for values.

    Raises:
        ValueError: if bounds and steps do not pair, or one is not positive.
    """

    def __init__(
        self, num_heads: int, head_channels: int, bounds: Sequence[int], steps: Sequence[float]
    ):
        super().__init__()
        if not bounds or len(bounds) != len(steps) or min(*bounds, *steps) <= 0:
            raise ValueError(
                "bounds and steps must be positive, one of each a signal; "
                f"found {list(bounds)} and {list(steps)}"
            )
        self.bounds, self.steps = tuple(bounds), tuple(steps)
        shape = (2 * sum(bounds), num_heads, head_channels)
        self.query_table = nn.Parameter(torch.empty(shape))
        self.key_table = nn.Parameter(torch.empty(shape))
        self.value_table = nn.Parameter(torch.empty(shape))
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=TABLE_STD)

    @classmethod
    def crpe(
        cls, num_heads: int, head_channels: int, *, reach: float, step: float
    ) -> ContextualEncoding:
        """Make cRPE, whose signals are the coordinates.

        Args:
            num_heads: h.
            head_channels: d.
            reach: metres either way that are told apart: the window's edge; as published twice
                that, for keys sampled from a window twice as wide.
            step: metres (published: a sixteenth to a twentieth of the window's edge).
        """
        bound = int((reach + 1e-4) // step)
        return cls(num_heads, head_channels, (bound,) * 3, (step,) * 3)

    @classmethod
    def crse(
        cls, num_heads: int, head_channels: int, window_size: int, groups: int = 3, quant: int = 4
    ) -> ContextualEncoding:
        """Make cRSE, whose signals are groups of three.

        Args:
            num_heads: h.
            head_channels: d.
            window_size: voxels an edge.
            groups: 1 for the position in voxels (voxel number plus the place inside it), 2 with
                the colour, 3 with the normal too, both from -1 to 1.
            quant: steps a voxel; colours and normals have twice as many a unit.
        """
        others = 3 * (groups - 1)
        bounds = (window_size * quant,) * 3 + (SIGNAL_EXTENT * 2 * quant,) * others
        return cls(num_heads, head_channels, bounds, (1 / quant,) * 3 + (0.5 / quant,) * others)

    def forward(
        self,
        signal: Float[Tensor, "n m"],
        windows: Windows,
        query: Float[Tensor, "w h k d"],
        key: Float[Tensor, "w h k d"],
    ) -> ContextualTerms:
        """Look up what every query and key of every window have to add.

        A signal at a time, queries and keys are multiplied with the whole table, (w, h, k, r), and
        read by row; what backward needs of the rows grows with n.

        Args:
            signal: one row a point.
            windows: a partition of the points.
            query: what asks, not scaled.
            key: what is asked.

        Raises:
            ValueError: if the number of signals is another than that of bounds.
        """
        if signal.shape[1] != len(self.bounds):
            raise ValueError(
                f"the signal must have {len(self.bounds)} columns, found {signal.shape[1]}"
            )
        w, h, k, d = query.shape
        unit = torch.promote_types(signal.dtype, torch.float32)
        steps = torch.tensor(self.steps, device=signal.device, dtype=unit)
        slots = signal.index_select(0, windows.index.reshape(-1)) / steps
        if torch.compiler.is_compiling():
            return self._traced(slots.view(w, k, len(self.steps)), query, key)
        places = slots.view(w, k, len(steps)).unbind(-1)  # a (w, k) a signal
        query_tables, key_tables, value_tables = (
            table.transpose(0, 1).split([2 * bound for bound in self.bounds], dim=1)  # (h, r, d)
            for table in (self.query_table, self.key_table, self.value_table)
        )
        scaled = query / math.sqrt(d)
        bias = widen(query).new_zeros(w, h, k, k)
        for place, bound, asks, answers in zip(
            places, self.bounds, query_tables, key_tables, strict=True
        ):
            bias += _Read.apply(scaled @ asks.transpose(1, 2), place, bound)
            # Seen from the key the offset is turned round: s_i - s_j = (-s_j) - (-s_i).
            bias += _Read.apply(key @ answers.transpose(1, 2), -place, bound).transpose(2, 3)

        def value(weights: Tensor) -> Tensor:
            told = widen(weights).new_zeros(w, h, k, d)
            for place, bound, table in zip(places, self.bounds, value_tables, strict=True):
                written = _Write.apply(weights, place, bound)
                told += (written.to(table.dtype) @ table).to(told.dtype)
            return told.to(weights.dtype)

        return ContextualTerms(bias.to(query.dtype), value)

    def _traced(self, place: Tensor, query: Tensor, key: Tensor) -> ContextualTerms:
        """Do as `forward`, from (w, k, m), in few operators."""
        signals = len(self.bounds)
        asks, answers, told = (
            table.transpose(0, 1)  # (h, r, d)
            for table in (self.query_table, self.key_table, self.value_table)
        )
        rows = traced_rows(place, self.bounds)
        scaled = query / math.sqrt(query.shape[-1])
        bias = traced_read(scaled @ asks.transpose(1, 2), rows, signals)
        turned = traced_rows(-place, self.bounds)
        bias += traced_read(key @ answers.transpose(1, 2), turned, signals).transpose(2, 3)

        def value(weights: Tensor) -> Tensor:
            written = traced_write(widen(weights), rows, told.shape[1], signals)
            return (written.to(told.dtype) @ told).to(weights.dtype)

        return ContextualTerms(bias.to(query.dtype), value)

    def extra_repr(self) -> str:
        """Show the quantisation."""
        return f"bounds={self.bounds}, steps={self.steps}"


class _Read(torch.autograd.Function):
    """out[w, h, i, j] = scores[w, h, i, row(i, j)], (w, h, k, r) to (w, h, k, k).

    The adjoint of `_Write`. Both find the rows anew from one number a slot: kept from forward to
    backward they would outweigh everything else.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, place: Tensor, bound: int) -> Tensor:
        ctx.save_for_backward(place)
        ctx.bound = bound
        return scores.gather(-1, _row(place, bound, heads=scores.shape[1]))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (place,) = ctx.saved_tensors
        return _Write.apply(grads[0], place, ctx.bound), None, None


class _Write(torch.autograd.Function):
    """out[w, h, i, r] = sum of weights[w, h, i, j] over the j with row(i, j) = r."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, place: Tensor, bound: int) -> Tensor:
        ctx.save_for_backward(place)
        ctx.bound = bound
        w, h, k, _ = weights.shape
        wide = widen(weights)
        total = wide.new_zeros(w, h, k, 2 * bound)
        return total.scatter_add_(-1, _row(place, bound, heads=h), wide).to(weights.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (place,) = ctx.saved_tensors
        return _Read.apply(grads[0], place, ctx.bound), None, None


def _row(place: Tensor, bound: int, heads: int) -> Tensor:
    """Return the row of every query and key, (w, h, k, k), the same memory for all heads."""
    offset = (place[:, :, None] - place[:, None, :]).floor_()
    row = offset.clamp_(-bound, bound - 1).add_(bound).long()
    return row[:, None].expand(-1, heads, -1, -1)
