"""S3DISDataset: the rooms of S3DIS, as released or prepared.

n points.
"""

from __future__ import annotations

from pathlib import Path
from typing import final

import numpy as np

from pctx.data.cards import card as named_card
from pctx.data.datasets.arrays import read_arrays
from pctx.data.datasets.places import StoredDataset, find_root, scan_files
from pctx.data.io.errors import ReadError
from pctx.data.io.formats import read
from pctx.data.labels import Card
from pctx.geometry.points import PointCloud

AREAS = (1, 2, 3, 4, 5, 6)
_REST = "clutter"
"""The class of things whose file bears no other class's name, such as `stairs_1.txt`."""
_INSIDE = ("Stanford3dDataset_v1.2_Aligned_Version", "Stanford3dDataset_v1.2", "points")
_TABLES = (".npy", ".bin")
"""Rooms that are one file: x, y, z, colours, and the class number in it or in a mask beside."""
_NOT_TEXT = bytes(c for c in range(32) if c not in b"\t\n\r")
_BLANKS = bytes.maketrans(_NOT_TEXT, b" " * len(_NOT_TEXT))
"""Turns control characters into blanks: one stands between two numbers of Area_5/hallway_6."""


@final
class S3DISDataset(StoredDataset):
    """Rooms named "Area_1/office_1"; `instance` numbers the things of a room.

    Args:
        root: the folder of `Area_1` to `Area_6`, or of files `Area_1_office_1.npy`, or the one
            above it (mmdetection3d's folder of `points` and `semantic_mask`).
        card: s3dis, or another card with its class names.
        test_area: the area of the split `val`; the others are for training. None does as the card
            says, which is area 5.

    Raises:
        ValueError: the folder is missing, or there is no such area.
    """

    def __init__(
        self,
        root: str | Path,
        card: Card | str | Path = "s3dis",
        test_area: int | None = None,
    ) -> None:
        if test_area is not None and test_area not in AREAS:
            raise ValueError(f"data.test_area must be 1 to 6, found {test_area}")
        self.root = find_root(root, _INSIDE, "Area_*")
        self.card = card if isinstance(card, Card) else named_card(card)
        areas = self.card.splits
        if test_area is not None:
            train = tuple(f"Area_{area}" for area in AREAS if area != test_area)
            areas = {"train": train, "val": (f"Area_{test_area}",)}
        self._splits = {
            name: [room for area in listed for room in self._rooms(area)]
            for name, listed in areas.items()
        }

    def read(self, scan: str) -> PointCloud:
        """Read a room; its label holds class numbers 0 to 12."""
        path = self.root / scan
        if path.suffix in _TABLES:
            return read(path)
        if (path / "coord.npy").is_file():
            return read_arrays(path, self.card.labels)
        return self._read_annotations(path / "Annotations")

    def files(self, scan: str) -> list[Path]:
        """Name the files that `read` reads."""
        return scan_files(self.root / scan) or sorted((self.root / scan).glob("Annotations/*.txt"))

    def _rooms(self, area: str) -> list[str]:
        rooms = [path.parent for path in self.root.glob(f"{area}/*/Annotations")]
        rooms += (path.parent for path in self.root.glob(f"{area}/*/coord.npy"))
        for suffix in _TABLES:
            rooms += self.root.glob(f"{area}_*{suffix}")
        return sorted({path.relative_to(self.root).as_posix() for path in rooms})

    def _read_annotations(self, folder: Path) -> PointCloud:
        numbers = dict(zip(self.card.labels.names, self.card.labels.raw, strict=True))
        tables, label, instance = [], [], []
        for number, file in enumerate(sorted(folder.glob("*.txt"))):
            table = _read_thing(file)
            name = file.stem.rpartition("_")[0]
            raw = numbers.get(name, numbers.get(_REST, (self.card.labels.unlabeled,)))[0]
            tables.append(table)
            label.append(np.full(len(table), raw, dtype=np.int64))
            instance.append(np.full(len(table), number, dtype=np.int64))
        if not tables:
            raise ReadError(f"{folder}: it holds no .txt of a thing")
        points = np.concatenate(tables)
        return PointCloud.from_xyz(
            points[:, :3],
            color=points[:, 3:].clip(0, 255).astype(np.uint8),
            label=np.concatenate(label),
            instance=np.concatenate(instance),
        )


def _read_thing(file: Path) -> np.ndarray:
    """Read x, y, z, red, green, blue: (n, 6) float64."""
    words = file.read_bytes().translate(_BLANKS).split()
    try:
        numbers = np.array(words, dtype=np.float64)
    except ValueError as error:
        raise ReadError(f"{file}: it should hold numbers only ({error})") from error
    if len(numbers) % 6:
        raise ReadError(f"{file}: {len(numbers)} numbers are no rows of x, y, z, red, green, blue")
    return numbers.reshape(-1, 6)
