"""What the arguments of transforms must be, said in one sentence where they are not."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from numbers import Integral, Real


def check_share(owner: object, **values: float) -> None:
    """Refuse what is not a number in [0, 1], such as a probability."""
    for name, value in values.items():
        if not _is_number(value) or not 0 <= value <= 1:
            raise ValueError(f"{_at(owner, name)} must be a number in 0..1, found {value!r}")


def check_least(owner: object, least: float = 0, **values: float) -> None:
    """Refuse what is not a finite number from `least` on."""
    for name, value in values.items():
        if not _is_number(value) or not least <= value:
            raise ValueError(f"{_at(owner, name)} must be {least} or more, found {value!r}")


def check_above_zero(owner: object, **values: float) -> None:
    """Refuse what is not a finite number above 0."""
    for name, value in values.items():
        if not _is_number(value) or not value > 0:
            raise ValueError(f"{_at(owner, name)} must be above 0, found {value!r}")


def check_interval(owner: object, low: float, high: float, least: float = -inf) -> None:
    """Refuse `low` and `high` that do not ascend, or lie below `least`."""
    if not (_is_number(low) and _is_number(high) and least <= low <= high):
        bound = "" if least == -inf else f" from {least} on"
        raise ValueError(
            f"{_at(owner, 'low')} and high must be ascending numbers{bound}, "
            f"found {low!r} and {high!r}"
        )


def check_counts(owner: object, least: int, **values: int) -> None:
    """Refuse what is not a whole number from `least` on."""
    for name, value in values.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise ValueError(
                f"{_at(owner, name)} must be a whole number, {least} or more, found {value!r}"
            )


def check_choice(owner: object, known: Sequence[str], **values: str) -> None:
    """Refuse a word that is not one of `known`."""
    for name, value in values.items():
        if value not in known:
            raise ValueError(f"{_at(owner, name)} must be {' or '.join(known)}, found {value!r}")


def check_ids(owner: object, **values: Sequence[int]) -> None:
    """Refuse what is not a list of whole numbers, such as raw ids of classes."""
    for name, value in values.items():
        if not is_list(value) or not all(isinstance(v, Integral) for v in value):
            raise ValueError(f"{_at(owner, name)} must be a list of raw ids, found {value!r}")


def is_list(value: object, length: int | None = None) -> bool:
    """Tell whether this is a list or a tuple, of `length` entries if one is given."""
    return isinstance(value, list | tuple) and length in (None, len(value))


def are_numbers(values: Sequence[float]) -> bool:
    """Tell whether all entries are finite numbers."""
    return all(_is_number(value) for value in values)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)


def _at(owner: object, name: str) -> str:
    return f"{type(owner).__name__}: {name}"
