"""ScanNetDataset: the scenes of ScanNet v2, as released or prepared, with 20 or 200 classes.

n vertices.
"""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import numpy as np

from pctx.data.cards import card as named_card
from pctx.data.datasets.arrays import read_arrays
from pctx.data.datasets.places import StoredDataset, scan_files
from pctx.data.io.errors import ReadError
from pctx.data.io.formats import read
from pctx.data.labels import Card
from pctx.geometry.points import PointCloud

_FOLDERS = ("scans", "scans_test", "train", "val", "test")
_NAMES = "scannetv2-labels.combined.tsv"
_MESH = "_vh_clean_2"
_COLUMNS = {"scannet": "nyu40id", "scannet200": "id"}
"""The column of the table of names that holds the raw ids of a card."""


@final
class ScanNetDataset(StoredDataset):
    """Scenes named "scene0000_00", from the vertices of the clean mesh.

    The splits list the benchmark's scenes; those that are not there are passed over.

    Args:
        root: the folder of `scans` (released), or of `train`, `val` and `test` (prepared).
        card: scannet (20 classes, raw ids of NYU40) or scannet200 (200 classes, ScanNet's ids).

    Raises:
        ValueError: the folder is missing or holds no scene, or the card is neither.
    """

    def __init__(self, root: str | Path, card: Card | str | Path = "scannet") -> None:
        self.card = card if isinstance(card, Card) else named_card(card)
        if self.card.name not in _COLUMNS:
            raise ValueError(
                f"data.card must be one of {', '.join(_COLUMNS)}, found {self.card.name}"
            )
        self.root = Path(root).expanduser()
        self._place = {
            path.name: path
            for folder in _FOLDERS
            for path in sorted((self.root / folder).glob("scene*"))
            if path.is_dir()
        }
        if not self._place:
            raise ValueError(
                f"{self.root}: no folder scene… in {', '.join(_FOLDERS)}; "
                "data.root is the folder above these"
            )
        self._splits = {
            name: [scene for scene in scenes if scene in self._place]
            for name, scenes in self.card.splits.items()
        }

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits that hold scenes."""
        return tuple(name for name, scenes in self._splits.items() if scenes)

    def read(self, scan: str) -> PointCloud:
        """Read a scene; its label holds raw ids, or is None; `instance` is -1 where no thing is.

        Raises:
            ReadError: a file is missing, broken or of another number of vertices.
        """
        folder = self._place[scan]
        if (folder / "coord.npy").is_file():
            segment = "segment200" if self.card.name == "scannet200" else None
            return read_arrays(folder, self.card.labels, segment)
        cloud = read(folder / f"{scan}{_MESH}.ply")
        things = folder / f"{scan}.aggregation.json"
        if things.is_file():
            segments = folder / f"{scan}{_MESH}.0.010000.segs.json"
            label, instance = self._label_things(segments, things)
            if len(label) != len(cloud):
                raise ReadError(f"{things}: segments of {len(label)} vertices, not {len(cloud)}")
            cloud = replace(cloud, label=label, instance=instance)
        labelled = folder / f"{scan}{_MESH}.labels.ply"
        if self.card.name == "scannet" and labelled.is_file():
            label_of = read(labelled).label
            if label_of is None or len(label_of) != len(cloud):
                raise ReadError(f"{labelled}: it has no label for each of {len(cloud)} vertices")
            cloud = replace(cloud, label=label_of)
        return cloud

    def files(self, scan: str) -> list[Path]:
        """Name the files that `read` reads."""
        folder = self._place[scan]
        released = sorted(folder.glob(f"{scan}{_MESH}*")) + sorted(folder.glob(f"{scan}.*.json"))
        names = self.root / _NAMES
        return scan_files(folder) or [*released, *([names] if names.is_file() else [])]

    def _label_things(self, segments: Path, things: Path) -> tuple[np.ndarray, np.ndarray]:
        """Give raw ids (n,) and numbers of things (n,), -1 where there is none."""
        segment = np.array(_json(segments)["segIndices"], dtype=np.int64)
        raw_ids = self._raw_ids()
        largest = int(segment.max(initial=-1)) + 1
        label_of = np.zeros(largest, dtype=np.int64)
        thing_of = np.full(largest, -1, dtype=np.int64)
        for thing in _json(things)["segGroups"]:
            name = thing["label"]
            if name not in raw_ids:
                raise ReadError(f"{things}: {name!r} is not in {_NAMES}")
            members = np.array(thing["segments"], dtype=np.int64)
            members = members[members < largest]
            label_of[members], thing_of[members] = raw_ids[name], int(thing["objectId"])
        return label_of[segment], thing_of[segment]

    def _raw_ids(self) -> dict[str, int]:
        path = self.root / _NAMES
        if not path.is_file():
            raise ReadError(f"{path} is missing; it says which raw id the name of a thing has")
        with path.open(newline="", encoding="utf-8") as stream:
            rows = csv.DictReader(stream, delimiter="\t")
            return {row["raw_category"]: int(row[_COLUMNS[self.card.name]]) for row in rows}


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ReadError(f"{path}: {error}") from error
