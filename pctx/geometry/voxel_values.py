"""What stands for the points of a voxel: the means of values, the commonest label, some of them.

Each has a compiled twin that gives the same bytes. n points, m voxels, c columns.
"""

from __future__ import annotations

import numpy as np

from pctx.geometry import compiled_grid
from pctx.geometry.compiled_grid import compiled_suits
from pctx.geometry.grid import Voxelization

_IGNORED = -1
"""The label of points that are neither learned nor counted."""


def voxel_means(values: np.ndarray, voxels: Voxelization) -> np.ndarray:
    """Average the columns of (n, c) over each voxel, summed in float64: (m, c) float32."""
    if compiled_suits(values, np.float32):
        return compiled_grid.average(values, voxels.order, voxels.starts)
    voxel, counts = voxels.inverse, voxels.counts
    means = np.empty((len(counts), values.shape[1]), dtype=np.float32)
    for column, mean in zip(values.T, means.T, strict=True):
        np.divide(np.bincount(voxel, column, len(counts)), counts, out=mean, casting="same_kind")
    return means


def voxel_labels(label: np.ndarray, voxels: Voxelization) -> np.ndarray:
    """Give each voxel its most frequent class number (m,), the lowest of several.

    Ignored points, of -1, vote only alone.

    Args:
        label: (n,) int64, from -1 on.
    """
    if compiled_suits(label, np.int64):
        return compiled_grid.elect(label, voxels.order, voxels.starts)
    ordered = label[voxels.order]
    result = ordered[voxels.starts[:-1]]
    # Where a point's label differs from that of the point before it in its voxel, they vote.
    differs = np.empty(len(ordered) + 1, dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=differs[1:-1])
    differs[voxels.starts] = False
    voxel = np.searchsorted(voxels.starts, np.flatnonzero(differs), side="right") - 1
    mixed = np.unique(voxel)
    counts = voxels.counts[mixed]
    group = np.repeat(np.arange(len(mixed)), counts)
    within = np.arange(len(group)) - np.repeat(np.cumsum(counts) - counts, counts)
    votes = ordered[np.repeat(voxels.starts[mixed], counts) + within]
    result[mixed] = _elect(votes, group, len(mixed))
    return result


def draw_points(voxels: Voxelization, rng: np.random.Generator) -> np.ndarray:
    """Draw a point of each voxel: (m,)."""
    share = rng.random(len(voxels))
    if compiled_suits(voxels.order, np.int64):
        return compiled_grid.draw(share, voxels.order, voxels.starts)
    place = (share * voxels.counts).astype(np.int64)  # below the count
    drawn: np.ndarray = voxels.order[voxels.starts[:-1] + place]
    return drawn


def take_rows(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Take some rows of (n, c)."""
    if compiled_suits(values, np.float32):
        return compiled_grid.take(values, rows)
    taken = np.empty((len(rows), values.shape[1]), dtype=values.dtype)
    for column, target in zip(values.T, taken.T, strict=True):
        np.take(column, rows, out=target, mode="clip")  # the other mode copies twice
    return taken


def _elect(label: np.ndarray, group: np.ndarray, m: int) -> np.ndarray:
    """Give each group the class number with most votes (m,); the lowest of several."""
    classes = int(label.max(initial=0)) + 1
    known = label != _IGNORED
    pairs, votes = np.unique(group[known] * classes + label[known], return_counts=True)
    # Ascending votes, then descending classes: the last write wins.
    order = np.lexsort((-pairs, votes))
    result = np.full(m, _IGNORED, dtype=np.int64)
    result[pairs[order] // classes] = pairs[order] % classes
    return result
