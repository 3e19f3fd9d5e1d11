"""Points to pixels: discs in a depth buffer, lit by their depth.

n points, h x w pixels.
"""

from __future__ import annotations

import numpy as np

from pctx.vis.camera import SAMPLE, Camera, distinct
from pctx.vis.palette import RGB

SUPERSAMPLE = 2
"""Buffer pixels per picture pixel along each axis; their mean is what one sees."""

LIGHT = 2.6
"""Strength of the eye-dome lighting."""

_EMPTY = np.uint64(2**64 - 1)
_SIZES = 6  # voxel sizes, each twice the last, in which the points are counted
_ENOUGH = 5  # points in a voxel that tell their spacing
_COVER = 1.0  # disc radius over point spacing: covers 96 per cent of points strewn at random
_LONE = 1.5  # a lone point's disc over that of a point of usual spacing
_SMALLEST = 1.0  # disc radius in buffer pixels
_RINGS = ((1 / 1000, 0.5), (1 / 240, 0.3), (1 / 80, 0.2))  # reach over height, and weight
_STEEP = 4.0  # depth over reach that is dark in full
_LARGEST = 1 / 90  # disc radius over the buffer's height


def rasterize(
    coord: np.ndarray,
    color: np.ndarray,
    camera: Camera,
    size: tuple[int, int],
    *,
    background: RGB,
    light: float = LIGHT,
) -> np.ndarray:
    """Draw points as discs, the nearer before the farther; (h, w, 3) uint8.

    Discs grow until neighbours touch, so that near surfaces have no holes. Cost: about 1 s for
    a million points on 1600 x 1200 pixels.

    Args:
        coord: (n, 3) float32, finite.
        color: (n, 3) uint8.
        camera: where from.
        size: w, h.
        background: where there is no point.
        light: strength of the eye-dome lighting; 0 gives the colours as they are.
    """
    w, h = size[0] * SUPERSAMPLE, size[1] * SUPERSAMPLE
    pixel, depth, point = _visible(coord, camera, w, h)
    apart = spacing(coord)[point]
    usual = usual_spacing(coord[point], apart)
    radius = _radius(np.minimum(apart, _LONE * usual), depth, camera, h)
    buffer = _splat(pixel, depth, radius, w, h)
    hit = np.flatnonzero(buffer != _EMPTY)
    seen = buffer[hit]
    picture = np.empty((h * w, 3), np.uint8)
    picture[:] = background
    picture[hit] = color[point[(seen & np.uint64(0xFFFFFFFF)).astype(np.int64)]]
    small = _blocks(picture.reshape(h, w, 3)).mean(axis=(1, 3), dtype=np.float32)
    if light > 0 and len(hit):
        far = np.full(h * w, np.inf, np.float32)
        far[hit] = (seen >> np.uint64(32)).astype(np.uint32).view(np.float32)
        shade = _shade(_blocks(far.reshape(h, w)).min(axis=(1, 3)), camera, usual, light)
        small *= shade[..., None]
    return np.round(small).astype(np.uint8)


def spacing(coord: np.ndarray) -> np.ndarray:
    """Give the distance to a point's neighbours, metres, (n,): a voxel's edge / sqrt(points in it).

    Each point is judged in the smallest of a few voxel sizes that holds `_ENOUGH` points.
    """
    n = len(coord)
    if n == 0:
        return np.zeros(0, np.float32)
    low = np.array([coord[:, axis].min() for axis in range(3)])
    sample = coord[:: max(1, n // SAMPLE)]
    span = float(np.ptp(np.percentile(sample, (2.5, 97.5), axis=0), axis=0).max())
    edge = max(span, 1e-6) * min(1.0, 2.5 / np.sqrt(n))
    distance, left = np.full(n, np.inf, np.float32), np.arange(n)
    for _ in range(_SIZES):
        part = coord if len(left) == n else coord[left]
        key = np.zeros(len(left), np.int64)
        for axis in range(3):
            key = (key << 21) + ((part[:, axis] - low[axis]) / np.float32(edge)).astype(np.int64)
        _, voxel, count = np.unique(key, return_inverse=True, return_counts=True)
        count = count[voxel.reshape(-1)]
        distance[left] = edge / np.sqrt(count)
        left = left[count < _ENOUGH]
        if len(left) == 0:
            break
        edge *= 2
    return distance


def usual_spacing(coord: np.ndarray, apart: np.ndarray) -> float:
    """Give the median of `spacing` over distinct points, metres; 0 where there are none."""
    return float(np.median(apart[distinct(coord)])) if len(coord) else 0.0


def _blocks(picture: np.ndarray) -> np.ndarray:
    h, w, *rest = picture.shape
    return picture.reshape(h // SUPERSAMPLE, SUPERSAMPLE, w // SUPERSAMPLE, SUPERSAMPLE, *rest)


def _visible(
    coord: np.ndarray, camera: Camera, w: int, h: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Give pixel (row * w + column), depth and number of the points in the frame."""
    right, up, depth = camera.project(coord)
    half = h / 2
    with np.errstate(invalid="ignore"):
        column, row = w / 2 + right * half, half - up * half
        inside = (
            (depth > 0.02 * camera.reach) & (column >= 0) & (column < w) & (row >= 0) & (row < h)
        )
    point = np.flatnonzero(inside)
    pixel = row[point].astype(np.int64) * w + column[point].astype(np.int64)
    return pixel, depth[point], point


def _radius(apart: np.ndarray, depth: np.ndarray, camera: Camera, h: int) -> np.ndarray:
    """Give disc radii in pixels, so that discs so many metres apart touch."""
    pixel = depth * np.float32(2 * camera.tangent / h)
    return np.clip(_COVER * apart / pixel, _SMALLEST, max(_SMALLEST, h * _LARGEST))


def _splat(pixel: np.ndarray, depth: np.ndarray, radius: np.ndarray, w: int, h: int) -> np.ndarray:
    """Give, for each pixel, depth bits << 32 | place of the nearest point; (h * w,) uint64."""
    # Positive floats order as their bits do, so one comparison is of depth, then of place.
    key = depth.astype(np.float32).view(np.uint32).astype(np.uint64) << np.uint64(32)
    key |= np.arange(len(key), dtype=np.uint64)
    largest = int(radius.max()) if len(radius) else 0
    wide = w + 2 * largest  # with room for discs that reach over the edge
    buffer = np.full((h + 2 * largest) * wide, _EMPTY)
    middle = (pixel // w + largest) * wide + pixel % w + largest
    reach = np.arange(-largest, largest + 1)
    dy, dx = (grid.reshape(-1) for grid in np.meshgrid(reach, reach, indexing="ij"))
    square = dx * dx + dy * dy
    limit = (radius + 0.5) ** 2  # places are whole pixels
    last = -1
    for i in np.argsort(square, kind="stable"):
        if square[i] != last:
            last = square[i]
            part = limit >= last
            if not part.all():
                limit, middle, key = limit[part], middle[part], key[part]
            if len(key) == 0:
                break
        np.minimum.at(buffer, middle + (dy[i] * wide + dx[i]), key)
    whole = buffer.reshape(h + 2 * largest, wide)
    return whole[largest : largest + h, largest : largest + w].reshape(-1)


def _shade(depth: np.ndarray, camera: Camera, grain: float, light: float) -> np.ndarray:
    """Darken pixels that lie behind their neighbours (eye-dome lighting, Boucheny 2009); (h, w).

    Steps in depth count in pixels at that depth, so the effect is the same at any zoom; steps
    below `grain`, the usual spacing of the points in metres, are the discs' own and do not count.
    """
    h, w = depth.shape
    pixel = depth * np.float32(2 * camera.tangent / h)
    behind = np.zeros((h, w), np.float32)
    for share, weight in _RINGS:
        reach = max(1, round(share * h))
        around = np.pad(depth, reach, mode="edge")
        unit = 1 / (pixel * np.float32(reach * _STEEP))
        for dy in (0, reach, 2 * reach):
            for dx in (0, reach, 2 * reach):
                if dy == dx == reach:
                    continue
                with np.errstate(invalid="ignore"):
                    step = (depth - around[dy : dy + h, dx : dx + w] - np.float32(grain)) * unit
                np.fmax(step, 0, out=step)
                np.fmin(step, 1, out=step)
                behind += step * np.float32(weight / 8)
    return np.exp(np.float32(-light) * behind)
