"""What constructors are given: numbers that make sense, and as many as there are levels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from numbers import Integral, Real
from types import MappingProxyType
from typing import NamedTuple, TypeVar, cast

from pctx.geometry.curves import CURVES

Value = TypeVar("Value")


class Bounds(NamedTuple):
    """Which numbers an argument takes: in words, whether only whole ones, and which of them."""

    words: str
    whole: bool
    holds: Callable[[float], bool]


def _at_least(least: int) -> Bounds:
    return Bounds(f"whole and at least {least}", True, lambda number: number >= least)


_POSITIVE = Bounds("above 0 and finite", False, lambda number: 0 < number < inf)
_SHARE = Bounds("in [0, 1)", False, lambda number: 0 <= number < 1)
_WEIGHT = Bounds("in (0, 1]", False, lambda number: 0 < number <= 1)

BOUNDS: Mapping[str, Bounds] = MappingProxyType(
    {
        "cell_sizes": _POSITIVE,
        "channels": _at_least(1),
        "decoder_channels": _at_least(1),
        "decoder_depths": _at_least(0),
        "decoder_drop_path": _SHARE,
        "decoder_groups": _at_least(1),
        "decoder_num_heads": _at_least(1),
        "decoder_num_neighbors": _at_least(1),
        "decoder_rotary_base": _POSITIVE,
        "depth": _at_least(0),
        "depths": _at_least(0),
        "dilation": _at_least(1),
        "drop_path": _SHARE,
        "grid_size": _POSITIVE,
        "groups": _at_least(1),
        "in_channels": _at_least(1),
        "mlp_ratio": _POSITIVE,
        "norm_eps": _POSITIVE,
        "norm_momentum": _WEIGHT,
        "num_heads": _at_least(1),
        "num_neighbors": _at_least(1),
        "octree_depth": _at_least(1),
        "octree_scale": _POSITIVE,
        "patch_edge": _at_least(2),
        "point_channels": _at_least(1),
        "pyramid_channels": _at_least(1),
        "quant": _at_least(1),
        "rotary_base": _POSITIVE,
        "share_channels": _at_least(1),
        "stem_depth": _at_least(0),
        "stem_levels": _at_least(0),
        "strides": _at_least(2),
        "window_edge": _at_least(1),
        "window_edges": _at_least(1),
        "window_size": _at_least(1),
    }
)
"""By the name of the argument, which means the same in every model."""


def require_numbers(**values: object) -> None:
    """Raise a ValueError that names the first number out of its `BOUNDS`."""
    for name, value in values.items():
        words, whole, holds = BOUNDS[name]
        known = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
        if not known or not holds(cast(float, value)):
            raise ValueError(f"{name} must be {words}, found {value!r}")


def require_entries(count: int, **lists: Sequence[object]) -> None:
    """Raise a ValueError that names the first list without `count` entries, or with a wrong one.

    Args:
        count: as many as there are levels, or one fewer.
        lists: one a level each; entries are looked at where the name is in `BOUNDS`.
    """
    for name, values in lists.items():
        if not _is_list(values) or len(values) != count:
            found = list(values) if _is_list(values) else repr(values)
            raise ValueError(f"{name} must have {count} entries to fit channels, found {found}")
        for value in values if name in BOUNDS else ():
            require_numbers(**{name: value})


def count_levels(channels: Sequence[int]) -> int:
    """Return how many levels there are, by the one list that says so.

    Raises:
        ValueError: there are none, or it is no list.
    """
    if not _is_list(channels) or not channels:
        found = list(channels) if _is_list(channels) else repr(channels)
        raise ValueError(f"channels must be one number a level, found {found}")
    return len(channels)


def require_curves(curves: Sequence[str]) -> None:
    """Raise a ValueError if there are no curves, or one that `geometry.curves` does not know."""
    if not curves or not set(curves) <= set(CURVES):
        raise ValueError(f"curves must be some of {', '.join(CURVES)}; found {list(curves)}")


def per_level(value: Value | Sequence[Value], count: int) -> tuple[Value, ...]:
    """Give one value for all levels, or one a level, as one a level."""
    return tuple(cast(Sequence[Value], value)) if _is_list(value) else (cast(Value, value),) * count


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
