"""TapTable: a kernel map as one dense table, for graphs whose shapes hang on numbers of rows alone.

n voxels read, m voxels written, t taps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from jaxtyping import Int
from torch import Tensor

from pctx.geometry.kernel_map import KernelMap


@dataclass(frozen=True, kw_only=True, eq=False)
class TapTable:
    """The pairs of a `KernelMap`, tap by tap in columns: where most taps meet nobody it is larger.

    Attributes:
        source: for each row written, 1 + the row that each tap reads; 0 where the tap meets none.
        target: for each row read, 1 + the row that each tap writes, or 0; None in a submanifold
            map, which is the same turned round, the taps in reverse.
        kernel_size: taps an axis, t = kernel_size**3.
        dilation: voxels between taps.
        stride: voxels an axis to a target.
    """

    source: Int[Tensor, "m t"]
    target: Int[Tensor, "n t"] | None
    kernel_size: int
    dilation: int = 1
    stride: int = 1

    @property
    def num_sources(self) -> int:
        """The number of rows that may be read."""
        return (self.source if self.target is None else self.target).shape[0]

    def turned(self) -> TapTable:
        """Return the table with sources and targets exchanged."""
        if self.target is None:
            return replace(self, source=self.source.flip(1))
        return replace(self, source=self.target, target=self.source)

    def to(self, device: torch.device | str) -> TapTable:
        """Copy every tensor to a device."""
        target = None if self.target is None else self.target.to(device, non_blocking=True)
        return replace(self, source=self.source.to(device, non_blocking=True), target=target)


def tap_table(kernel_map: KernelMap) -> TapTable:
    """Lay the pairs of a kernel map out as a table. Needs no host sync."""
    turned = None if kernel_map.stride == 1 else _sources(kernel_map.turned())
    return TapTable(
        source=_sources(kernel_map),
        target=turned,
        kernel_size=kernel_map.kernel_size,
        dilation=kernel_map.dilation,
        stride=kernel_map.stride,
    )


def _sources(kernel_map: KernelMap) -> Tensor:
    """Give (m, t): 1 + the row that each tap of each target reads, or 0."""
    taps = kernel_map.kernel_size**3
    table = kernel_map.source.new_zeros(kernel_map.num_targets, taps)
    for tap, (start, stop) in enumerate(pairwise(kernel_map.starts)):
        table[kernel_map.target[start:stop], tap] = kernel_map.source[start:stop] + 1
    return table
