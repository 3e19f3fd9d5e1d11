"""KernelMap: which voxel meets which tap of a cubic kernel.

n voxels, b clouds, p pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from pctx.geometry.checks import check_whole
from pctx.geometry.columns import Columns, find, sort_into_columns
from pctx.geometry.curves import MAX_DEPTH


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelMap:
    """Pairs of voxels, tap by tap: out[target] += weight[tap] @ feat[source].

    Tap (i * k + j) * k + l, with k = kernel_size. In a submanifold map (stride 1) it pairs the
    voxel (x, y, z) as target with the voxel (x + d * (i - k // 2), y + d * (j - k // 2),
    z + d * (l - k // 2)) of its cloud as source, d being the dilation. Taps t and k**3 - 1 - t
    then hold the same pairs turned round; the centre tap pairs each voxel with itself.
    `strided_map` has the taps of a strided one.

    Attributes:
        source: the row read; no two of a tap are equal.
        target: the row written; no two of a tap are equal. Ascending within a tap, unless turned.
        starts: tap t owns the pairs starts[t] : starts[t + 1].
        kernel_size: taps an axis; odd in a submanifold map.
        num_sources: rows that may be read.
        num_targets: rows of the result.
        dilation: voxels between taps.
        stride: voxels an axis to a target; 1 where sources and targets are the same voxels.
    """

    source: Int[Tensor, "p"]
    target: Int[Tensor, "p"]
    starts: tuple[int, ...]
    kernel_size: int
    num_sources: int
    num_targets: int
    dilation: int = 1
    stride: int = 1

    def inner(self, kernel_size: int) -> KernelMap:
        """Return the map of a smaller kernel with the same centre.

        Raises:
            ValueError: if kernel_size is larger, or one of the two is even and the other odd.
        """
        if kernel_size not in range(self.kernel_size, 0, -2):
            raise ValueError(
                f"kernel_size must be at most {self.kernel_size}, and less by an even number of "
                f"taps, found {kernel_size}"
            )
        margin = (self.kernel_size - kernel_size) // 2
        span = range(margin, margin + kernel_size)
        size = self.kernel_size
        taps = [(i * size + j) * size + k for i in span for j in span for k in span]
        slices = [slice(self.starts[tap], self.starts[tap + 1]) for tap in taps]
        return replace(
            self,
            source=torch.cat([self.source[s] for s in slices]),
            target=torch.cat([self.target[s] for s in slices]),
            starts=tuple(accumulate((s.stop - s.start for s in slices), initial=0)),
            kernel_size=kernel_size,
        )

    def turned(self) -> KernelMap:
        """Return the map with sources and targets exchanged, in the order they have."""
        return replace(
            self,
            source=self.target,
            target=self.source,
            num_sources=self.num_targets,
            num_targets=self.num_sources,
        )

    def to(self, device: torch.device | str) -> KernelMap:
        """Copy every tensor to a device."""
        return replace(
            self,
            source=self.source.to(device, non_blocking=True),
            target=self.target.to(device, non_blocking=True),
        )


def kernel_map(
    grid_coord: Int[Tensor, "n 3"],
    offsets: Int[Tensor, "b+1"],
    kernel_size: int,
    dilation: int = 1,
) -> KernelMap:
    """Find the neighbours of every voxel under every tap, for a submanifold convolution.

    Voxels are sorted into columns; a column of taps is found by one walk over them, and the taps
    after the centre are those before it turned round. Cost: O(n log n) a column of taps at worst,
    O(n) where few voxels stand between a column's lowest and the first one met.

    Args:
        grid_coord: voxel numbers, any integers, at most 2**21 voxels an axis and cloud; no two of
            a cloud are equal.
        offsets: the limits of the clouds.
        kernel_size: taps an axis, odd.
        dilation: voxels between taps.

    Raises:
        ValueError: if kernel_size is even or below 1, if dilation is not from 1 to below 2**21, if
            a cloud is too large, if a shape or offsets do not fit, and, on the CPU, if two voxels
            are equal.
    """
    if kernel_size < 1 or kernel_size % 2 != 1:
        raise ValueError(f"kernel_size must be odd and at least 1, found {kernel_size}")
    kernel_size, dilation = int(kernel_size), check_whole("dilation", dilation, 1)
    if dilation >= 1 << MAX_DEPTH:
        raise ValueError(f"dilation must be below 2**{MAX_DEPTH}, found {dilation}")
    columns = sort_into_columns(grid_coord, offsets, kernel_size // 2, dilation)
    if grid_coord.device.type == "cpu":
        return _map_by_numpy(columns, kernel_size, dilation)
    return _map_by_torch(columns, kernel_size, dilation)


def kernel_maps(
    grid_coord: Int[Tensor, "n 3"], offsets: Int[Tensor, "b+1"], kernel_sizes: Sequence[int]
) -> dict[int, KernelMap]:
    """Make the maps of several kernel sizes by one search: smaller maps lie in the largest."""
    if not kernel_sizes:
        return {}
    largest = kernel_map(grid_coord, offsets, max(kernel_sizes))
    return {
        size: largest if size == largest.kernel_size else largest.inner(size)
        for size in kernel_sizes
    }


_Pairs = tuple[np.ndarray, ...]
"""The targets and sources of one tap."""


def _map_by_numpy(columns: Columns, kernel_size: int, dilation: int) -> KernelMap:
    """Find the pairs of the taps before the centre, and turn them round for those after it."""
    order, identity = columns.order.numpy(), np.arange(len(columns.order))
    ascending = np.array_equal(order, identity)
    step = np.diff(columns.key.numpy(), append=np.iinfo(np.int64).max)
    step = np.minimum(step, kernel_size).astype(np.int16)
    found: list[_Pairs] = []
    for target, place, gap, taps in _columns_of_taps(columns, kernel_size // 2):
        if not ascending:
            target, place, gap = _by_row(len(order), order.take(target), place, gap)
        found += _walk_up(step, target, place, gap, taps)
    if not ascending:
        found = [(target, order.take(place)) for target, place in found]
    turned: list[_Pairs] = [(source, target) for target, source in reversed(found)]
    if not ascending:
        turned = [_by_row(len(order), target, source) for target, source in turned]
    taps_in_order = [*found, (identity, identity), *turned]
    return KernelMap(
        target=torch.from_numpy(np.concatenate([target for target, _ in taps_in_order])),
        source=torch.from_numpy(np.concatenate([source for _, source in taps_in_order])),
        starts=tuple(accumulate((len(target) for target, _ in taps_in_order), initial=0)),
        kernel_size=kernel_size,
        num_sources=len(order),
        num_targets=len(order),
        dilation=dilation,
    )


def _columns_of_taps(
    columns: Columns, radius: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, int]]:
    """Yield, for the taps of one x and y up to the centre's, the voxels that meet some.

    Each is (targets, place of the first source, the tap it meets, number of taps), in places.
    """
    rank, first = columns.rank.numpy(), columns.first.numpy()
    # A last entry beyond all makes every place found a legal index.
    beyond = np.iinfo(np.int64).max
    number = np.append(columns.number.numpy(), beyond)
    key = np.append(columns.key.numpy(), beyond)
    step = np.diff(key)
    lowest = key.take(first) - np.arange(len(first)) * columns.height  # z, of each column
    reach = key[:-1] - rank * columns.height - radius  # z of the lowest tap, of each place
    for dx in range(-radius, 1):
        wanted = number[:-1] + (dx * columns.row - radius)
        if dx:
            near = np.searchsorted(number, wanted)
        else:  # the columns just before
            near = np.maximum(np.arange(len(first)) - radius, 0)
            _climb(number, np.diff(number), near, number.take(near) - wanted)
        for dy in range(-radius, radius + 1 if dx else 1):
            there = number.take(near) == wanted + (dy + radius)
            target = np.flatnonzero(there.take(rank))
            column = near.take(rank.take(target))
            place, gap = first.take(column), lowest.take(column) - reach.take(target)
            _climb(key, step, place, gap)
            taps = 2 * radius + 1 if (dx, dy) != (0, 0) else radius
            some = np.flatnonzero(gap < taps)
            yield target.take(some), place.take(some), gap.take(some), taps
            near += there


def _climb(key: np.ndarray, step: np.ndarray, place: np.ndarray, gap: np.ndarray) -> None:
    """Raise each place, in place, to the first whose gap, its key less the one sought, is not < 0.

    One place at a time for as long as that settles half of them, at a fifth of what a search costs.
    """
    behind = np.flatnonzero(gap < 0)
    at, left, before = place.take(behind), gap.take(behind), 2 * len(behind)
    while before >= 2 * len(behind) > 0:
        left += step.take(at)
        at += 1
        place[behind], gap[behind] = at, left
        still, before = np.flatnonzero(left < 0), len(behind)
        behind, at, left = behind.take(still), at.take(still), left.take(still)
    sought = key.take(at) - left
    place[behind] = at = np.searchsorted(key, sought)
    gap[behind] = key.take(at) - sought


def _walk_up(
    step: np.ndarray, target: np.ndarray, place: np.ndarray, tap: np.ndarray, taps: int
) -> list[_Pairs]:
    """Return the pairs of each tap, upwards from the place that each target meets first.

    Args:
        step: levels from each place to the next; more than taps are as good as taps.
    """
    tap = tap.astype(np.int16)
    found: list[_Pairs] = []
    for level in range(taps):
        met = np.flatnonzero(tap == level)
        source = place.take(met)
        found.append((target.take(met), source))
        if level + 1 < taps:
            place[met] = source + 1
            tap[met] += step.take(source)
    return found


def _by_row(n: int, row: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
    """Sort rows, which are distinct and below n, and others along with them, without comparing."""
    present = np.zeros(n, dtype=bool)
    present[row] = True
    slot = np.empty(n, np.int64)
    slot[row] = np.arange(len(row))
    row = np.flatnonzero(present)
    order = slot.take(row)
    return row, *(other.take(order) for other in others)


def _map_by_torch(columns: Columns, kernel_size: int, dilation: int) -> KernelMap:
    """Do as `_map_by_numpy` on any device, with two host syncs."""
    n, radius, half = len(columns.order), kernel_size // 2, kernel_size**3 // 2
    identity = torch.arange(n, device=columns.order.device)
    inverse = torch.empty_like(identity).scatter_(0, columns.order, identity)
    rank, key = columns.rank[inverse], columns.key[inverse]  # of each row
    z = key - rank * columns.height
    table = identity.new_empty(half, n)  # the row of the source, or -1
    for tap in range(half if n else 0):
        i, rest = divmod(tap, kernel_size**2)
        j, k = divmod(rest, kernel_size)
        beside = columns.number + ((i - radius) * columns.row + j - radius)
        table[tap] = find(columns, beside, rank, z + (k - radius))
    counts: list[int] = (table >= 0).sum(1).tolist()
    tap_of, target = (table >= 0).nonzero().unbind(1)
    source = table[tap_of, target]
    turned = torch.argsort((half - 1 - tap_of) * n + source)
    return KernelMap(
        source=torch.cat([source, identity, target[turned]]),
        target=torch.cat([target, identity, source[turned]]),
        starts=tuple(accumulate([*counts, n, *reversed(counts)], initial=0)),
        kernel_size=kernel_size,
        num_sources=n,
        num_targets=n,
        dilation=dilation,
    )
