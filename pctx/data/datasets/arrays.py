"""Folders of arrays, as Pointcept prepares the scans of published datasets: class numbers to ids.

n points.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from pctx.data.io.errors import ReadError
from pctx.data.io.formats import read
from pctx.data.labels import LabelSet
from pctx.geometry.points import PointCloud


def read_arrays(folder: Path, labels: LabelSet, segment: str | None = None) -> PointCloud:
    """Read a folder whose labels are class numbers, -1 for none; give the card's raw ids.

    Args:
        segment: the name of the array of class numbers; None takes that which `read` does.

    Raises:
        ReadError: an array is broken or of another number of points, or a number is no class.
    """
    cloud = read(folder)
    number = cloud.label if segment is None else _column(folder, cloud, segment)
    if number is None:
        return replace(cloud, label=None)
    if len(number) and not -1 <= number.min() <= number.max() < len(labels):
        raise ReadError(
            f"{folder}: class numbers run from {number.min()} to {number.max()}, the card has "
            f"{len(labels)} classes (0..{len(labels) - 1}, -1 for none)"
        )
    return replace(cloud, label=labels.decode(number))


def _column(folder: Path, cloud: PointCloud, name: str) -> np.ndarray | None:
    if not (folder / f"{name}.npy").is_file():
        return None
    column = cloud.extra.get(name)
    if column is None or column.size != len(cloud) or column.dtype.kind not in "iu":
        raise ReadError(f"{folder}/{name}.npy: it has no class number for each of {len(cloud)}")
    return column.reshape(-1).astype(np.int64)
