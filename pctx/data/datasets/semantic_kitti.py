"""SemanticKittiDataset: the scans of SemanticKITTI, alone or with those before them.

n points.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import final

import numpy as np

from pctx.data.cards import card as named_card
from pctx.data.datasets.places import StoredDataset, find_root, scan_files
from pctx.data.io.formats import read
from pctx.data.labels import Card
from pctx.geometry.points import PointCloud

_MOTION = ("poses.txt", "calib.txt")


@final
class SemanticKittiDataset(StoredDataset):
    """Scans named "SEQUENCE/NUMBER", in the scanner's frame.

    With `num_scans` above 1, a scan also holds the points of those before it in the sequence,
    moved into its frame: its own points first, then those of the youngest. `extra["age"]` says how
    many scans ago a point was seen, 0 for the scan's own.

    Args:
        root: the folder of `sequences`, one above it, or itself.
        card: semantic_kitti (19 classes), semantic_kitti_multi (25), or another card.
        num_scans: scans together. The multi-scan benchmark usually has 5.
        stride: every so many scans back.
        label_past: whether the points of scans before have labels too. Where not, they have the
            card's `unlabeled`, and only a scan's own points are learned and counted.

    Raises:
        ValueError: the folder is missing, a number is below 1, or poses are missing.
    """

    def __init__(
        self,
        root: str | Path,
        card: Card | str | Path = "semantic_kitti",
        num_scans: int = 1,
        stride: int = 1,
        label_past: bool = False,
    ) -> None:
        for name, value in (("num_scans", num_scans), ("stride", stride)):
            if value < 1:
                raise ValueError(f"data.{name} must be 1 or more, found {value}")
        needs = "*/velodyne"
        self.root = find_root(root, ("sequences", "dataset/sequences", "dataset"), needs)
        self.card = card if isinstance(card, Card) else named_card(card)
        self.num_scans, self.stride, self.label_past = num_scans, stride, label_past
        self._splits = {
            name: [scan for pattern in patterns for scan in self._match(pattern)]
            for name, patterns in self.card.splits.items()
        }
        self._poses = {}
        if num_scans > 1:
            used = {scan.split("/")[0] for scans in self._splits.values() for scan in scans}
            self._poses = {sequence: read_poses(self.root / sequence) for sequence in sorted(used)}

    def read(self, scan: str) -> PointCloud:
        """Read a scan, and those before it; its label holds raw ids, or is None."""
        sequence, _, number = scan.partition("/")
        newest = read(self._path(sequence, number))
        if self.num_scans == 1:
            return newest
        clouds = [replace(newest, extra={"age": np.zeros(len(newest), dtype=np.float32)})]
        for before in self._before(scan):
            path = self._path(sequence, f"{before:06d}")
            clouds.append(self._moved(read(path), sequence, before, int(number)))
        return _joined(clouds)

    def files(self, scan: str) -> list[Path]:
        """Name the files that `read` reads."""
        sequence, _, number = scan.partition("/")
        earlier = [self._path(sequence, f"{before:06d}") for before in self._before(scan)]
        found = [f for path in (self._path(sequence, number), *earlier) for f in scan_files(path)]
        return found + [self.root / sequence / name for name in _MOTION if earlier]

    def _before(self, scan: str) -> list[int]:
        """Give the numbers of the scans that are put to this one, the youngest first."""
        sequence, _, number = scan.partition("/")
        found: list[int] = []
        for step in range(1, self.num_scans):
            before = int(number) - step * self.stride
            if before < 0 or not self._path(sequence, f"{before:06d}").is_file():
                break
            found.append(before)
        return found

    def _match(self, pattern: str) -> list[str]:
        """Give the scans that a pattern of the card meets below the folder of the sequences."""
        met = sorted(self.root.glob(pattern.removeprefix("**/")))
        return [f"{path.parent.parent.name}/{path.stem}" for path in met]

    def _path(self, sequence: str, number: str) -> Path:
        return self.root / sequence / "velodyne" / f"{number}.bin"

    def _moved(self, cloud: PointCloud, sequence: str, source: int, target: int) -> PointCloud:
        poses = self._poses[sequence]
        if target >= len(poses):
            raise ValueError(
                f"{self.root / sequence}/poses.txt: {len(poses)} poses, scan {target} has none"
            )
        motion = np.linalg.inv(poses[target]) @ poses[source]
        coord = cloud.coord @ motion[:3, :3].T + motion[:3, 3]
        label = cloud.label
        if label is not None and not self.label_past:
            label = np.full_like(label, self.card.labels.unlabeled)
        age = np.full(len(cloud), target - source, dtype=np.float32)
        return replace(cloud, coord=coord.astype(np.float32), label=label, extra={"age": age})


def read_poses(folder: Path) -> np.ndarray:
    """Read where the scanner was: (n, 4, 4) float64, from its frame to that of the first scan.

    `poses.txt` has the camera's poses, and `Tr` of `calib.txt` leads from the scanner to the
    camera.

    Raises:
        ValueError: a file is missing or is none of these.
    """
    poses, calibration = (folder / name for name in _MOTION)
    rows = _numbers(poses, poses.read_text().split())
    lines = dict(line.partition(":")[::2] for line in calibration.read_text().splitlines())
    if "Tr" not in lines:
        raise ValueError(f"{calibration}: it has no line Tr")
    to_camera = _numbers(calibration, lines["Tr"].split())[0]
    return np.linalg.inv(to_camera) @ rows @ to_camera


def _numbers(path: Path, words: list[str]) -> np.ndarray:
    """Give matrices (n, 4, 4) of three rows each, the fourth added."""
    try:
        rows = np.array(words, dtype=np.float64).reshape(-1, 3, 4)
    except ValueError as error:
        raise ValueError(f"{path}: poses are rows of 12 numbers ({error})") from error
    last = np.broadcast_to(np.array([0.0, 0, 0, 1]), (len(rows), 1, 4))
    return np.concatenate([rows, last], axis=1)


def _joined(clouds: list[PointCloud]) -> PointCloud:
    """Put clouds of one frame one after another, with the fields that all of them have."""
    fields = {}
    for name in ("intensity", "label", "instance"):
        columns = [getattr(cloud, name) for cloud in clouds]
        if all(column is not None for column in columns):
            fields[name] = np.concatenate(columns)
    return PointCloud(
        coord=np.concatenate([cloud.coord for cloud in clouds]),
        extra={"age": np.concatenate([cloud.extra["age"] for cloud in clouds])},
        **fields,
    )
