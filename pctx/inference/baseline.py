"""Plainer ways to what the geometry computes: what the benchmark compares with.

n voxels or points, o curves, k neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.spatial import cKDTree
from torch import Tensor

HilbertEncoder = Callable[[Int[Tensor, "n 3"], int], Int[Tensor, "n"]]
"""Takes voxels and a depth, returns Hilbert codes."""


def encode_plainly(
    grid_coord: Int[Tensor, "n 3"], depth: int, curves: Sequence[str], hilbert: HilbertEncoder
) -> Int[Tensor, "o n"]:
    """Do as `geometry.curves.encode_curves`, each curve on its own and bit by bit."""
    codes = []
    for curve in curves:
        axes = grid_coord[:, [1, 0, 2]] if curve.endswith("-trans") else grid_coord
        codes.append((hilbert if curve.startswith("hilbert") else morton_by_shifts)(axes, depth))
    return torch.stack(codes)


def morton_by_shifts(grid_coord: Int[Tensor, "n 3"], depth: int) -> Int[Tensor, "n"]:
    """Interleave the bits of the axes, one bit at a time."""
    return _interleave(list(grid_coord.long().unbind(1)), depth)


def hilbert_by_bits(grid_coord: Int[Tensor, "n 3"], depth: int) -> Int[Tensor, "n"]:
    """Run Skilling's transform over unpacked bits, a byte each: 3 * depth**2 / 2 bytes a voxel.

    The form in which point transformers have it. J. Skilling, "Programming the Hilbert curve"
    (AIP Conference Proceedings 707, 2004).
    """
    place = torch.arange(depth - 1, -1, -1, device=grid_coord.device)
    bits = (grid_coord.long()[:, :, None] >> place & 1).bool()  # (n, 3, depth), coarsest first
    for level in range(depth):
        finer = slice(level + 1, depth)
        for axis in range(3):
            flipped = bits[:, axis, level, None]
            first, other = bits[:, 0, finer], bits[:, axis, finer]
            exchanged = torch.logical_and(~flipped, torch.logical_xor(first, other))
            bits[:, axis, finer] = torch.logical_xor(other, exchanged)
            bits[:, 0, finer] = torch.logical_xor(first, torch.logical_or(exchanged, flipped))
    gray = bits.transpose(1, 2).reshape(len(bits), 3 * depth)
    digits = gray.cumsum(1) & 1
    weight = 1 << torch.arange(3 * depth - 1, -1, -1, device=gray.device)
    return (digits * weight).sum(1)


def hilbert_by_levels(grid_coord: Int[Tensor, "n 3"], depth: int) -> Int[Tensor, "n"]:
    """Run Skilling's transform over whole integers, as his paper prints it."""
    axes = list(grid_coord.long().unbind(1))
    for level in range(depth - 1, 0, -1):
        finer = (1 << level) - 1
        for axis in range(3):
            flipped = (axes[axis] >> level & 1).bool()
            exchanged = torch.where(flipped, 0, (axes[0] ^ axes[axis]) & finer)
            axes[0] = torch.where(flipped, axes[0] ^ finer, axes[0] ^ exchanged)
            if axis:
                axes[axis] = axes[axis] ^ exchanged
    axes[1] = axes[1] ^ axes[0]
    axes[2] = axes[2] ^ axes[1]
    parity = torch.zeros_like(axes[2])
    for level in range(depth - 1, 0, -1):
        parity = torch.where((axes[2] >> level & 1).bool(), parity ^ ((1 << level) - 1), parity)
    return _interleave([axis ^ parity for axis in axes], depth)


def order_together(codes: Int[Tensor, "o n"]) -> tuple[Int[Tensor, "o n"], Int[Tensor, "o n"]]:
    """Order all curves by one argsort of the table, and invert by one scatter."""
    order = torch.argsort(codes)
    rank = torch.arange(codes.shape[1], device=codes.device).expand_as(order)
    return order, torch.zeros_like(order).scatter_(1, order, rank)


def order_singly(codes: Int[Tensor, "o n"]) -> tuple[Int[Tensor, "o n"], Int[Tensor, "o n"]]:
    """Order curve by curve, an argsort and a scatter each."""
    pairs = [order_together(code[None]) for code in codes]
    return torch.cat([order for order, _ in pairs]), torch.cat([inverse for _, inverse in pairs])


def neighbors_by_tree(coord: Float[Tensor, "n 3"], k: int) -> Int[Tensor, "n k"]:
    """Find the k nearest points of each by scipy's tree: one cloud, and equal distances anyhow."""
    points = coord.cpu().numpy()
    return torch.from_numpy(cKDTree(points).query(points, k)[1].astype(np.int64, copy=False))


def _interleave(axes: list[Tensor], depth: int) -> Tensor:
    code = torch.zeros_like(axes[0])
    for level in range(depth):
        for axis in range(3):
            code = code | (axes[axis] >> level & 1) << (3 * level + 2 - axis)
    return code
