"""Folders of arrays, one a field, as Pointcept prepares scans; their labels are class numbers.

n points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pctx.data.io.columns import color_to_uint8
from pctx.data.io.errors import ReadError
from pctx.data.labels import LabelSet
from pctx.geometry.points import PointCloud


def read_arrays(
    folder: Path, labels: LabelSet, segment: Sequence[str] = ("segment",)
) -> PointCloud:
    """Read coord.npy, and color, normal, strength (as intensity), instance and labels beside it.

    Args:
        labels: turns the class numbers of the file into raw ids; -1 becomes `unlabeled`.
        segment: the names that the file of class numbers may have, the best first.

    Raises:
        ReadError: coord.npy is missing, an array is broken, or has another number of rows.
    """
    coord = _load(folder, "coord")
    if coord is None:
        raise ReadError(f"{folder}: it has no coord.npy")
    if coord.ndim != 2 or coord.shape[1] != 3:
        raise ReadError(f"{folder}/coord.npy: points are (n, 3), found {coord.shape}")
    fields: dict[str, np.ndarray] = {}
    if (color := _load(folder, "color")) is not None:
        fields["color"] = color_to_uint8(color)
    if (normal := _load(folder, "normal")) is not None:
        fields["normal"] = normal.astype(np.float32)
    if (strength := _load(folder, "strength")) is not None:
        fields["intensity"] = strength.reshape(-1).astype(np.float32)
    if (instance := _load(folder, "instance")) is not None:
        fields["instance"] = instance.reshape(-1).astype(np.int64)
    try:
        cloud = PointCloud.from_xyz(coord, **fields)
    except ValueError as error:
        raise ReadError(f"{folder}: {error}") from error
    found = next((name for name in segment if (folder / f"{name}.npy").is_file()), None)
    number = None if found is None else _load(folder, found)
    if number is None:
        return cloud
    number = number.reshape(-1).astype(np.int64)
    if len(number) != len(cloud):
        raise ReadError(f"{folder}/{found}.npy: {len(number)} labels for {len(cloud)} points")
    if len(number) and not -1 <= number.min() <= number.max() < len(labels):
        raise ReadError(
            f"{folder}/{found}.npy: class numbers run from {number.min()} to {number.max()}, the "
            f"card has {len(labels)} classes (0..{len(labels) - 1}, -1 for none)"
        )
    return replace(cloud, label=labels.decode(number))


def _load(folder: Path, name: str) -> np.ndarray | None:
    path = folder / f"{name}.npy"
    if not path.is_file():
        return None
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ReadError(f"{path}: {error}") from error
    if not isinstance(array, np.ndarray):
        raise ReadError(f"{path}: this is a file of several arrays")
    return array
