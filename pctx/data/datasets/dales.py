"""DALESDataset: the aerial tiles of DALES."""

from __future__ import annotations

from pathlib import Path
from typing import final

from pctx.data.cards import card as named_card
from pctx.data.dataset import ScanDataset
from pctx.data.datasets.places import find_root, scan_files, take
from pctx.data.io.formats import find_scans, read
from pctx.data.labels import Card
from pctx.geometry.points import PointCloud

_RELEASED = ("dales_las", "dales_ply", "DALESObjects")


@final
class DALESDataset(ScanDataset):
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

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits."""
        return tuple(self._splits)

    def scans(self, split: str) -> list[str]:
        """Name the tiles of a split, sorted.

        Raises:
            ValueError: no such split, or no scan is in it; the message lists those there are.
        """
        return take(self._splits, split, self.root)

    def read(self, scan: str) -> PointCloud:
        """Read a tile; its label holds the raw ids 0 to 8."""
        return read(self.root / scan)

    def files(self, scan: str) -> list[Path]:
        """Name the files that `read` reads."""
        return scan_files(self.root / scan)
