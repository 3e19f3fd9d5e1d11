"""Hearing: whom some points of an attention layer listen to, a few windows at a time.

n points of a layer, q of them that ask, w windows, k slots or neighbours, h heads, c channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pctx.geometry.neighbors import Neighborhood
from pctx.geometry.windows import Windows
from pctx.inference.inside import Layer

NUMBERS_AT_ONCE = 2**20
"""Weights of a head, or numbers told, that are computed at a time: 4 MB."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Heard:
    """What some points hear.

    Attributes:
        rows: the points that ask.
        index: the points that each of them hears.
        valid: which of these are real; None if all are.
        weights: what they are to it, by head; 0 in masked slots.
    """

    rows: Int[Tensor, "q"]
    index: Int[Tensor, "q k"]
    valid: Bool[Tensor, "q k"] | None
    weights: Float[Tensor, "q h k"]


def attention_of(layer: Layer, rows: Int[Tensor, "q"]) -> Iterator[Heard]:
    """Give the attention that some points pay, in parts and any order."""
    for part in _parts(layer, rows):
        with torch.no_grad():
            yield part.heard(layer.module.weights(*part.inputs))


def gain_of(
    layer: Layer, rows: Int[Tensor, "q"], gradient: Float[Tensor, "n c"]
) -> Iterator[Heard]:
    """Give attention times the gradient by it: to first order, what paying it added to a score.

    Args:
        layer: as it ran.
        rows: the points that ask, each once.
        gradient: of the score by the output of the layer.
    """
    for part in _parts(layer, rows):
        with torch.enable_grad():
            weights = layer.module.weights(*part.inputs).detach().requires_grad_()
            output = layer.module.attend(weights, *part.inputs)
            # For one head of plain attention: gradient_i . value_j.
            (slope,) = torch.autograd.grad(output, weights, gradient[part.rows].to(output.dtype))
        yield part.heard(weights.detach() * slope)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Part:
    """A layer's inputs, reduced to some of the points that ask and to those that they hear.

    Attributes:
        rows: the points that ask.
        index: the points that each hears.
        valid: which of these are real; None if all are.
        slot: the slot of each point that asks, in the reduced windows; None without windows.
        inputs: of the layer.
    """

    rows: Int[Tensor, "q"]
    index: Int[Tensor, "q k"]
    valid: Bool[Tensor, "q k"] | None
    slot: Int[Tensor, "q"] | None
    inputs: tuple[Any, ...]

    def heard(self, weights: Tensor) -> Heard:
        """Bring weights by window, (w, h, k, k), or by point, (q, h, k), to the points that ask."""
        if weights.ndim == 4:
            assert self.slot is not None
            weights = weights.transpose(1, 2).flatten(0, 1)[self.slot]
        if self.valid is not None:
            weights = weights.masked_fill(~self.valid[:, None], 0)
        return Heard(rows=self.rows, index=self.index, valid=self.valid, weights=weights)


def _parts(layer: Layer, rows: Tensor) -> Iterator[_Part]:
    """Take the points that ask window by window, so many that memory stays small."""
    around = _structure(layer.inputs)
    k = around.index.shape[1]
    if isinstance(around, Windows):
        window, by_window = (around.slot[rows] // k).sort(stable=True)
        rows, step = rows[by_window], max(1, NUMBERS_AT_ONCE // k**2)
        number = window.unique_consecutive(return_inverse=True)[1]
    else:
        step = max(1, NUMBERS_AT_ONCE // (k * layer.output.shape[1]))
        number = torch.arange(len(rows), device=rows.device)
    for part in rows.split((number // step).bincount().tolist()):
        yield _reduced(layer.inputs, around, part)


def _structure(inputs: tuple[Any, ...]) -> Windows | Neighborhood:
    return next(each for each in inputs if isinstance(each, Windows | Neighborhood))


def _reduced(inputs: tuple[Any, ...], around: Windows | Neighborhood, rows: Tensor) -> _Part:
    """Keep what some points need to hear: themselves, first, and those that they hear."""
    entries, slot = rows, None  # the windows or neighbourhoods that are kept
    if isinstance(around, Windows):
        k = around.window_size
        entries, place = (around.slot[rows] // k).unique(return_inverse=True)
        slot = place * k + around.slot[rows] % k
    index = around.index[entries]
    valid = None if around.valid is None else around.valid[entries]
    kept, inner = _renumbered(rows, index, len(inputs[0]))
    small: Windows | Neighborhood
    if slot is None:
        small = Neighborhood(index=inner, valid=valid)
    else:
        small = Windows(index=inner, valid=valid, slot=slot)
        own = slot // index.shape[1]
        index, valid = index[own], None if valid is None else valid[own]

    def reduced(each: Any) -> Any:
        if isinstance(each, Windows | Neighborhood):
            return small
        if isinstance(each, Tensor):
            return each[kept if each.ndim < 3 else entries]
        return each

    inputs = tuple(reduced(each) for each in inputs)
    return _Part(rows=rows, index=index, valid=valid, slot=slot, inputs=inputs)


def _renumbered(rows: Tensor, index: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Number points anew, `rows` first, then the others in `index`: the points, and the index."""
    number = rows.new_full((n,), -1)
    number[rows] = torch.arange(len(rows), device=rows.device)
    others = index.unique()
    others = others[number[others] < 0]
    kept = torch.cat([rows, others])
    number[kept] = torch.arange(len(kept), device=rows.device)
    return kept, number[index]
