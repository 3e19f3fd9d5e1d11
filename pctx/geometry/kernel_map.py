"""KernelMap: which voxel meets which tap of a cubic kernel, in a submanifold convolution.

n voxels, b clouds, p pairs, m columns (voxels of one cloud, x and y), h taps before the centre.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from pctx.geometry.packed import batch_from_offsets, cloud_minimum
from pctx.geometry.sorting import argsort_pairs, changes, places, search


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelMap:
    """Pairs of voxels, tap by tap: out[target] += feat[source] @ weight[tap].

    Tap (i * k + j) * k + l, with k = kernel_size, pairs the voxel (x, y, z) as target with the
    voxel (x + i - k // 2, y + j - k // 2, z + l - k // 2) of its cloud as source. Taps t and
    k**3 - 1 - t hold the same pairs turned round; the centre tap pairs each voxel with itself.

    Attributes:
        source: the row read.
        target: the row written; ascending within a tap.
        starts: tap t owns the pairs starts[t] : starts[t + 1].
        kernel_size: taps an axis, odd.
    """

    source: Int[Tensor, "p"]
    target: Int[Tensor, "p"]
    starts: tuple[int, ...]
    kernel_size: int

    def inner(self, kernel_size: int) -> KernelMap:
        """Return the map of a smaller kernel with the same centre."""
        margin = (self.kernel_size - kernel_size) // 2
        span = range(margin, margin + kernel_size)
        size = self.kernel_size
        taps = [(i * size + j) * size + k for i in span for j in span for k in span]
        slices = [slice(self.starts[tap], self.starts[tap + 1]) for tap in taps]
        return KernelMap(
            source=torch.cat([self.source[s] for s in slices]),
            target=torch.cat([self.target[s] for s in slices]),
            starts=tuple(accumulate((s.stop - s.start for s in slices), initial=0)),
            kernel_size=kernel_size,
        )

    def to(self, device: torch.device | str) -> KernelMap:
        """Copy every tensor to a device."""
        return KernelMap(
            source=self.source.to(device, non_blocking=True),
            target=self.target.to(device, non_blocking=True),
            starts=self.starts,
            kernel_size=self.kernel_size,
        )


def kernel_map(
    grid_coord: Int[Tensor, "n 3"], offsets: Int[Tensor, "b+1"], kernel_size: int
) -> KernelMap:
    """Find the neighbours of every voxel under every tap, by search in sorted voxels.

    Cost: k * (k + 1) / 2 searches of n queries, so O(n log n) a column of taps.

    Args:
        grid_coord: voxel numbers, any integers, at most 2**21 voxels an axis and cloud; no two of
            a cloud are equal.
        offsets: the limits of the clouds.
        kernel_size: taps an axis, odd.

    Raises:
        ValueError: if kernel_size is even or below 1, and, on the CPU, if two voxels are equal.
    """
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise ValueError(f"kernel_size must be odd and at least 1, found {kernel_size}")
    columns = _sort_into_columns(grid_coord, offsets, kernel_size // 2)
    if grid_coord.device.type == "cpu":
        return _map_by_numpy(columns, kernel_size)
    return _map_by_torch(columns, kernel_size)


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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Columns:
    """Voxels sorted by column, then z. A margin of `radius` below each keeps taps from wrapping.

    order: the row at each sorted place. number: ascending; columns one y apart differ by 1, one x
    apart by `row`. first: the first place of each column. rank: the column of each place. key:
    rank * height + z, ascending.
    """

    order: Int[Tensor, "n"]
    number: Int[Tensor, "m"]
    first: Int[Tensor, "m"]
    rank: Int[Tensor, "n"]
    key: Int[Tensor, "n"]
    row: int
    height: int


def _sort_into_columns(grid_coord: Tensor, offsets: Tensor, radius: int) -> _Columns:
    n, b = len(grid_coord), len(offsets) - 1
    batch = batch_from_offsets(offsets, n)
    cells = grid_coord.long() - cloud_minimum(grid_coord, offsets).index_select(0, batch)
    # A host sync, as in places() below.
    extent = cells.amax(0).tolist() if n else [0, 0, 0]
    width, row, height = (largest + 1 + radius for largest in extent)
    x, y, z = (cells + radius).unbind(1)
    number = (batch * width + x) * row + y
    order = argsort_pairs(number, (b * width * row).bit_length(), z, height.bit_length())
    number, z = number.index_select(0, order), z.index_select(0, order)
    head = changes(number)
    first = places(head)
    rank = torch.cumsum(head, 0) - 1
    key = rank * height + z
    # Checked where that costs no transfer.
    if key.device.type == "cpu" and bool((key[1:] == key[:-1]).any()):
        twice = int((key[1:] == key[:-1]).sum())
        raise ValueError(
            f"grid_coord has {twice} of {n} rows equal to another of their cloud; keep one point "
            "a voxel, as voxelize() does"
        )
    return _Columns(
        order=order,
        number=number.index_select(0, first),
        first=first,
        rank=rank,
        key=key,
        row=row,
        height=height,
    )


_Pairs = tuple[np.ndarray, np.ndarray]
"""The targets and sources of one tap."""


def _map_by_numpy(columns: _Columns, kernel_size: int) -> KernelMap:
    """Find the pairs of the taps before the centre, and turn them round for those after it."""
    radius = kernel_size // 2
    order, rank, first = columns.order.numpy(), columns.rank.numpy(), columns.first.numpy()
    bottom = columns.key.numpy() - rank * columns.height - radius  # the lowest z under the taps
    # A last entry beyond all makes every place found a legal index.
    beyond = np.iinfo(np.int64).max
    number = np.append(columns.number.numpy(), beyond)
    key = np.append(columns.key.numpy(), beyond)
    found: list[_Pairs] = []
    for dx in range(-radius, 1):
        near = np.searchsorted(number, number[:-1] + (dx * columns.row - radius))
        for dy in range(-radius, radius + 1 if dx else 1):
            there = number.take(near) == number[:-1] + (dx * columns.row + dy)
            target = np.flatnonzero(there.take(rank))
            column = near.take(rank.take(target))
            lowest = column * columns.height + bottom.take(target)
            taps = kernel_size if (dx, dy) != (0, 0) else radius
            found += _walk_up(key, target, first.take(column), lowest, taps)
            near += there
    identity = np.arange(len(order))
    if np.array_equal(order, identity):
        turned = [(source, target) for target, source in reversed(found)]
    else:
        found = [(order.take(target), order.take(source)) for target, source in found]
        turned = [_by_target(source, target, len(order)) for target, source in reversed(found)]
        found = [_by_target(target, source, len(order)) for target, source in found]
    taps_in_order = [*found, (identity, identity), *turned]
    return KernelMap(
        target=torch.from_numpy(np.concatenate([target for target, _ in taps_in_order])),
        source=torch.from_numpy(np.concatenate([source for _, source in taps_in_order])),
        starts=tuple(accumulate((len(target) for target, _ in taps_in_order), initial=0)),
        kernel_size=kernel_size,
    )


def _walk_up(
    key: np.ndarray, target: np.ndarray, place: np.ndarray, lowest: np.ndarray, taps: int
) -> list[_Pairs]:
    """Return the pairs of targets with the keys lowest, lowest + 1, …, one tap each.

    `place`, the start of the column that is searched, is often the place looked for.
    """
    gap = key.take(place) - lowest
    behind = np.flatnonzero(gap < 0)
    below = lowest.take(behind)
    place[behind] = found_above = np.searchsorted(key, below)
    gap[behind] = key.take(found_above) - below
    some = np.flatnonzero(gap < taps)
    target, place, lowest, gap = (a.take(some) for a in (target, place, lowest, gap))
    found = []
    for tap in range(taps):
        met = np.flatnonzero(gap == tap)
        source = place.take(met)
        found.append((target.take(met), source))
        place[met] = following = source + 1
        gap[met] = key.take(following) - lowest.take(met)
    return found


def _by_target(target: np.ndarray, source: np.ndarray, n: int) -> _Pairs:
    """Sort the pairs of one tap by target, which no two share, through a table of all rows."""
    table = np.full(n, -1)
    table[target] = source
    target = np.flatnonzero(table >= 0)
    return target, table.take(target)


def _map_by_torch(columns: _Columns, kernel_size: int) -> KernelMap:
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
        near = search(columns.number, beside).clamp(max=len(beside) - 1)
        there = columns.number[near] == beside
        wanted = near[rank] * columns.height + z + (k - radius)
        place = search(columns.key, wanted).clamp(max=n - 1)
        met = there[rank] & (columns.key[place] == wanted)
        table[tap] = torch.where(met, columns.order[place], -1)
    counts: list[int] = (table >= 0).sum(1).tolist()
    tap_of, target = (table >= 0).nonzero().unbind(1)
    source = table[tap_of, target]
    turned = torch.argsort((half - 1 - tap_of) * n + source)
    return KernelMap(
        source=torch.cat([source, identity, target[turned]]),
        target=torch.cat([target, identity, source[turned]]),
        starts=tuple(accumulate([*counts, n, *reversed(counts)], initial=0)),
        kernel_size=kernel_size,
    )
