"""Toronto3DDataset: the four sections of Toronto-3D."""

from __future__ import annotations

from pathlib import Path
from typing import final

from pctx.data.cards import card as named_card
from pctx.data.datasets.places import StoredDataset, find_root
from pctx.data.io.formats import read
from pctx.data.labels import Card
from pctx.geometry.points import PointCloud


@final
class Toronto3DDataset(StoredDataset):
    """Sections named "L001.ply" to "L004.ply"; coordinates are UTM with a float64 origin.

    Args:
        root: the folder of the sections, or the one above it.
        card: toronto3d, or another card whose splits name the files.

    Raises:
        ValueError: the folder is missing or holds no section.
    """

    def __init__(self, root: str | Path, card: Card | str | Path = "toronto3d") -> None:
        self.root = find_root(root, ("Toronto_3D",), "L00*.ply")
        self.card = card if isinstance(card, Card) else named_card(card)
        self._splits = {
            name: [
                path.name
                for pattern in patterns
                for path in sorted(self.root.glob(pattern.removeprefix("**/")))
            ]
            for name, patterns in self.card.splits.items()
        }

    def read(self, scan: str) -> PointCloud:
        """Read a section; its label holds the raw ids 0 to 8."""
        return read(self.root / scan)
