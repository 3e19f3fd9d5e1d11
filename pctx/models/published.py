"""Names of published weights: where each part of a model has its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple


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
