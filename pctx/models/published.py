"""Names of published weights: a pure map between them and ours, strict both ways."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

Weight = TypeVar("Weight")


class Home(NamedTuple):
    """Where a part of a model has its published weights.

    Attributes:
        pattern: a regular expression of our part's name: numbers, then the layer inside.
        home: the published part, given those numbers.
        layers: the published name of each layer inside, by ours.
    """

    pattern: str
    home: Callable[..., str]
    layers: Mapping[str, str]


def name_at_home(own: str, homes: Iterable[Home], model: str) -> str:
    """Return the published name of a weight of ours, at the home its part has.

    Raises:
        ValueError: if no home has a layer of that name.
    """
    part, _, leaf = own.rpartition(".")
    for pattern, home, layers in homes:
        found = re.fullmatch(pattern, part)
        if found and found.groups()[-1] in layers:
            *numbers, layer = found.groups()
            return f"{home(*map(int, numbers))}.{layers[layer]}.{leaf}"
    raise ValueError(f"a {model} segmentor has no weight named {own!r}")


def from_published(
    weights: Mapping[str, Weight], own: Iterable[str], name: Callable[[str], str]
) -> dict[str, Weight]:
    """Give published weights the names of ours.

    Args:
        weights: by published name.
        own: every name of our model's state dict.
        name: the published name of one of ours, as `published_v3.ptv3_name`.

    Raises:
        ValueError: if a weight of ours is missing there, or one there is not ours.
    """
    published = {name(key): key for key in own}
    missing = [key for key in published if key not in weights]
    unexpected = [key for key in weights if key not in published]
    if missing or unexpected:
        raise ValueError(
            f"the published weights do not fit the model: {len(missing)} missing"
            f"{_examples(missing)}, {len(unexpected)} unexpected{_examples(unexpected)}"
        )
    return {own_key: weights[key] for key, own_key in published.items()}


def to_published(weights: Mapping[str, Weight], name: Callable[[str], str]) -> dict[str, Weight]:
    """Give our weights their published names; values as they are."""
    return {name(key): value for key, value in weights.items()}


def _examples(keys: list[str]) -> str:
    if not keys:
        return ""
    return f" ({', '.join(keys[:3])}{', …' if len(keys) > 3 else ''})"
