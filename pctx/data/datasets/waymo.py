"""WaymoDataset: frames of the Waymo Open Dataset, from prepared arrays."""

from __future__ import annotations

from pathlib import Path
from typing import final

from pctx.data.cards import card as named_card
from pctx.data.datasets.arrays import read_arrays
from pctx.data.datasets.places import StoredDataset, find_root
from pctx.data.io.formats import read
from pctx.data.labels import Card
from pctx.geometry.points import PointCloud


@final
class WaymoDataset(StoredDataset):
    """Frames named "training/SEGMENT/TIME", in the vehicle's frame.

    Of the two kinds of prepared files, folders of arrays hold class numbers (raw id less 1) and
    `.npz` files raw ids; `read` gives raw ids of both.

    Args:
        root: the folder of `training`, `validation` and `testing`.
        card: waymo, or another card whose splits name folders.

    Raises:
        ValueError: the folder is missing or holds none of them.
    """

    def __init__(self, root: str | Path, card: Card | str | Path = "waymo") -> None:
        self.root = find_root(root, ("waymo",), "*ing/*")
        self.card = card if isinstance(card, Card) else named_card(card)
        self._splits = {
            name: [scan for folder in folders for scan in self._frames(folder)]
            for name, folders in self.card.splits.items()
        }

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits that hold scans."""
        return tuple(name for name, scans in self._splits.items() if scans)

    def read(self, scan: str) -> PointCloud:
        """Read a frame; its label holds raw ids, or is None."""
        path = self.root / scan
        return read(path) if path.suffix == ".npz" else read_arrays(path, self.card.labels)

    def _frames(self, folder: str) -> list[str]:
        found = [path.parent for path in self.root.glob(f"{folder}/*/*/coord.npy")]
        found += self.root.glob(f"{folder}/*/*.npz")
        return sorted(path.relative_to(self.root).as_posix() for path in found)
