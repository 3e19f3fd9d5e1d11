"""Curves and windows made visible: the order of a cloud's voxels, and who attends to whom.

n raw points, m voxels, w windows.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from pctx.data.features import FeatureSpec
from pctx.data.prepare import Sample, prepare
from pctx.geometry.points import PointCloud
from pctx.geometry.serialization import serialize
from pctx.geometry.windows import Windows
from pctx.vis import palette
from pctx.vis.palette import DISTINCT, Ramp
from pctx.vis.scene import ColorScale, Scene, color_scene, value_scene

NEIGHBORS = 6
"""Voxels nearest to a voxel: their windows are the ones to tell its own from."""


def voxels_of(cloud: PointCloud, grid_size: float) -> Sample:
    """Voxelise a cloud of any fields, to order it and to cut it into windows.

    Args:
        cloud: any points; those that are not finite are in no voxel.
        grid_size: edge of a voxel, metres.

    Raises:
        ValueError: grid_size is not above 0, or too small for the cloud's extent.
    """
    return prepare(cloud, grid_size=grid_size, features=FeatureSpec(fields=("coord",)))


def order_scene(
    cloud: PointCloud, sample: Sample, curve: str, *, title: str = "", subject: str = ""
) -> Scene:
    """Colour each point by the place of its voxel along a curve, from its start to its end.

    Args:
        cloud: the raw points.
        sample: their voxels.
        curve: a name that `geometry.curves.parse_curve` reads.
        title: usually the file's name.
        subject: what the colours show; by default it names the curve.

    Raises:
        ValueError: the curve is unknown.
    """
    points = sample.points
    rank = serialize(points.grid_coord, points.offsets, (curve,)).inverse[0].numpy()
    place = np.append((rank + 0.5) / max(len(points), 1), np.nan)  # the last for points in no voxel
    return value_scene(
        cloud,
        place[sample.inverse.numpy()],
        title=title,
        subject=subject or f"order along {curve}",
        scale=ColorScale(Ramp.ORDER, 0.0, 1.0, "", ends=("start of the curve", "end")),
    )


def window_scene(
    cloud: PointCloud,
    sample: Sample,
    windows: Windows,
    *,
    title: str = "",
    subject: str = "",
) -> Scene:
    """Colour each point by the window that owns its voxel; windows side by side differ.

    Args:
        cloud: the raw points.
        sample: their voxels.
        windows: of these voxels.
        title: usually the file's name.
        subject: what the colours show; by default it counts the windows.
    """
    points = sample.points
    owner = (windows.slot // windows.window_size).numpy()  # (m,)
    pairs = _meetings(points.coord.numpy(), owner)
    colors = np.array(DISTINCT, np.uint8)[unlike(pairs, windows.num_windows)]
    table = np.concatenate([colors[owner], np.array([palette.UNLABELED], np.uint8)])
    return color_scene(
        cloud,
        table[sample.inverse.numpy()],
        title=title,
        subject=subject or count_windows(windows),
    )


def count_windows(windows: Windows, kind: str = "") -> str:
    """Say how many windows there are, of a kind such as "serial", and of how many slots."""
    noun = f"{kind} window".strip() + ("" if windows.num_windows == 1 else "s")
    return f"{windows.num_windows:,} {noun} of {windows.window_size:,} slots"


def unlike(pairs: np.ndarray, w: int) -> np.ndarray:
    """Number w windows so that those which meet differ: a colour in `DISTINCT` for each, (w,).

    Greedy, the window with the most neighbours first; of the colours that none of its neighbours
    has, it takes the rarest. Where a window meets more others than there are colours, it shares
    the one that the fewest of them have.

    Args:
        pairs: (p, 2) windows that meet, each pair once.
        w: the number of windows.
    """
    both = np.concatenate([pairs, pairs[:, ::-1]])
    both = both[np.argsort(both[:, 0], kind="stable")]
    degree = np.bincount(both[:, 0], minlength=w)
    around = np.split(both[:, 1], np.cumsum(degree)[:-1]) if w else []
    number = np.full(w, -1)
    used = np.zeros(len(DISTINCT), np.int64)
    for window in np.argsort(-degree, kind="stable").tolist():
        seen = number[around[window]]
        taken = np.bincount(seen[seen >= 0], minlength=len(DISTINCT))
        number[window] = np.lexsort((used, taken))[0]
        used[number[window]] += 1
    return number


def _meetings(coord: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """Give the pairs of windows, ascending, of which voxels lie next to each other: (p, 2)."""
    k = min(NEIGHBORS + 1, len(coord))  # a voxel is its own nearest
    if k < 2:
        return np.zeros((0, 2), np.int64)
    nearest = cKDTree(coord).query(coord, k=k)[1]
    pairs = np.stack([np.repeat(owner, k), owner[nearest].reshape(-1)], axis=1)
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    return np.unique(pairs, axis=0)
