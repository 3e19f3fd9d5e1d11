"""NuScenesDataset: the key frames of nuScenes with the labels of lidarseg, found by its tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import numpy as np

from pctx.data.cards import card as named_card
from pctx.data.datasets.places import StoredDataset, find_root, scan_files
from pctx.data.io.errors import ReadError
from pctx.data.io.formats import read
from pctx.data.labels import Card
from pctx.geometry.points import PointCloud

_LIDAR = "samples/LIDAR_TOP/"
_MINI = "mini_"
"""What the splits of v1.0-mini begin with; they are called train and val here."""


@final
class NuScenesDataset(StoredDataset):
    """Key frames of the lidar, named by their paths below the root, in the scanner's frame.

    Args:
        root: the folder of `samples` and of the tables.
        card: nuscenes, or another card whose splits name scenes.
        version: the folder of the tables. None takes v1.0-trainval and v1.0-test, those that are
            there, or else v1.0-mini.

    Raises:
        ValueError: the folder or a table is missing.
    """

    def __init__(
        self,
        root: str | Path,
        card: Card | str | Path = "nuscenes",
        version: str | None = None,
    ) -> None:
        self.root = find_root(root, (), "v1.0-*")
        self.card = card if isinstance(card, Card) else named_card(card)
        frames: list[tuple[str, int, str]] = []
        self._labels: dict[str, str] = {}
        versions = _versions(self.root, version)
        for folder in versions:
            found, labels = _frames(folder)
            frames += found
            self._labels |= labels
        prefix = _MINI if [v.name for v in versions] == ["v1.0-mini"] else ""
        self._splits = {}
        for name in ("train", "val", "test"):
            scenes = set(self.card.splits.get(prefix + name, ()))
            self._splits[name] = [scan for scene, _, scan in sorted(frames) if scene in scenes]

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits that hold scans."""
        return tuple(name for name, scans in self._splits.items() if scans)

    def read(self, scan: str) -> PointCloud:
        """Read a key frame; its label holds the raw ids 0 to 31, or is None.

        Raises:
            ReadError: the labels are of another number of points.
        """
        cloud = read(self.root / scan)
        if scan not in self._labels:
            return cloud
        path = self.root / self._labels[scan]
        label = np.fromfile(path, dtype=np.uint8)
        if len(label) != len(cloud):
            raise ReadError(f"{path}: {len(label)} labels for the {len(cloud)} points of {scan}")
        return replace(cloud, label=label.astype(np.int64))

    def files(self, scan: str) -> list[Path]:
        """Name the files that `read` reads."""
        labels = [self.root / self._labels[scan]] if scan in self._labels else []
        return [*scan_files(self.root / scan), *labels]


def _versions(root: Path, version: str | None) -> list[Path]:
    if version is not None:
        if not (root / version).is_dir():
            there = ", ".join(sorted(path.name for path in root.glob("v1.0-*")))
            raise ValueError(f"{root}: no tables {version}; there are {there}")
        return [root / version]
    full = [root / name for name in ("v1.0-trainval", "v1.0-test")]
    return [folder for folder in full if folder.is_dir()] or sorted(root.glob("v1.0-mini"))


def _frames(tables: Path) -> tuple[list[tuple[str, int, str]], dict[str, str]]:
    """Give (scene, time, scan) of the key frames, and the label file of each scan that has one."""
    scenes = {row["token"]: row["name"] for row in _rows(tables / "scene.json")}
    samples = {row["token"]: row for row in _rows(tables / "sample.json")}
    # A gigabyte of rows, of which one in eighty is wanted.
    data = list(_rows(tables / "sample_data.json", _is_key_frame))
    frames = []
    for row in data:
        sample = samples[row["sample_token"]]
        frames.append((scenes[sample["scene_token"]], int(row["timestamp"]), row["filename"]))
    scans = {row["token"]: row["filename"] for row in data}
    lidarseg = tables / "lidarseg.json"
    rows = _rows(lidarseg) if lidarseg.is_file() else iter(())
    labels = {
        scans[row["sample_data_token"]]: row["filename"]
        for row in rows
        if row["sample_data_token"] in scans
    }
    return frames, labels


def _is_key_frame(row: dict[str, Any]) -> bool:
    return bool(row["is_key_frame"]) and str(row["filename"]).startswith(_LIDAR)


def _rows(
    path: Path, wanted: Callable[[dict[str, Any]], bool] = lambda row: True
) -> Iterator[dict[str, Any]]:
    """Read the rows of a table; those that are not wanted are dropped as they are read."""
    if not path.is_file():
        raise ValueError(f"{path}: this table of nuScenes is missing")
    with path.open(encoding="utf-8") as stream:
        try:
            rows = json.load(stream, object_hook=lambda row: row if wanted(row) else None)
        except (ValueError, KeyError) as error:
            raise ValueError(f"{path}: not a table of nuScenes ({error})") from error
    return (row for row in rows if row is not None)
