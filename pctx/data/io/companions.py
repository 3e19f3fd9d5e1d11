"""The labels that lie in a file of their own beside a scan, or in a folder beside the scan's.

n points.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from pctx.data.io import npy
from pctx.data.io.errors import ReadError
from pctx.geometry.points import PointCloud

LABEL_FOLDERS = ("labels", "semantic_mask", "instance_mask")
"""The folders of labels beside a folder of scans."""
SCAN_FOLDERS = ("velodyne", "points")
_HALF = 16
"""Bits of a SemanticKITTI label that are the class; the others are the instance."""


def with_labels(path: Path, cloud: PointCloud) -> PointCloud:
    """Add the labels of a scan, where there is a file of them.

    `STEM.label` beside the scan, or in the folder `labels` beside its folder `velodyne` or
    `points`: 4 bytes a point as in SemanticKITTI (class in the low half, instance in the high), or
    1 byte as in SensatUrban. Beside a folder `points` also `labels/STEM.npy` of whole numbers, and
    `semantic_mask/STEM.bin` and `instance_mask/STEM.bin` of 8 bytes a point.

    Raises:
        ReadError: the labels are of another number of points.
    """
    beside = path.parent.parent if path.parent.name in SCAN_FOLDERS else None
    places = [path.with_suffix(".label")]
    if beside is not None:
        places.append(beside / "labels" / f"{path.stem}.label")
    if found := next((place for place in places if place.is_file()), None):
        return _with_words(path, found, cloud)
    if beside is None:
        return cloud
    table = beside / "labels" / f"{path.stem}.npy"
    if table.is_file():
        return replace(cloud, label=_of_npy(path, table, len(cloud)))
    classes, instances = (beside / name / f"{path.stem}.bin" for name in LABEL_FOLDERS[1:])
    if classes.is_file():
        cloud = replace(cloud, label=_of_mask(path, classes, len(cloud)))
    if instances.is_file():
        cloud = replace(cloud, instance=_of_mask(path, instances, len(cloud)))
    return cloud


def label_files(path: Path) -> list[Path]:
    """Name the files of labels of a scan that there are."""
    stem = path.name.removesuffix(".pcd.bin").removesuffix(".bin")
    places = [path.with_suffix(".label"), path.with_name(f"{stem}_lidarseg.bin")]
    if path.parent.name in SCAN_FOLDERS:
        root = path.parent.parent
        places += [root / "labels" / f"{stem}{suffix}" for suffix in (".label", ".npy")]
        places += [root / name / f"{stem}.bin" for name in LABEL_FOLDERS[1:]]
    # is_file of a Path ends at names that are longer than a file system takes.
    return [place for place in places if os.path.isfile(place)]  # noqa: PTH113


def check_count(scan: Path, companion: Path, points: int, labels: int) -> None:
    """Raise ReadError where a scan and its labels are of different numbers of points."""
    if points != labels:
        raise ReadError(
            f"{companion}: {labels} labels for the {points} points of {scan.name}; they are not of "
            "one scan"
        )


def _with_words(scan: Path, companion: Path, cloud: PointCloud) -> PointCloud:
    size = companion.stat().st_size
    if size == len(cloud) and size:
        return replace(cloud, label=np.fromfile(companion, np.uint8).astype(np.int64))
    if size % 4:
        raise ReadError(
            f"{companion}: {size} bytes are no labels of the {len(cloud)} points of {scan.name}, "
            "which take 4 bytes each, or 1"
        )
    check_count(scan, companion, len(cloud), size // 4)
    word = np.fromfile(companion, dtype="<u4").astype(np.int64)
    return replace(cloud, label=word & (1 << _HALF) - 1, instance=word >> _HALF)


def _of_npy(scan: Path, companion: Path, points: int) -> np.ndarray:
    with companion.open("rb") as stream:
        try:
            label = npy.load(stream, companion.stat().st_size)
        except ValueError as error:
            raise ReadError(f"{companion}: {error}") from error
    if label.dtype.kind not in "iu":
        raise ReadError(f"{companion}: labels are whole numbers, found {label.dtype}")
    check_count(scan, companion, points, label.size)
    return label.reshape(-1).astype(np.int64)


def _of_mask(scan: Path, companion: Path, points: int) -> np.ndarray:
    size = companion.stat().st_size
    if size % 8:
        raise ReadError(f"{companion}: {size} bytes are no labels of 8 bytes each")
    check_count(scan, companion, points, size // 8)
    return np.fromfile(companion, "<i8").astype(np.int64)
