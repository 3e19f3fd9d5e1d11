"""Pairs of points and neighbours, on which vector attention computes, at once or in parts.

n points, q some of them, k neighbours a point, c channels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from pctx.geometry.neighbors import Neighborhood
from pctx.geometry.windows import Windows
from pctx.nn.mlp import BatchNorm, Moments, pool_moments
from pctx.nn.recompute import recompute

NUMBERS_AT_ONCE = 2**20
"""Numbers of a (q, k, c) tensor where points are taken in parts: 4 MB, about a core's cache."""

MOST_PARTS = 64
"""Parts with gradients: the backward of each makes (n, c) numbers for key and for value."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """Some points, each with its neighbours.

    Attributes:
        query: of the points.
        key: of their neighbours.
        value: of their neighbours.
        offset: metres from point to neighbour.
        valid: the pairs that take part in norms and softmax; None if all do.
        real: the pairs there are; None if all are.
    """

    query: Float[Tensor, "q c"]
    key: Float[Tensor, "q k c"]
    value: Float[Tensor, "q k c"]
    offset: Float[Tensor, "q k 3"]
    valid: Bool[Tensor, "q k"] | None
    real: Bool[Tensor, "q k"] | None


class Heard(NamedTuple):
    """What some points hear.

    Attributes:
        weights: (q, k, g, 1) or (q, k, 1, g), of g groups of channels.
        told: (q, k, g, c / g) or (q, k, c / g, g), by each neighbour.
    """

    weights: Tensor
    told: Tensor

    def total(self) -> Float[Tensor, "q c"]:
        """Sum over the neighbours."""
        return (self.told * self.weights).sum(1).flatten(1)


Result = TypeVar("Result", Tensor, Heard)
Steps = Generator[tuple[BatchNorm, Float[Tensor, "q k i"]], Float[Tensor, "q k i"], Result]
"""A computation that stops at each norm over pairs: it hands out the norm and its input, and goes
on with the normalised."""


class PairAttention(nn.Module, ABC):
    """Attention that computes on pairs of points, (n, k, c), all at once or in parts.

    Without gradients the points are taken in parts, so that memory does not grow with n * k * c;
    with `checkpoint` they are with gradients too, and the backward computes each part anew. The
    result is the same: batch norms take their moments from all parts, in a pass each.

    Args:
        checkpoint: in training, saves memory for time. On the CPU, where it takes as long to get
            memory as to compute, 16,384 points in windows of 64 took 40 to 60 % of the memory and
            as much time.
        published: what missing neighbours do. False: nothing; a point without neighbours gets
            zeros. True: what they do in the released code, see each class.
    """

    def __init__(self, *, checkpoint: bool, published: bool):
        super().__init__()
        self.checkpoint, self.published = checkpoint, published

    def forward(
        self,
        feat: Float[Tensor, "n c"],
        coord: Float[Tensor, "n 3"],
        around: Neighborhood | Windows,
    ) -> Float[Tensor, "n c"]:
        """Let each point attend to those around it.

        Args:
            feat: one row a point.
            coord: metres.
            around: the neighbours of each point; or windows, for all slots of its own window.

        Raises:
            ValueError: if `around` is of another number of points.
        """
        # Sizes by `shape`: `len` would fix them in an exported graph.
        n = feat.shape[0]
        rows = (around.slot if isinstance(around, Windows) else around.index).shape[0]
        if rows != n:
            raise ValueError(f"around must have a row for each of the {n} points, found {rows}")
        projected = self._project(feat)

        def run(part: slice, moments: tuple[Moments, ...] | None) -> Tensor | _Pause:
            heard = self._hear(projected, coord, around, part, moments)
            return heard.total() if isinstance(heard, Heard) else heard

        frugal = self.checkpoint or not torch.is_grad_enabled()
        # A compiled graph is one for all n, and so are its parts.
        if torch.compiler.is_compiling() or not frugal or n == 0:
            result = run(slice(0, n), None)
            assert isinstance(result, Tensor)
            return result
        step = max(1, NUMBERS_AT_ONCE // max(1, around.index.shape[1] * feat.shape[1]))
        if torch.is_grad_enabled():
            step = max(step, -(-n // MOST_PARTS))
        parts = [slice(start, min(start + step, n)) for start in range(0, n, step)]
        moments: tuple[Moments, ...] = ()
        while True:
            found = self._over(parts, run, moments)
            if isinstance(found, Tensor):
                return found
            whole = pool_moments([pause.moments for pause in found])
            found[0].norm.track(whole)
            moments += (whole,)

    def _over(
        self, parts: Sequence[slice], run: Callable[..., Any], moments: tuple[Moments, ...]
    ) -> Tensor | list[_Pause]:
        """Return the result of all parts, or what they wait for."""
        if torch.is_grad_enabled():
            found = [recompute(self, run, part, moments) for part in parts]
            return torch.cat(found) if isinstance(found[0], Tensor) else found
        # Each result is put in its place at once: kept one by one between the large tensors of the
        # parts, they would keep the allocator from using the room of those again.
        first = run(parts[0], moments)
        if isinstance(first, _Pause):
            return [first, *(run(part, moments) for part in parts[1:])]
        result = first.new_empty(parts[-1].stop, first.shape[1])
        result[parts[0]] = first
        for part in parts[1:]:
            result[part] = run(part, moments)
        return result

    def weights(
        self,
        feat: Float[Tensor, "n c"],
        coord: Float[Tensor, "n 3"],
        around: Neighborhood | Windows,
    ) -> Float[Tensor, "q g k"]:
        """Return how much each point listens to each neighbour, by group of channels.

        In evaluation; all points at once. A point without neighbours has zeros.
        """
        heard = self._hear_first(feat, coord, around)
        return heard.weights.flatten(2).transpose(1, 2)

    def attend(
        self,
        weights: Float[Tensor, "q g k"],
        feat: Float[Tensor, "n c"],
        coord: Float[Tensor, "n 3"],
        around: Neighborhood | Windows,
    ) -> Float[Tensor, "q c"]:
        """Return what `forward` would if these were the weights."""
        heard = self._hear_first(feat, coord, around)
        shaped = weights.transpose(1, 2).reshape(heard.weights.shape)
        return heard._replace(weights=shaped).total()

    def at_once(
        self,
        feat: Float[Tensor, "n c"],
        coord: Float[Tensor, "n 3"],
        around: Neighborhood | Windows,
    ) -> Float[Tensor, "q c"]:
        """Be the twin of `forward` in evaluation that takes all pairs together."""
        return self._hear_first(feat, coord, around).total()

    def _hear_first(self, feat: Tensor, coord: Tensor, around: Neighborhood | Windows) -> Heard:
        """Compute what the first q points hear, all that `around` has rows or slots for."""
        rows = len(around.slot if isinstance(around, Windows) else around.index)
        heard = self._hear(self._project(feat), coord, around, slice(0, rows), None)
        assert isinstance(heard, Heard)
        return heard

    def _hear(
        self,
        projected: tuple[Tensor, Tensor, Tensor],
        coord: Tensor,
        around: Neighborhood | Windows,
        part: slice,
        moments: tuple[Moments, ...] | None,
    ) -> Heard | _Pause:
        pairs = _pairs(projected, coord, around, part)
        pairs = _as_published(pairs) if self.published else pairs
        return _run(self._attend(pairs), pairs.valid, moments)

    @abstractmethod
    def _project(self, feat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the query, key and value of each point."""

    @abstractmethod
    def _attend(self, pairs: Pairs) -> Steps[Heard]:
        """Return what some points hear."""


class _Pause(NamedTuple):
    """A computation of a part that has to wait for the moments of the others."""

    norm: BatchNorm
    moments: Moments


def _run(
    steps: Steps[Heard], valid: Tensor | None, moments: tuple[Moments, ...] | None
) -> Heard | _Pause:
    """Compute to the end, or in training to the first norm without moments.

    Args:
        steps: the computation.
        valid: the pairs that the norms are to count.
        moments: those of the first norms, where this is a part; None where it is all there is.
    """
    rows = None if valid is None else valid.flatten()
    waiting = iter(moments or ())
    try:
        norm, pairs = next(steps)
        while True:
            flat = pairs.flatten(0, 1)
            known = next(waiting, None) if norm.training else None
            if norm.training and moments is not None and known is None:
                return _Pause(norm, norm.moments(flat, rows))
            norm, pairs = steps.send(norm(flat, rows, known).view(pairs.shape))
    except StopIteration as end:
        result: Heard = end.value
        return result


def _pairs(
    projected: tuple[Tensor, Tensor, Tensor],
    coord: Float[Tensor, "n 3"],
    around: Neighborhood | Windows,
    part: slice,
) -> Pairs:
    """Gather the neighbours of some points."""
    index, valid = _neighbors(around, part)
    query, key, value = projected

    def gather(rows: Tensor) -> Tensor:
        return rows.index_select(0, index.flatten()).view(*index.shape, rows.shape[1])

    return Pairs(
        query=query[part],
        key=gather(key),
        value=gather(value),
        # The difference first: half precision holds an offset, but no position in a scan.
        offset=(gather(coord) - coord[part, None]).to(query.dtype),
        valid=valid,
        real=valid,
    )


def _neighbors(
    around: Neighborhood | Windows, part: slice
) -> tuple[Int[Tensor, "q k"], Bool[Tensor, "q k"] | None]:
    """Return the neighbours of some points; in windows all slots of a point's own window."""
    rows: slice | Tensor = part
    if isinstance(around, Windows):
        rows = torch.div(around.slot[part], around.window_size, rounding_mode="floor")
    return around.index[rows], None if around.valid is None else around.valid[rows]


def _as_published(pairs: Pairs) -> Pairs:
    """Let missing neighbours take part, as zero rows at offset zero."""
    if pairs.real is None:
        return pairs
    missing = ~pairs.real[..., None]
    return replace(
        pairs,
        key=pairs.key.masked_fill(missing, 0),
        value=pairs.value.masked_fill(missing, 0),
        offset=pairs.offset.masked_fill(missing, 0),
        valid=None,
    )
