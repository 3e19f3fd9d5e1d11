"""Memory: how much there is, how much a tile may take, and what running out of it looks like."""

from __future__ import annotations

import os
import re
from pathlib import Path

import torch

from pctx.data.tiling import Limits
from pctx.geometry.curves import MAX_DEPTH

MAX_VOXELS = 500_000
"""Voxels of a tile, its surroundings counted, however much memory there is: larger tiles are no
faster."""
MIN_VOXELS = 4_000
MAX_TILE_POINTS = 8_000_000
"""Raw points of a tile, its surroundings counted, however much memory there is."""
_PROCESS = 2**29
"""Bytes that the interpreter, its libraries and a model take."""
POINT_BYTES = 400
"""Bytes of a raw point while its tile is prepared and written."""
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def parse_size(text: str) -> int:
    """Read a size such as 4G, 500M or 1.5GiB as bytes.

    Raises:
        ValueError: it is no such size, or 0.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text.lower())
    if not found or not float(found[1]) > 0:
        raise ValueError(f"memory must be a size such as 4G or 500M, found {text!r}")
    return int(float(found[1]) * _UNITS[found[2]])


def available_memory(device: torch.device) -> int:
    """Give the bytes that this process could still take on a device; 4 GiB where nothing tells."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    found = [4 * 2**30]
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        found = [int(lines["MemAvailable"].split()[0]) * 1024]
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2]
    limit, used = (Path("/sys/fs/cgroup") / f"memory.{name}" for name in ("max", "current"))
    if limit.is_file() and used.is_file() and limit.read_text().strip() != "max":
        found.append(int(limit.read_text()) - int(used.read_text()))
    return max(min(found), 0)


def tile_limits(memory: int, channels: int, grid_size: float, host: int | None = None) -> Limits:
    """Say how large a tile may be; in halves of the largest, so that small changes change nothing.

    Args:
        memory: bytes for the model's work.
        channels: of the model at its finest level.
        grid_size: edge of a voxel, metres.
        host: bytes for the raw points, where the model works elsewhere.
    """
    model = (memory - (0 if host else _PROCESS)) // 2
    raw = (memory if host is None else host) - _PROCESS
    return Limits(
        voxels=max(_halved(MAX_VOXELS, model // (voxel_bytes(channels))), MIN_VOXELS),
        points=max(_halved(MAX_TILE_POINTS, raw // 4 // POINT_BYTES), MIN_VOXELS),
        extent=2 ** (MAX_DEPTH - 1) * grid_size,
    )


def voxel_bytes(channels: int) -> int:
    """Estimate the bytes that a model needs a voxel, from its channels at the finest level.

    Measured over `list_models()`: see docs/guides/huge-tiles.md.
    """
    return 64 * channels


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an exception says that memory ran out, on the CPU or a GPU."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    words = ("out of memory", "can't allocate memory", "not enough memory")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)


def _halved(most: int, room: int) -> int:
    """Give the largest of most, most / 2, most / 4, … that is within the room."""
    while most > max(room, 1):
        most //= 2
    return most
