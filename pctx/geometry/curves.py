"""Space-filling curves: Morton (z) and Hilbert codes of voxels, encoded and decoded by table.

n voxels, o curves. A code holds 3 bits a level, the coarsest level highest. The Hilbert curve is
read by the automaton of `automaton.py`.

A curve is named `z` or `hilbert`, and may say in which order it takes the axes, the most
significant first: `z-yxz`, `hilbert-zxy`; `-trans` is short for `-yxz`. `random` visits the cube's
voxels in an order without any locality, for comparison: the Morton code with its bits scrambled.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from pctx.geometry.automaton import STEP, automaton, translate
from pctx.geometry.checks import check_grid_coord

CURVES = ("z", "z-trans", "hilbert", "hilbert-trans")
"""The four curves of Point Transformer V3."""

MAX_DEPTH = 21
"""Levels of a code: 3 bits each in the 63 of a non-negative int64."""

_SPREAD_BITS = 11
"""Bits of a coordinate spread in one look-up: a table of 16 KiB stays in the fastest cache."""

_PIECE = 1 << 15
"""Voxels encoded at a time on the CPU."""

_MULTIPLIERS = (0x3F58476D1CE4E5B9, 0x14D049BB133111EB)
"""Odd numbers that scramble bits, of SplitMix64 (Steele et al., 2014), less the sign bit."""


class Curve(NamedTuple):
    """What a name says.

    Attributes:
        family: z, hilbert or random.
        axes: which axis comes first, second and last, by number.
    """

    family: str
    axes: tuple[int, int, int]


@lru_cache(maxsize=64)
def parse_curve(name: str) -> Curve:
    """Read a curve's name.

    Raises:
        ValueError: for a name that is no curve's.
    """
    family, dash, axes = name.partition("-")
    axes = {"": "" if dash else "xyz", "trans": "yxz"}.get(axes, axes)
    if name == "random" or (family in ("z", "hilbert") and sorted(axes) == ["x", "y", "z"]):
        first, second, last = ("xyz".index(axis) for axis in axes)
        return Curve(family, (first, second, last))
    raise ValueError(
        f"unknown curve {name!r}; choose from {', '.join(CURVES)}, random, or give z and hilbert "
        "an order of axes, as in hilbert-zxy"
    )


def encode(
    grid_coord: Int[Tensor, "n 3"], depth: int, curve: str, *, seed: int = 0
) -> Int[Tensor, "n"]:
    """Return the place of each voxel along a curve that fills the cube of 2**depth voxels an axis.

    Args:
        grid_coord: voxel numbers in [0, 2**depth), any integer dtype and strides.
        depth: levels, 0 to 21.
        curve: its name.
        seed: which of the random curves `random` is.

    Raises:
        ValueError: for an unknown curve or depth, voxel numbers that are not (n, 3) integers, and,
            on the CPU, a voxel outside the cube.
    """
    return encode_curves(grid_coord, depth, (curve,), seed=seed)[0]


def encode_curves(
    grid_coord: Int[Tensor, "n 3"],
    depth: int,
    curves: Sequence[str],
    own_depth: Int[Tensor, "n"] | None = None,
    *,
    seed: int = 0,
) -> Int[Tensor, "o n"]:
    """Encode along several curves, sharing their work.

    Args:
        grid_coord: voxel numbers in [0, 2**depth), any integer dtype and strides.
        depth: levels, 0 to 21.
        curves: names, at least one.
        own_depth: the depth each voxel's own curve has, at most `depth`, where that differs.
        seed: which of the random curves `random` is.

    Raises:
        ValueError: as for `encode`.
    """
    _check_depth(depth)
    parsed = _parsed(curves)
    check_grid_coord(grid_coord)
    grid_coord = grid_coord.long()
    _check_inside(grid_coord, depth)
    n = len(grid_coord)
    codes = torch.empty(len(curves), n, dtype=torch.int64, device=grid_coord.device)
    # On the CPU a piece's temporaries stay in the cache.
    size = _PIECE if codes.device.type == "cpu" else max(n, 1)
    for i in range(0, n, size):
        own = None if own_depth is None else own_depth[i : i + size]
        _encode_piece(grid_coord[i : i + size], depth, parsed, own, seed, codes[:, i : i + size])
    return codes


def decode(code: Int[Tensor, "n"], depth: int, curve: str, *, seed: int = 0) -> Int[Tensor, "n 3"]:
    """Return the voxel at each place along a curve; the inverse of `encode`."""
    _check_depth(depth)
    family, axes = parse_curve(curve)
    code = code.long()
    if family == "hilbert":
        code = translate(automaton(str(code.device))[1], code, depth, depth % STEP)
    elif family == "random":
        code = unscramble(code, 3 * depth, seed)
    return _compact(code, depth)[:, [axes.index(axis) for axis in range(3)]]


def scramble(word: Int[Tensor, "n"], bits: Int[Tensor, "n"] | int, seed: int) -> Int[Tensor, "n"]:
    """Map the words of some bits one to one onto themselves, as if by chance.

    Args:
        word: in [0, 2**bits).
        bits: from 0 to 63, of each word or of all.
        seed: any integer.
    """
    mask, half = _mask_and_half(word, bits)
    for odd in _MULTIPLIERS:
        word = ((word + seed) * odd) & mask
        word = word ^ (word >> half)
    return word


def unscramble(word: Int[Tensor, "n"], bits: Int[Tensor, "n"] | int, seed: int) -> Int[Tensor, "n"]:
    """Undo `scramble`."""
    mask, half = _mask_and_half(word, bits)
    for odd in reversed(_MULTIPLIERS):
        word = word ^ (word >> half)  # over half the bits: its own inverse
        word = (word * _signed(pow(odd, -1, 1 << 64)) - seed) & mask
    return word


def _check_depth(depth: int) -> None:
    if depth not in range(MAX_DEPTH + 1):
        raise ValueError(f"depth must be from 0 to {MAX_DEPTH} levels, found {depth}")


def _parsed(curves: Sequence[str]) -> list[Curve]:
    if not curves:
        raise ValueError(f"curves must name at least one of {', '.join(CURVES)}, found none")
    return [parse_curve(curve) for curve in curves]


def _check_inside(grid_coord: Tensor, depth: int) -> None:
    # Checked where that costs no transfer.
    if grid_coord.device.type != "cpu" or grid_coord.numel() == 0:
        return
    low, high = (int(v) for v in torch.aminmax(grid_coord))
    if low < 0 or high >> depth:
        raise ValueError(
            f"grid_coord must lie in [0, {1 << depth}) for depth {depth}, found {low} to {high}"
        )


def _encode_piece(
    grid_coord: Tensor,
    depth: int,
    curves: Sequence[Curve],
    own_depth: Tensor | None,
    seed: int,
    codes: Tensor,
) -> None:
    """Fill codes, (o, n)."""
    spread = [_spread(axis, depth) for axis in grid_coord.unbind(1)]
    morton = {}
    for axes in {curve.axes for curve in curves}:
        first, second, last = (spread[axis] for axis in axes)
        morton[axes] = (first << 2).bitwise_or_(second << 1).bitwise_or_(last)
    # The state in which a curve of depth d is entered; see translate.
    start = depth % STEP if own_depth is None else own_depth % STEP
    table = automaton(str(codes.device))[0]
    for row, (family, axes) in zip(codes, curves, strict=True):
        code = morton[axes]
        if family == "hilbert":
            code = translate(table, code, depth, start)
        elif family == "random":
            code = scramble(code, 3 * (depth if own_depth is None else own_depth), seed)
        row.copy_(code)


def _mask_and_half(word: Tensor, bits: Tensor | int) -> tuple[Tensor, Tensor]:
    bits = torch.as_tensor(bits, device=word.device)
    return (1 << bits) - 1, bits // 2 + 1  # of 63 bits too: int64 wraps


def _signed(word: int) -> int:
    """Read 64 bits as an int64."""
    return word - (1 << 64) if word >> 63 else word


def _spread(axis: Tensor, depth: int) -> Tensor:
    """Put bit i of each coordinate at bit 3 * i."""
    table = _spread_table(str(axis.device))
    if depth <= _SPREAD_BITS:
        return table.index_select(0, axis)
    high = table.index_select(0, axis >> _SPREAD_BITS)
    low = table.index_select(0, axis & ((1 << _SPREAD_BITS) - 1))
    return (high << (3 * _SPREAD_BITS)).bitwise_or_(low)


def _compact(morton: Tensor, depth: int) -> Tensor:
    """Gather every third bit: (n, 3)."""
    table = _compact_table(str(morton.device))
    axes = torch.zeros(len(morton), 3, dtype=torch.int64, device=morton.device)
    for level in range(0, depth, STEP):
        axes |= table.index_select(0, (morton >> (3 * level)) & ((1 << 3 * STEP) - 1)) << level
    return axes


@lru_cache(maxsize=16)
def _spread_table(device: str) -> Tensor:
    value = np.arange(1 << _SPREAD_BITS)
    spread = sum(((value >> i) & 1) << (3 * i) for i in range(_SPREAD_BITS))
    return torch.from_numpy(spread).to(device)


@lru_cache(maxsize=16)
def _compact_table(device: str) -> Tensor:
    value = np.arange(1 << 3 * STEP)
    axes = [sum(((value >> (3 * i + 2 - axis)) & 1) << i for i in range(STEP)) for axis in range(3)]
    return torch.from_numpy(np.stack(axes, axis=1)).to(device)
