"""Shapes: the solids of a scene, packed in arrays, and the verbs that make, move and join them.

m shapes. Every shape is a unit solid in its own frame: p = axes @ (world - center) / half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike


class Kind(IntEnum):
    """The unit solids; all are convex."""

    ELLIPSOID = 0
    """|p| <= 1."""
    BOX = 1
    """|p| <= 1 a coordinate; `taper` draws the front, rear and both sides in towards the top."""
    CYLINDER = 2
    """x² + y² <= (1 - taper (z + 1) / 2)², |z| <= 1; only taper[0] counts, and it is below 1."""


class Surface(IntEnum):
    """How a surface treats a ray, beyond its reflectance."""

    PLAIN = 0
    LEAVES = 1
    """Normals point anywhere."""
    FACADE = 2
    """Sides hold rows of windows: one every `pitch` metres, `gap` of it glass."""
    CABIN = 3
    """Sides are window panes between pillars."""
    RETRO = 4
    """Sends light back to where it came from, at any angle."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Shapes:
    """Solids with what they are and what they are made of.

    Attributes:
        kind: (m,) a `Kind`.
        center: (m, 3) metres.
        axes: (m, 3, 3) rows are the unit vectors of the shape's frame.
        half: (m, 3) metres, half sizes along them.
        taper: (m, 3) see `Kind`.
        label: (m,) raw ids.
        reflectance: (m,) 0..1.
        surface: (m,) a `Surface`.
        free_path: (m,) metres a ray flies inside before it meets a leaf, on average; 0 = opaque.
        gap: (m,) the share of rays that pass an opaque shape, or of glass in a facade.
        pitch: (m,) metres between two slats along x; 0 = gaps anywhere.
    """

    kind: np.ndarray
    center: np.ndarray
    axes: np.ndarray
    half: np.ndarray
    taper: np.ndarray
    label: np.ndarray
    reflectance: np.ndarray
    surface: np.ndarray
    free_path: np.ndarray
    gap: np.ndarray
    pitch: np.ndarray

    def __len__(self) -> int:
        return len(self.kind)

    def select(self, index: np.ndarray) -> Shapes:
        """Cut every field by an index array or a boolean mask."""
        return Shapes(**{f.name: getattr(self, f.name)[index] for f in fields(self)})


def make(
    kind: Kind,
    center: ArrayLike,
    half: ArrayLike,
    label: ArrayLike,
    *,
    yaw: ArrayLike = 0.0,
    up: ArrayLike = (0.0, 0.0, 1.0),
    taper: ArrayLike = (0.0, 0.0, 0.0),
    reflectance: ArrayLike = 0.3,
    surface: ArrayLike = Surface.PLAIN,
    free_path: ArrayLike = 0.0,
    gap: ArrayLike = 0.0,
    pitch: ArrayLike = 0.0,
) -> Shapes:
    """Make shapes of one kind; every argument is one value or one a shape.

    Args:
        yaw: radians about z from the world's x to the shape's x.
        up: (3,) or (m, 3) the direction of the shape's z, of any length.
    """
    m = max(np.size(center) // 3, np.size(half) // 3, np.size(yaw), np.size(up) // 3)

    def column(value: ArrayLike, dtype: type = np.float64) -> np.ndarray:
        out: np.ndarray = np.empty(m, dtype=dtype)
        out[:] = value
        return out

    def triple(value: ArrayLike) -> np.ndarray:
        out = np.empty((m, 3))
        out[:] = value
        return out

    return Shapes(
        kind=np.full(m, kind, dtype=np.int8),
        center=triple(center),
        axes=_axes(column(yaw), triple(up)),
        half=triple(half),
        taper=triple(taper),
        label=column(label, np.int64),
        reflectance=column(reflectance),
        surface=column(surface, np.int8),
        free_path=column(free_path),
        gap=column(gap),
        pitch=column(pitch),
    )


def join(parts: Sequence[Shapes]) -> Shapes:
    """Put shapes one after another; at least one part."""
    return Shapes(
        **{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Shapes)}
    )


def place(shapes: Shapes, position: ArrayLike, yaw: float = 0.0) -> Shapes:
    """Turn shapes by `yaw` radians about the z axis of the origin, then shift them."""
    c, s = np.cos(yaw), np.sin(yaw)
    turn = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])  # for rows on the left
    return replace(shapes, center=shapes.center @ turn + position, axes=shapes.axes @ turn)


def corners(shapes: Shapes) -> np.ndarray:
    """Give the corners of each shape's bounding box (m, 8, 3)."""
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    offset = signs * shapes.half[:, None]  # (m, 8, 3) in the shapes' frames
    return shapes.center[:, None] + offset @ shapes.axes


def _axes(yaw: np.ndarray, up: np.ndarray) -> np.ndarray:
    axes = np.zeros((len(yaw), 3, 3))
    x, y, z = axes[:, 0], axes[:, 1], axes[:, 2]
    z[:] = up / np.sqrt((up * up).sum(1, keepdims=True))
    x[:, 0], x[:, 1] = np.cos(yaw), np.sin(yaw)
    # A z axis that lies along the wished x axis takes the world's z as x.
    x[np.abs((x * z).sum(1)) > 0.99] = (0, 0, 1)
    x -= (x * z).sum(1, keepdims=True) * z
    x /= np.sqrt((x * x).sum(1, keepdims=True))
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        y[:, i] = z[:, j] * x[:, k] - z[:, k] * x[:, j]
    return axes
