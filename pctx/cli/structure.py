"""What `pctx view --color order` and `--color window` show: voxels, curves and windows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pctx.cli.config import UsageError

if TYPE_CHECKING:
    from pctx.checkpoint import Checkpoint
    from pctx.geometry.points import PointBatch, PointCloud
    from pctx.geometry.windows import Windows
    from pctx.models.backbone import Backbone
    from pctx.vis.scene import Scene

STRUCTURES = ("order", "window")
"""What --color takes from here."""

WINDOW_SIZES = {"serial": 1024, "octree": 32, "grid": 8, "global": 1}
"""Kinds of windows and their usual sizes: points, of a grid voxels along an edge."""

_ALONG_CURVE = ("serial", "octree")


@dataclass(frozen=True, kw_only=True)
class Structure:
    """The voxels, the curve and the windows asked for.

    Attributes:
        grid: edge of a voxel in metres; None for what suits the cloud.
        curve: its name.
        windows: their kind; None for the order alone.
        window_size: as in `WINDOW_SIZES`.
    """

    grid: float | None
    curve: str
    windows: str | None
    window_size: int


def read_flags(color: str, flags: Mapping[str, str | int | float | None]) -> Structure:
    """Fill the flags that were left out, after checking those that were given.

    Args:
        color: order or window.
        flags: --grid, --curve, --windows and --window-size; None where not given.

    Raises:
        UsageError: a value cannot be used, or says nothing about what is shown.
    """
    kind = str(flags["--windows"] or "serial") if color == "window" else None
    if kind is not None and kind not in WINDOW_SIZES:
        raise UsageError(f"--windows must be one of {', '.join(WINDOW_SIZES)}; found {kind!r}")
    idle = {
        "--windows": kind is None,
        "--window-size": kind in (None, "global"),
        "--curve": kind not in (None, *_ALONG_CURVE),
    }
    for flag, useless in idle.items():
        if useless and flags[flag] is not None:
            what = f"{kind} windows" if kind else "an order"
            raise UsageError(f"{flag} says nothing about {what}; leave it out")
    for flag in ("--grid", "--window-size"):
        value = flags[flag]
        if value is not None and not 0 < float(value) < float("inf"):
            raise UsageError(f"{flag} must be a number above 0, found {value}")
    curve = "z" if flags["--curve"] is None else _checked_curve(str(flags["--curve"]))
    grid, size = flags["--grid"], flags["--window-size"]
    return Structure(
        grid=None if grid is None else float(grid),
        curve=curve,
        windows=kind,
        window_size=int(size or WINDOW_SIZES[kind or "serial"]),
    )


def _checked_curve(name: str) -> str:
    from pctx.geometry.curves import parse_curve  # it loads torch

    try:
        parse_curve(name)
    except ValueError as error:
        raise UsageError(f"--curve: {error}") from error
    return name


def structure_scenes(asked: Structure) -> Callable[[PointCloud, str], list[Scene]]:
    """Give what makes the scene of a cloud with a title."""
    from pctx.cli.info import describe
    from pctx.vis.structure import count_windows, order_scene, voxels_of, window_scene

    def scenes(cloud: PointCloud, title: str) -> list[Scene]:
        grid = asked.grid or describe(cloud).get("suggested_grid_size", 1.0)
        sample = voxels_of(cloud, grid)
        along = f" along {asked.curve}" if asked.windows in (None, *_ALONG_CURVE) else ""
        voxels = f"{along}, {len(sample.points):,} voxels of {grid:g} m"
        if asked.windows is None:
            return [order_scene(cloud, sample, asked.curve, title=title, subject=f"order{voxels}")]
        windows = _cut(sample.points, asked)
        subject = count_windows(windows, asked.windows) + voxels
        return [window_scene(cloud, sample, windows, title=title, subject=subject)]

    return scenes


def model_scenes(color: str, path: Path) -> Callable[[PointCloud, str], list[Scene]]:
    """Give what makes a scene for each curve, or each partition of a model's first level.

    Raises:
        FileNotFoundError: there is no such model file.
        ValueError: it is no model file, or its model follows no curves.
    """
    from pctx.checkpoint import load_checkpoint
    from pctx.vis.structure import count_windows, order_scene, voxels_of, window_scene

    checkpoint = load_checkpoint(path)
    backbone = checkpoint.build().backbone
    grid = checkpoint.grid_size
    curves = _curves(checkpoint, backbone)
    if color == "order" and not curves:
        raise ValueError(f"{path}: {type(backbone).__name__} follows no curves")

    def scenes(cloud: PointCloud, title: str) -> list[Scene]:
        sample = voxels_of(cloud, grid)
        if color == "order":
            return [order_scene(cloud, sample, curve, title=title) for curve in curves]
        partitions = backbone.plan(sample.points).levels[0].windows
        if not partitions:
            raise ValueError(f"{type(backbone).__name__} has no windows at its first level")
        return [
            window_scene(
                cloud,
                sample,
                windows,
                title=title,
                subject=f"partition {i} of {len(partitions)}: {count_windows(windows)}",
            )
            for i, windows in enumerate(partitions, start=1)
        ]

    return scenes


def _cut(points: PointBatch, asked: Structure) -> Windows:
    from pctx.geometry.serialization import serialize
    from pctx.geometry.windows import (
        global_windows,
        grid_windows,
        octree_windows,
        serial_windows,
    )

    grid_coord, offsets, size = points.grid_coord, points.offsets, asked.window_size
    if asked.windows == "global":
        return global_windows(offsets, len(points))
    if asked.windows == "grid":
        return grid_windows(grid_coord, offsets, size)
    (order,) = serialize(grid_coord, offsets, (asked.curve,)).order
    cut = serial_windows if asked.windows == "serial" else octree_windows
    return cut(order, offsets, size)


def _curves(checkpoint: Checkpoint, backbone: Backbone) -> tuple[str, ...]:
    """Give the curves a backbone was built with, or by default has; none where it has none."""
    bound = inspect.signature(type(backbone)).bind_partial(**checkpoint.arguments)
    bound.apply_defaults()
    return tuple(bound.arguments.get("curves", ()))
