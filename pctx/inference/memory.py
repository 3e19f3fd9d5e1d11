"""Memory: how much there is, how much a tile may take, and what running out of it looks like."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

from pctx.data.tiling import Limits
from pctx.geometry.curves import MAX_DEPTH

MAX_VOXELS = 1_000_000
"""Voxels of a tile, its surroundings counted, however much memory there is: of larger tiles the
surroundings are a small part already."""
MIN_VOXELS = 4_000
MAX_TILE_POINTS = 8_000_000
"""Raw points of a tile, its surroundings counted, however much memory there is."""
_PROCESS = 2**29
"""Bytes that the interpreter, its libraries and a model take."""
_MODEL_PART, _POINTS_PART = 0.7, 0.2
"""Of what is left of the memory: for the model's pass, and for the raw points of a tile."""
_MALLOC = ((-3, 1 << 24), (-1, 1 << 26))
"""Options of glibc's mallopt: tensors from 16 MB on are apart (M_MMAP_THRESHOLD), and 64 MB of what
is free are kept (M_TRIM_THRESHOLD)."""
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
    """Say how large a tile may be; in steps, so that small changes of memory change nothing.

    Args:
        memory: bytes for the model's work.
        channels: of the model at its finest level.
        grid_size: edge of a voxel, metres.
        host: bytes for the raw points, where the model works elsewhere.
    """
    model = memory - (0 if host else _PROCESS)
    raw = (memory if host is None else host) - _PROCESS
    voxels = int(model * _MODEL_PART) // voxel_bytes(channels)
    points = int(raw * _POINTS_PART) // POINT_BYTES
    return Limits(
        voxels=max(_stepped(MAX_VOXELS, voxels), MIN_VOXELS),
        points=max(_stepped(MAX_TILE_POINTS, points), MIN_VOXELS),
        extent=2 ** (MAX_DEPTH - 1) * grid_size,
    )


def voxel_bytes(channels: int) -> int:
    """Estimate the bytes that a forward pass needs a voxel, from the channels that come out.

    Peaks measured of passes over 60,000 voxels, in kB a voxel: ptv3_tiny 3.4, ptv3_base 6.3,
    litept_base 5.5, octformer 4.1, ptv1_seg50 4.6, ptv2_m2 4.5, point_vit_tiny 4.3; swin3d, 9.6,
    is the one that takes more than is said here.
    """
    return 3000 + 50 * channels


def part_large_tensors() -> None:
    """Let the system have large tensors back at once: among others they leave holes.

    For a process that labels tile after tile, whose peak on a CPU is then that of the largest tile,
    a sixth lower, and not that of the worst holes. New pages cost some 3 % of the time. Settings of
    glibc; elsewhere nothing is done.
    """
    if platform.libc_ver()[0] == "glibc":
        for option, value in _MALLOC:
            _libc().mallopt(option, value)


def give_back_memory(device: torch.device) -> None:
    """Return what was freed to the system or the device's driver: tiles leave it in pieces.

    Without it a process that had worked on 45 tiles had grown by 2 GiB.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()
    if platform.libc_ver()[0] == "glibc":
        _libc().malloc_trim(0)


@cache
def _libc() -> ctypes.CDLL:
    """Load it once: each loading leaves objects in a ring, which stay until they are collected."""
    return ctypes.CDLL(None)


def peak_memory(run: Callable[[], object], device: torch.device) -> int | None:
    """Give the bytes that a run adds at most to the process, or to what is allocated on a GPU.

    None where the system does not tell.
    """
    give_back_memory(device)
    if device.type == "cuda":
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        run()
        return int(torch.cuda.max_memory_allocated(device)) - before
    status, clear = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    try:
        clear.write_text("5")  # the peak begins anew
        before = _kilobytes(status, "VmHWM")
        run()
        return 1024 * (_kilobytes(status, "VmHWM") - before)
    except OSError:
        return None


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an exception says that memory ran out, on the CPU or a GPU."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    words = ("out of memory", "can't allocate memory", "not enough memory")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)


def _stepped(most: int, room: int) -> int:
    """Give the largest of most, most / sqrt(2), most / 2, … that is within the room."""
    step = 0
    while (size := int(most / 2 ** (step / 2))) > max(room, 1):
        step += 1
    return size


def _kilobytes(status: Path, name: str) -> int:
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines[name].split()[0])
