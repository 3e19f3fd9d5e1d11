"""Checks of what comes in at a public door. Values are looked at on the CPU, where that is cheap.

n rows, b clouds.
"""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor


def check_offsets(offsets: Int[Tensor, "b+1"], n: int, name: str = "offsets") -> Int[Tensor, "b+1"]:
    """Return offsets as contiguous int64.

    Raises:
        ValueError: if they are not integers in one row, or do not ascend from 0 to n; the values
            on a GPU are not looked at.
    """
    shaped = offsets.ndim == 1 and offsets.shape[0] > 0 and _are_integers(offsets)
    if shaped:
        offsets = offsets.long().contiguous()
    if not shaped or not _ascend(offsets, n):
        raise ValueError(
            f"{name} must be integers that ascend from 0 to {n}, found {first_few(offsets)}"
        )
    return offsets


def check_grid_coord(grid_coord: Int[Tensor, "n 3"], name: str = "grid_coord") -> None:
    """Raise a ValueError if voxel numbers are not integers, three a row."""
    if grid_coord.ndim != 2 or grid_coord.shape[1] != 3 or not _are_integers(grid_coord):
        raise ValueError(
            f"{name} must be (n, 3) integers, found {tuple(grid_coord.shape)} {grid_coord.dtype}"
        )


def check_whole(name: str, value: float, least: int) -> int:
    """Return a whole number; raise a ValueError if it is none, or below the least one."""
    if not value >= least or value % 1 != 0:
        raise ValueError(f"{name} must be a whole number of at least {least}, found {value}")
    return int(value)


def first_few(values: Tensor) -> str:
    """Show at most eight values, for a message."""
    more = f" and {len(values) - 8} more" if values.ndim and len(values) > 8 else ""
    return f"{values[:8].tolist() if more else values.tolist()}{more}"


def check_index(index: Int[Tensor, "n"], num_segments: int, n: int) -> None:
    """Raise a ValueError if there are not n segment numbers, or one is out of range."""
    check_whole("num_segments", num_segments, 0)
    if index.shape != (n,) or not _are_integers(index):
        raise ValueError(f"index must be ({n},) integers, found {tuple(index.shape)} {index.dtype}")
    if index.device.type == "cpu" and n:  # elsewhere a look costs a transfer
        low, high = (int(bound) for bound in index.aminmax())
        if low < 0 or high >= num_segments:
            raise ValueError(
                f"index must be from 0 to below num_segments = {num_segments}, found {low} to "
                f"{high}"
            )


def _are_integers(values: Tensor) -> bool:
    return not (values.is_floating_point() or values.is_complex() or values.dtype == torch.bool)


def _ascend(offsets: Tensor, n: int) -> bool:
    """Tell whether offsets ascend from 0 to n, where that costs no transfer; else say yes."""
    if offsets.device.type != "cpu" or torch.compiler.is_compiling():
        return True
    values = offsets.numpy()
    return bool(values[0] == 0 and values[-1] == n and (values[1:] >= values[:-1]).all())
