"""A plan as named tensors, of which only the numbers of rows depend on the points; and back again.

Plans differ in more than the sizes of their tensors: a mask that is absent, numbers of pairs in
tuples, parts as they are needed. `settled` makes them alike, so that one graph serves all.

n points, b clouds, m segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from pctx.geometry.hierarchy import Hierarchy, Level
from pctx.geometry.kernel_map import KernelMap
from pctx.geometry.neighbors import Neighborhood
from pctx.geometry.pooling import Pooling
from pctx.geometry.tap_table import tap_table
from pctx.geometry.window_parts import part_windows
from pctx.geometry.windows import Windows

PARTS = 5
"""Window parts of a settled level: up to 8, 16, 32 and 64 points a window, and all fuller ones."""

_ENDS: Mapping[type, tuple[str, str]] = MappingProxyType(
    {Level: ("offsets", "coord"), Pooling: ("starts", "order")}
)
"""Limits of segments, and whose number of rows is the last of them."""


def settled(hierarchy: Hierarchy) -> Hierarchy:
    """Return a plan with the same results, of a form that does not depend on its points.

    Masks are written out, kernel maps are tables, and windows come in `PARTS` parts. Clouds may be
    empty, but not all of them.
    """
    return Hierarchy(levels=tuple(_settled_level(level) for level in hierarchy.levels))


def flat_inputs(hierarchy: Hierarchy) -> dict[str, Tensor]:
    """Name every tensor of a settled plan by its way there: `levels_0_windows_1_index`, ….

    Limits of clouds and segments come without the last, which is a number of rows: (b,), (m,).
    """
    return dict(_named(hierarchy, ""))


def from_flat(like: Hierarchy, tensors: Mapping[str, Tensor]) -> Hierarchy:
    """Return a plan of the form of another with these tensors: the inverse of `flat_inputs`.

    Args:
        like: a settled plan of the same backbone; no number of it is read.
        tensors: by name; those that no one reads may be left out, and are then None.
    """
    plan: Hierarchy = _filled(like, "", tensors)
    return plan


def dynamic_axes(name: str, tensor: Tensor) -> tuple[int, ...]:
    """Return the axes of a flat input that depend on the points: rows, and slots of windows."""
    return tuple(range(tensor.ndim)) if "_windows_" in name else (0,)


def _settled_level(level: Level) -> Level:
    parts = tuple(part_windows(windows, PARTS) for windows in level.windows)
    level = replace(level, window_parts=parts if level.window_parts else ())
    written: Level = _written_out(level)
    return written


def _written_out(value: Any) -> Any:
    """Settle whatever hangs below, too."""
    if isinstance(value, KernelMap):
        return tap_table(value)
    if isinstance(value, Windows | Neighborhood) and value.valid is None:
        return replace(value, valid=torch.ones_like(value.index, dtype=torch.bool))
    return _each(value, lambda _, part: _written_out(part))


def _named(value: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    limits, _ = _ENDS.get(type(value), ("", ""))
    for name, part in _parts(value):
        if isinstance(part, Tensor):
            yield f"{path}{name}", part[:-1] if name == limits else part
        else:
            yield from _named(part, f"{path}{name}_")


def _filled(value: Any, path: str, tensors: Mapping[str, Tensor]) -> Any:
    filled = _each(
        value,
        lambda name, part: (
            tensors.get(f"{path}{name}")
            if isinstance(part, Tensor)
            else _filled(part, f"{path}{name}_", tensors)
        ),
    )
    limits, rows = _ENDS.get(type(value), ("", ""))
    begins = tensors.get(f"{path}{limits}")
    if limits and begins is not None:
        end = begins.new_full((1,), getattr(filled, rows).shape[0])
        filled = replace(filled, **{limits: torch.cat([begins, end])})
    return filled


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a value is made of, by name."""
    if is_dataclass(value):
        yield from ((f.name, getattr(value, f.name)) for f in fields(value))
    elif isinstance(value, Mapping):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, tuple):
        yield from ((str(i), part) for i, part in enumerate(value))


def _each(value: Any, change: Any) -> Any:
    """Change what a value is made of."""
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{name: change(name, part) for name, part in _parts(value)})
    if isinstance(value, Mapping):
        return {key: change(str(key), part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(change(str(i), part) for i, part in enumerate(value))
    return value
