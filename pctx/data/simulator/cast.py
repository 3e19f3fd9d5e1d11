"""Casting: which shape each ray meets first.

A shape covers a window of the range image, so only the rays in its window are tried. Shapes are
worked through from near to far in batches, and a ray that has already met something nearer than
a shape is not tried on it. n candidate pairs of a ray and a shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pctx.data.simulator.intersect import local_rays, normals, span
from pctx.data.simulator.sensor import Rays
from pctx.data.simulator.shapes import Shapes, Surface, corners

BATCH = 100_000
"""Candidates tried at once: their arrays stay in the processor's cache."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Windows:
    """The part of the range image that a shape may cover, and how near it comes.

    Attributes:
        top: (m,) first beam.
        rows: (m,) beams.
        left: (m,) first column; windows wrap around.
        columns: (m,) columns.
        near: (m,) metres, no point of the shape is nearer.
    """

    top: np.ndarray
    rows: np.ndarray
    left: np.ndarray
    columns: np.ndarray
    near: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Hits:
    """What each ray met first.

    Attributes:
        depth: (rays,) float32 metres, inf where nothing.
        shape: (rays,) the row of the shape, -1 where none was met before `limit`.
        lost: (rays,) bool: met glass that threw the light elsewhere.
    """

    depth: np.ndarray
    shape: np.ndarray
    lost: np.ndarray


def windows(shapes: Shapes, rays: Rays) -> Windows:
    """Give windows that surely hold every ray that meets a shape."""
    corner = corners(shapes)  # (m, 8, 3)
    flat, z = corner[:, :, :2], corner[:, :, 2]
    # Bounds on the horizontal distance, from a rectangle along the shape's x axis.
    x, y = shapes.axes[:, 0, 0], shapes.axes[:, 0, 1]
    size = np.hypot(x, y)
    upright = size < 1e-6
    x, y = (
        np.where(upright, 1, x / np.maximum(size, 1e-6)),
        np.where(upright, 0, y / np.maximum(size, 1e-6)),
    )
    along = flat[:, :, 0] * x[:, None] + flat[:, :, 1] * y[:, None]
    across = flat[:, :, 1] * x[:, None] - flat[:, :, 0] * y[:, None]
    near = np.hypot(*(np.maximum(0, np.maximum(a.min(1), -a.max(1))) for a in (along, across)))
    far = np.hypot(flat[:, :, 0], flat[:, :, 1]).max(1)

    low, high = z.min(1), z.max(1)
    bottom = np.arctan2(low, np.where(low < 0, near, far))
    ceiling = np.arctan2(high, np.where(high > 0, near, far))
    downward = -rays.elevations
    top = np.searchsorted(downward, -ceiling - 1e-6)
    end = np.searchsorted(downward, -bottom + 1e-6, side="right")

    middle = np.arctan2(shapes.center[:, 1], shapes.center[:, 0])
    turn = np.arctan2(flat[:, :, 1], flat[:, :, 0]) - middle[:, None]
    turn = (turn + np.pi) % (2 * np.pi) - np.pi
    step = 2 * np.pi / rays.columns
    left = np.floor((middle + turn.min(1)) / step).astype(np.int64) - 1
    right = np.ceil((middle + turn.max(1)) / step).astype(np.int64) + 1
    around = (near < 0.05) | (right - left >= rays.columns)
    left = np.where(around, 0, left)
    right = np.where(around, rays.columns, right)
    return Windows(
        top=top, rows=np.maximum(end - top, 0), left=left, columns=right - left, near=near
    )


def cast(shapes: Shapes, rays: Rays, limit: np.ndarray, rng: np.random.Generator) -> Hits:
    """Find the first shape each ray from the origin meets, within `limit` (rays,) metres."""
    depth = limit.astype(np.float32)
    owner = np.full(len(depth), -1, dtype=np.int64)
    lost = np.zeros(len(depth), dtype=bool)
    for ray, index in _candidates(windows(shapes, rays), rays.columns, depth):
        t, mirrored = _meet(shapes, index, rays.direction[ray], rng)
        closer = np.flatnonzero(t < depth[ray])
        ray, index, t, mirrored = ray[closer], index[closer], t[closer], mirrored[closer]
        np.minimum.at(depth, ray, t)
        first = np.flatnonzero(t == depth[ray])
        owner[ray[first]] = index[first]
        lost[ray[first]] = mirrored[first]
    return Hits(depth=depth, shape=owner, lost=lost)


def incidence(
    shapes: Shapes, index: np.ndarray, direction: np.ndarray, depth: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Give the cosine of incidence (n,) and the point in the shape's frame (n, 3) of hits."""
    start, step = local_rays(shapes, index, direction)
    point = start + depth[:, None] * step
    normal = normals(shapes.kind[index], shapes.taper[index], point) / shapes.half[index]
    # The frame is orthonormal, so the angle is the same in it.
    ray = step * shapes.half[index]
    length = np.linalg.norm(normal, axis=1) * np.linalg.norm(ray, axis=1)
    cosine = np.abs((normal * ray).sum(1)) / np.maximum(length, 1e-12)
    return np.minimum(cosine, 1), point


def _candidates(
    covers: Windows, width: int, depth: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield rays and shapes (n,) that may meet, from near to far; reads `depth` as it changes."""
    order = np.argsort(covers.near, kind="stable")
    counts = (covers.rows * covers.columns)[order]
    ends = np.cumsum(counts)
    first = 0
    while first < len(order):
        done = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, done + BATCH, side="right")))
        index = np.repeat(order[first:last], counts[first:last])
        inside = np.arange(len(index)) - np.repeat(
            ends[first:last] - counts[first:last] - done, counts[first:last]
        )
        row, column = np.divmod(inside, covers.columns[index])
        ray = (covers.top[index] + row) * width + (covers.left[index] + column) % width
        open_ = np.flatnonzero(covers.near[index] < depth[ray])
        yield ray[open_], index[open_]
        first = last


def _meet(
    shapes: Shapes, index: np.ndarray, direction: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Give where rays meet shapes (n,), inf where they pass, and which met a mirror (n,)."""
    start, step = local_rays(shapes, index, direction)
    enter, leave = span(shapes.kind[index], shapes.taper[index], start, step)
    t = np.where((enter <= leave) & (enter > 0), enter, np.float32(np.inf))

    path = shapes.free_path[index]
    leafy = np.flatnonzero((path > 0) & (enter <= leave) & (leave > 0))
    flown = rng.standard_exponential(len(leafy), dtype=np.float32) * path[leafy]
    inside = np.maximum(enter[leafy], 0) + flown
    t[leafy] = np.where(inside <= leave[leafy], inside, np.inf)

    gap = np.where(shapes.surface[index] == Surface.FACADE, 0, shapes.gap[index])
    holed = np.flatnonzero((gap > 0) & np.isfinite(t))
    across = (start[holed, 0] + t[holed] * step[holed, 0]) * shapes.half[index[holed], 0]
    pitch = shapes.pitch[index[holed]]
    chance = rng.random(len(holed), dtype=np.float32)
    chance = np.where(pitch > 0, across / np.where(pitch > 0, pitch, 1) % 1, chance)
    t[holed[chance < gap[holed]]] = np.inf

    mirrored = np.zeros(len(index), dtype=bool)
    glazed = np.flatnonzero((shapes.surface[index] == Surface.CABIN) & np.isfinite(t))
    point = start[glazed] + t[glazed, None] * step[glazed]
    on_pane = _on_pane(point)
    pane, point = glazed[on_pane], point[on_pane]
    # What a pane does hangs on the car and the spot, so that it does the same to rays side by side.
    mood = 2 * np.pi * (index[pane] * 0.618 % 1)
    fate = 0.5 + 0.3 * np.sin(mood + 2 * point[:, 0]) * np.cos(2 * mood + 3 * point[:, 2])
    fate += rng.normal(0, 0.12, len(pane))
    t[pane[fate < _THROUGH]] = np.inf
    mirrored[pane[(fate >= _THROUGH) & (fate < _MIRRORED)]] = True
    return t, mirrored


_THROUGH, _MIRRORED = 0.42, 0.72
"""Below the first a ray passes a car's window, below the second it is thrown elsewhere."""


def _on_pane(point: np.ndarray) -> np.ndarray:
    """Say which points (n,) on a cabin lie on glass: not on the roof, a pillar or a sill."""
    x, y, z = point.T
    side = np.abs(y) > 0.95 - 0.25 * (z + 1) / 2
    pillar = side & ((np.abs(x) < 0.06) | (np.abs(x) > 0.82 - 0.3 * (z + 1) / 2))
    return (z > -0.85) & (z < 0.78) & ~pillar
