"""published_views(): the views of a cloud that published test runs average over."""

from __future__ import annotations

from collections.abc import Mapping
from math import pi
from types import MappingProxyType

from pctx.data.transforms.geometric import Flip, RotateBy, Scale
from pctx.data.transforms.protocol import Transform

_TURNS = (0.0, pi / 2, pi, 3 * pi / 2)
_FIVE_SCALES = (0.9, 0.95, 1.0, 1.05, 1.1)
_RECIPES: Mapping[str, tuple[tuple[float, float, float], ...]] = MappingProxyType(
    {
        "scannet": (
            *((turn, scale, 0.0) for scale in (1.0, 0.95, 1.05) for turn in _TURNS),
            (0.0, 1.0, 1.0),
        ),
        "s3dis": tuple((0.0, scale, flip) for flip in (0.0, 1.0) for scale in _FIVE_SCALES),
        "nuscenes": tuple((0.0, scale, flip) for flip in (0.0, 1.0) for scale in _FIVE_SCALES),
        "waymo": tuple((turn, 1.0, 0.0) for turn in _TURNS),
        "semantic_kitti": tuple((turn, 1.0, 0.0) for turn in _TURNS),
        "swin3d_scannet": tuple((turn, 1.0, 0.0) for turn in _TURNS),
    }
)
"""Turn in radians, scale, and probability of both mirrors, of each view."""


def published_turns(recipe: str) -> tuple[tuple[float, float], ...]:
    """Give the turn about the vertical in radians and the scale that each view of a recipe is.

    To mirror both x and y is to turn by a half.

    Raises:
        ValueError: as `published_views`.
    """
    return tuple((turn + pi * flip, scale) for turn, scale, flip in _recipe(recipe))


def published_views(recipe: str) -> tuple[Mapping[str, Transform], ...]:
    """Give the views of a recipe, each a mapping of named steps for `apply`.

    They are certain: whatever the generator, a view is the same. Points keep their number and
    order, so the probabilities of all views can be averaged row by row. `Flip` mirrors x and y.

    Args:
        recipe: scannet (13 views), s3dis, nuscenes (10), waymo, semantic_kitti, swin3d_scannet (4).

    Raises:
        ValueError: there is no such recipe; the message lists those there are.
    """
    return tuple(
        {
            "rotate": RotateBy(angles=(turn,), probability=1.0),
            "scale": Scale(low=scale, high=scale),
            "flip": Flip(probability=flip),
        }
        for turn, scale, flip in _recipe(recipe)
    )


def _recipe(name: str) -> tuple[tuple[float, float, float], ...]:
    if name not in _RECIPES:
        raise ValueError(f"views must be those of {', '.join(_RECIPES)}, found {name!r}")
    return _RECIPES[name]
