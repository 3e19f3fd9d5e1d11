"""WindowParts: windows sorted by how full they are, so that few slots are masked.

Cubes of a scan hold few points or many. In one dense table the fullest decides how many slots all
have, and attention pays for each pair of them: 40 times the real pairs in a street scan, in parts
twice.

n points, q points of a part, w windows of a part, k slots a window.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from pctx.geometry.sorting import bit_length, places
from pctx.geometry.windows import Windows

SMALLEST = 8
"""Slots of the emptiest part; each further one has up to twice as many as the one before."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WindowPart:
    """Windows about equally full, and their points.

    Attributes:
        rows: the points, window by window.
        windows: over these rows.
    """

    rows: Int[Tensor, "q"]
    windows: Windows

    def to(self, device: torch.device | str) -> WindowPart:
        """Copy every tensor to a device."""
        rows = self.rows.to(device, non_blocking=True)
        return WindowPart(rows=rows, windows=self.windows.to(device))


@dataclass(frozen=True, kw_only=True, eq=False)
class WindowParts:
    """All windows of a partition, from the emptiest to the fullest.

    Attributes:
        parts: at least one, that of no points where there are none.
        inverse: a place of each point among the rows of all parts, one after another.
    """

    parts: tuple[WindowPart, ...]
    inverse: Int[Tensor, "n"]

    def to(self, device: torch.device | str) -> WindowParts:
        """Copy every tensor to a device."""
        parts = tuple(part.to(device) for part in self.parts)
        return WindowParts(parts=parts, inverse=self.inverse.to(device, non_blocking=True))


def part_windows(windows: Windows, count: int | None = None) -> WindowParts:
    """Sort windows by the number of their points. Needs host syncs.

    Args:
        windows: a partition whose slots hold each point once, as those of `grid_windows` and
            `octree_windows`; the real slots of a window come first here, in their order.
        count: how many parts to make, whatever the windows: the last takes all fuller ones, and a
            part of fewer than two windows takes the fullest of all again. None makes as many as are
            needed.

    Raises:
        ValueError: if a window has borrowed a point of another.
    """
    index, valid, n = windows.index, windows.valid, len(windows.slot)
    if valid is None:
        valid = torch.ones_like(index, dtype=torch.bool)
    elif bool((valid[:, 1:] & ~valid[:, :-1]).any()):
        valid, place = valid.sort(dim=1, descending=True, stable=True)
        index = index.gather(1, place)
    counts = valid.sum(1)
    held = int(counts.sum())
    if held != n:
        raise ValueError(
            f"windows must hold each of their {n} points once, found {held} slots that hold one; "
            "windows along curves borrow points"
        )
    size = bit_length((counts - 1) // SMALLEST)
    parts = []
    wanted = count if count is not None else int(size.max()) + 1 if n else 1
    for each in range(wanted):
        chosen = places(size.clamp(max=wanted - 1) == each)
        if count is not None and n and len(chosen) < 2:
            chosen = F.pad(chosen, (0, 2 - len(chosen)), value=int(counts.argmax()))
        if n == 0 or len(chosen):
            k = int(counts[chosen].max()) if n else 1
            parts.append(_part(index[chosen, :k], valid[chosen, :k]))
    rows = torch.cat([part.rows for part in parts])
    inverse = rows.new_empty(n)
    inverse[rows] = torch.arange(len(rows), device=rows.device)
    return WindowParts(parts=tuple(parts), inverse=inverse)


def _part(index: Tensor, valid: Tensor) -> WindowPart:
    """Number the points of some windows anew."""
    slot = places(valid.flatten())
    own = torch.cumsum(valid.flatten(), 0).view(index.shape) - 1
    # A masked slot names the last point before it, which is of its window.
    full = slot.numel() == index.numel()
    windows = Windows(index=own, valid=None if full else valid, slot=slot)
    return WindowPart(rows=index.flatten().index_select(0, slot), windows=windows)
