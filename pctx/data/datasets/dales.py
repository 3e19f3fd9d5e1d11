"""DALESDataset: the aerial tiles of DALES."""

from __future__ import annotations

from pathlib import Path
from typing import final

from pctx.data.cards import card as named_card
from pctx.data.datasets.places import StoredDataset, find_root
from pctx.data.io.formats import find_scans, read
from pctx.data.labels import Card
from pctx.geometry.points import PointCloud

_RELEASED = ("dales_las", "dales_ply", "DALESObjects")


@final
class DALESDataset(StoredDataset):
    """Tiles named by their paths below the root, such as "train/5080_54435.las".

    Args:
        root: the folder of `train` and `test`, or the one above it.
        card: dales, or another card whose splits name folders.

    Raises:
        ValueError: the folder is missing or holds no tiles.
    """

    def __init__(self, root: str | Path, card: Card | str | Path = "dales") -> None:
        self.root = find_root(root, _RELEASED, "train/*.*")
        self.card = card if isinstance(card, Card) else named_card(card)
        self._splits = {
            name: [
                path.relative_to(self.root).as_posix()
                for folder in folders
                if (self.root / folder).is_dir()
                for path in find_scans(self.root / folder)
            ]
            for name, folders in self.card.splits.items()
        }

    def read(self, scan: str) -> PointCloud:
        """Read a tile; its label holds the raw ids 0 to 8."""
        return read(self.root / scan)
