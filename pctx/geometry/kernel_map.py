"""KernelMap: which voxel meets which tap of a cubic kernel, in a submanifold convolution.

n voxels, b clouds, p pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from pctx.geometry.packed import batch_from_offsets
from pctx.geometry.serialization import cloud_minimum
from pctx.geometry.sorting import argsort_clouds, search


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
    """Find the neighbours of every voxel under every tap, in O(n log n) a tap.

    Args:
        grid_coord: voxel numbers, any integers; no two of a cloud are equal.
        offsets: the limits of the clouds.
        kernel_size: taps an axis, odd.

    Raises:
        ValueError: if kernel_size is even or below 1.
    """
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise ValueError(f"kernel_size must be odd and at least 1, found {kernel_size}")
    n, radius = len(grid_coord), kernel_size // 2
    batch = batch_from_offsets(offsets, n)
    cells = grid_coord.long() - cloud_minimum(grid_coord, offsets)[batch] + radius
    extent = (cells.amax(0) + 1 + radius).tolist() if n else [1, 1, 1]
    key = ((batch * extent[0] + cells[:, 0]) * extent[1] + cells[:, 1]) * extent[2] + cells[:, 2]
    order = argsort_clouds(key, 63, batch, len(offsets) - 1)
    ascending = key[order]
    sources, targets = [], []
    identity = torch.arange(n, device=key.device)
    for tap in range(kernel_size**3 // 2):
        i, rest = divmod(tap, kernel_size**2)
        j, k = divmod(rest, kernel_size)
        step = ((i - radius) * extent[1] + j - radius) * extent[2] + k - radius
        place = search(ascending, key + step).clamp(max=max(n - 1, 0))
        target = (ascending[place] == key + step).nonzero().squeeze(1)
        targets.append(target)
        sources.append(order[place[target]])
    turned = [torch.sort(s, stable=True) for s in reversed(sources)]
    sources_all = [
        *sources,
        identity,
        *(targets[-1 - t][turn.indices] for t, turn in enumerate(turned)),
    ]
    targets_all = [*targets, identity, *(turn.values for turn in turned)]
    starts = [0]
    for target in targets_all:
        starts.append(starts[-1] + len(target))
    return KernelMap(
        source=torch.cat(sources_all),
        target=torch.cat(targets_all),
        starts=tuple(starts),
        kernel_size=kernel_size,
    )
