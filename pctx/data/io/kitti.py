"""Driving scans: KITTI and nuScenes `.bin`, with the label files beside them.

n points.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from pctx.data.io.companions import check_count, with_labels
from pctx.data.io.errors import ReadError
from pctx.data.io.labelled import Labelled
from pctx.geometry.points import PointCloud

LIDARSEG = "_lidarseg.bin"
_NUSCENES_INTENSITY = 255.0
"""nuScenes states intensity as 0..255, KITTI as 0..1."""
_MOST_RINGS = 255
_FEWEST_COLORED = 16
"""Points below which six columns cannot be told from others by what they hold."""
_FARTHEST = 1e6
"""Metres. No sensor frame reaches that far: larger numbers are bytes of another meaning."""
_WIDTHS = (3, 4, 5, 6)
"""Numbers a point that scans of raw float32 have."""
_COMPARED = 120_000
"""Numbers, a multiple of all widths, from which the width is told."""
_FEWEST_COMPARED = 60


def read_kitti(path: Path) -> PointCloud:
    """Read float32 x, y, z, intensity, and the labels of the scan where there are any.

    The label file lies beside the scan or in a folder beside its own (see `companions`). Five
    columns (nuScenes: a whole-numbered ring) and six (x, y, z, colours) are told apart by what they
    hold. Others, such as x, y and z alone, are told by how their numbers repeat.

    Raises:
        ReadError: the bytes are no such columns, or the labels are of another number of points.
    """
    size = path.stat().st_size
    for columns, fits in ((5, _is_nuscenes), (6, _is_colored), (4, _is_kitti)):
        if size % (4 * columns) == 0:
            table = np.fromfile(path, dtype="<f4").reshape(-1, columns)
            if fits(table):
                _check_width(path, table)
                return with_labels(path, _cloud(table))
    raise ReadError(
        f"{path}: {size} bytes are no scan of 4 float32 columns (x, y, z, intensity; 16 bytes a "
        "point) nor of 5 (with the ring; 20 bytes)"
    )


def read_nuscenes(path: Path) -> PointCloud:
    """Read float32 x, y, z, intensity 0..255, ring, and the labels of `STEM_lidarseg.bin` beside.

    Raises:
        ReadError: the bytes are no such columns, or the labels are of another number of points.
    """
    size = path.stat().st_size
    if size % 20 or not _is_nuscenes(table := np.fromfile(path, dtype="<f4").reshape(-1, 5)):
        raise ReadError(
            f"{path}: {size} bytes are no scan of 5 float32 columns (x, y, z, intensity, ring; "
            "20 bytes a point)"
        )
    cloud = _cloud(table)
    companion = path.with_name(path.name[: -len(".pcd.bin")] + LIDARSEG)
    if companion.is_file():
        label = np.fromfile(companion, dtype=np.uint8)
        check_count(path, companion, len(cloud), len(label))
        cloud = replace(cloud, label=label.astype(np.int64))
    return cloud


def write_label(path: Path, labelled: Labelled) -> None:
    """Write SemanticKITTI labels: uint32, the raw id in the low and the instance in the high half.

    Raises:
        ValueError: an id or an instance needs more than 16 bits.
    """
    label = _ids(labelled, 2**16 - 1)
    instance = labelled.cloud.instance
    if instance is None:
        instance = np.zeros(len(label), dtype=np.int64)
    if len(instance) and not 0 <= instance.min() <= instance.max() < 2**16:
        raise ValueError("a .label file holds instances 0 to 65535")
    (label | instance << 16).astype("<u4").tofile(path)


def write_lidarseg(path: Path, labelled: Labelled) -> None:
    """Write nuScenes labels: one byte a point.

    Raises:
        ValueError: an id is above 255.
    """
    _ids(labelled, 255).astype(np.uint8).tofile(path)


def _ids(labelled: Labelled, largest: int) -> np.ndarray:
    label = labelled.cloud.label
    if label is None:
        raise ValueError("the cloud has no labels to write")
    if labelled.added:
        raise ValueError(
            f"a file of labels has no room for {next(iter(labelled.added))}; write "
            ".laz, .ply or .npz"
        )
    if len(label) and not 0 <= label.min() <= label.max() <= largest:
        wrong = label.min() if label.min() < 0 else label.max()
        raise ValueError(f"raw id {wrong} does not fit into 0 to {largest}")
    return label


def _cloud(table: np.ndarray) -> PointCloud:
    xyz, intensity = table[:, :3], table[:, 3]
    if table.shape[1] == 6:
        scale = 255 if table[:, 3:].max(initial=0) <= 1 else 1
        color = np.rint(table[:, 3:] * scale).astype(np.uint8)
        return PointCloud.from_xyz(xyz, color=color)
    if table.shape[1] == 5:
        ring = table[:, 4].astype(np.int16)
        intensity = intensity / np.float32(_NUSCENES_INTENSITY)
        return PointCloud.from_xyz(xyz, intensity=intensity, extra={"ring": ring})
    return PointCloud.from_xyz(xyz, intensity=intensity.copy())


def _check_width(path: Path, table: np.ndarray) -> None:
    """Raise ReadError where the numbers of a table are rather columns of another width.

    Of the right width, some column holds larger numbers than others; of a wrong one, each holds
    every kind, and the columns are alike.
    """
    numbers, columns = table.reshape(-1), table.shape[1]
    fitting = [k for k in _WIDTHS if len(numbers) % k == 0]
    others = [k for k in fitting if columns % k]
    with np.errstate(invalid="ignore"):
        sizes = np.log(np.abs(numbers[:_COMPARED]) + 1e-3)
    if not others or len(sizes) < _FEWEST_COMPARED or np.ptp(sizes[np.isfinite(sizes)]) == 0:
        return
    chance = 5 * columns / len(sizes)  # numbers in no order have a fifth of that
    if _contrast(sizes, columns) < max(chance, *(_contrast(sizes, k) for k in others)):
        raise ReadError(
            f"{path}: by its size a point has {' or '.join(map(str, fitting))} numbers, and they "
            f"do not look like {columns}; save it with named columns, as .npz, .ply or .csv"
        )


def _contrast(sizes: np.ndarray, columns: int) -> float:
    """Give the part of the variance that lies between columns, 0 to 1."""
    known = np.isfinite(sizes)
    column = np.arange(len(sizes))[known] % columns
    values = sizes[known] - sizes[known].mean()
    counts = np.bincount(column, minlength=columns)
    sums = np.bincount(column, values, minlength=columns)
    return float((sums**2 / np.maximum(counts, 1)).sum() / max((values**2).sum(), 1e-30))


def _is_kitti(table: np.ndarray) -> bool:
    return _is_position(table[:, :3]) and _within(table[:, 3], 0, 2**16)


def _is_nuscenes(table: np.ndarray) -> bool:
    ring = table[:, 4]
    return (
        _is_position(table[:, :3])
        and _within(table[:, 3], 0, _NUSCENES_INTENSITY)
        and _within(ring, 0, _MOST_RINGS)
        and bool((ring == np.rint(ring)).all())
        # Nothing but zeros would pass for rings in a file of four columns too.
        and (bool(ring.any()) or table.nbytes % 16 != 0)
    )


def _is_colored(table: np.ndarray) -> bool:
    color = table[:, 3:]
    if len(table) < _FEWEST_COLORED or not _is_position(table[:, :3]):
        return False
    if not (color.any() and np.isfinite(color).all()):
        return False
    whole = _within(color, 0, 255) and bool((color == np.rint(color)).all())
    return whole or _within(color, 0, 1)


def _within(column: np.ndarray, low: float, high: float) -> bool:
    return not ((column < low) | (column > high)).any()  # NaN is met: a point without an echo


def _is_position(xyz: np.ndarray) -> bool:
    """Tell metres from other bytes: no huge and no vanishing numbers; non-finite ones are met."""
    size = np.abs(xyz[np.isfinite(xyz)])
    tiny = (size > 0) & (size < 1e-20)
    return bool((size < _FARTHEST).all()) and not tiny.any()
