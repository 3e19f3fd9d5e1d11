"""A plan as named tensors, of which only the numbers of rows depend on the points; and back again.

Plans differ in more than the sizes of their tensors: a mask that is absent, numbers of pairs in
tuples, parts as they are needed. `settled` makes them alike, so that one graph serves all.

n points, b clouds, m segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from pctx.geometry.hierarchy import Hierarchy, Level
from pctx.geometry.kernel_map import KernelMap
from pctx.geometry.neighbors import Neighborhood
from pctx.geometry.tap_table import tap_table
from pctx.geometry.window_parts import part_windows
from pctx.geometry.windows import Windows

PARTS = 4
"""Window parts of a settled level: up to 8, 16 and 32 points a window, and all fuller ones."""

_ROWS: Mapping[str, str] = MappingProxyType({"offsets": "coord", "starts": "order"})
"""Limits of segments, and the tensor beside them whose number of rows is the last limit."""


def settled(hierarchy: Hierarchy) -> Hierarchy:
    """Return a plan with the same results, of a form that does not depend on its points.

    Masks are written out, kernel maps are tables, and windows come in `PARTS` parts. Clouds may be
    empty, but not all of them.
    """
    return Hierarchy(levels=tuple(_settled_level(level) for level in hierarchy.levels))


def named_tensors(hierarchy: Hierarchy) -> dict[str, Tensor]:
    """Name every tensor of a settled plan by its way there: `levels_0_windows_1_index`, …."""
    return dict(_named(hierarchy, ""))


def flat_inputs(hierarchy: Hierarchy) -> dict[str, Tensor]:
    """Return the named tensors of a settled plan.

    Limits of clouds and segments, `offsets` and `starts`, come without the last, which is a number
    of rows: (b,) and (m,).
    """
    tensors = named_tensors(hierarchy)
    return {name: tensor[:-1] if _rows(name) else tensor for name, tensor in tensors.items()}


def names_needed(read: Iterable[str]) -> set[str]:
    """Return the flat inputs that make the named tensors: these, and what ends limits."""
    names = set(read)
    return names | {rows for rows in map(_rows, names) if rows is not None}


def from_flat(like: Hierarchy, inputs: Mapping[str, Tensor]) -> Hierarchy:
    """Return a plan of the form of another with these tensors: the inverse of `flat_inputs`.

    Args:
        like: a settled plan of the same backbone; no number of it is read.
        inputs: by name; tensors that no one reads may be left out, and are then None.
    """
    tensors = dict(inputs)
    for name, tensor in inputs.items():
        rows = _rows(name)
        if rows is not None:
            tensors[name] = torch.cat([tensor, tensor.new_full((1,), inputs[rows].shape[0])])
    plan: Hierarchy = _filled(like, "", tensors)
    return plan


def dynamic_axes(name: str, tensor: Tensor) -> tuple[int, ...]:
    """Return the axes of a flat input that depend on the points: rows, and slots of windows."""
    return tuple(range(tensor.ndim)) if "_windows_" in name else (0,)


def _settled_level(level: Level) -> Level:
    if level.window_parts:
        parts = tuple(part_windows(windows, PARTS) for windows in level.windows)
        level = replace(level, window_parts=parts)
    written: Level = _written_out(level)
    return written


def _written_out(value: Any) -> Any:
    """Settle whatever hangs below, too."""
    if isinstance(value, KernelMap):
        return tap_table(value)
    if isinstance(value, Windows | Neighborhood) and value.valid is None:
        return replace(value, valid=torch.ones_like(value.index, dtype=torch.bool))
    return _each(value, lambda _, part: _written_out(part))


def _rows(name: str) -> str | None:
    """Name the tensor that has the rows that limits end with; None if these are no limits."""
    path, _, last = name.rpartition("_")
    return f"{path}_{_ROWS[last]}" if last in _ROWS else None


def _named(value: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    for name, part in _parts(value):
        if isinstance(part, Tensor):
            yield f"{path}{name}", part
        else:
            yield from _named(part, f"{path}{name}_")


def _filled(value: Any, path: str, tensors: Mapping[str, Tensor]) -> Any:
    def fill(name: str, part: Any) -> Any:
        if isinstance(part, Tensor):
            return tensors.get(f"{path}{name}")
        return _filled(part, f"{path}{name}_", tensors)

    return _each(value, fill)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a value is made of, by name."""
    if is_dataclass(value):
        yield from ((f.name, getattr(value, f.name)) for f in fields(value))
    elif isinstance(value, Mapping):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, tuple):
        yield from ((str(i), part) for i, part in enumerate(value))


def _each(value: Any, change: Callable[[str, Any], Any]) -> Any:
    """Change what a value is made of."""
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{name: change(name, part) for name, part in _parts(value)})
    if isinstance(value, Mapping):
        return {key: change(str(key), part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(change(str(i), part) for i, part in enumerate(value))
    return value
