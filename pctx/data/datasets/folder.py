"""FolderDataset: the scans of a folder, and which of them are for what."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import final

from pctx.data.cards import card as named_card
from pctx.data.cards import list_cards
from pctx.data.datasets.places import StoredDataset
from pctx.data.io.formats import READABLE, find_scans, read
from pctx.data.labels import SPLITS, Card
from pctx.geometry.points import PointCloud

log = logging.getLogger(__name__)

CARD = "card.yaml"
EVERY = 5
"""Every fifth file is for validation where nothing says which."""

Patterns = Mapping[str, Sequence[str] | str]


@final
class FolderDataset(StoredDataset):
    """Every readable scan below a folder.

    Which scans make a split is told by the first of these: `splits`; the card's splits, where any
    of their patterns is met here; subfolders `train`, `val`, `test`, at any depth; or every fifth
    file in sorted order is for validation and the others for training.

    Args:
        root: the folder.
        card: the dataset's card, its path, or the name of one that pctx has. None is `card.yaml` in
            the folder.
        splits: glob patterns relative to the folder (`**/area_5*.las`, or a folder's name), by
            split.

    Raises:
        ValueError: the folder is missing or holds no readable scan, or there is no card.
    """

    def __init__(
        self,
        root: str | Path,
        card: Card | str | Path | None = None,
        splits: Patterns | None = None,
    ) -> None:
        self.root = Path(root).expanduser()
        if not self.root.is_dir():
            what = (
                "this is a file; give its folder"
                if self.root.is_file()
                else "no such folder of scans"
            )
            raise ValueError(f"{self.root}: {what}")
        if card is None and not (self.root / CARD).is_file():
            raise ValueError(
                f"{self.root}: no {CARD} in it; `pctx card {self.root}` writes one, or name one "
                f"with data.card=… ({', '.join(list_cards())})"
            )
        given = self.root / CARD if card is None else card
        self.card = given if isinstance(given, Card) else named_card(given)
        files = find_scans(self.root)
        if not files:
            raise ValueError(
                f"{self.root}: no scan below it; these are read: {', '.join(READABLE)}"
            )
        self._splits = self._assign([path.relative_to(self.root) for path in files], splits)

    def read(self, scan: str) -> PointCloud:
        """Read a scan; its label holds raw ids, or is None."""
        return read(self.root / scan)

    def _assign(self, files: list[Path], splits: Patterns | None) -> dict[str, list[str]]:
        if splits is not None and not isinstance(splits, Mapping):
            raise ValueError(f"splits must be {{split: [patterns]}}, found {splits!r}")
        if splits:
            return self._match(files, splits)
        if any(found := self._match(files, self.card.splits).values()):
            return dict(zip(self.card.splits, found, strict=True))
        where = {f: split_folder(f.as_posix()) for f in files}
        folders = {name: [f.as_posix() for f in files if where[f] == name] for name in SPLITS}
        if found_folders := {name: scans for name, scans in folders.items() if scans}:
            return found_folders
        names = [f.as_posix() for f in files]
        if len(names) == 1:
            log.warning("%s: one file, %s, is for training and validation", self.root, names[0])
            return {"train": names, "val": names}
        log.info("%s: nothing says which files are for what; every fifth is for val", self.root)
        train = [name for i, name in enumerate(names) if i % EVERY]
        return {"train": train, "val": names[::EVERY]}

    def _match(self, files: list[Path], splits: Patterns) -> dict[str, list[str]]:
        names = {file.as_posix() for file in files}
        found = {}
        for split, patterns in splits.items():
            met: set[str] = set()
            for pattern in [patterns] if isinstance(patterns, str) else patterns:
                met |= {pattern} if pattern in names else self._below(pattern)
            found[split] = [file.as_posix() for file in files if file.as_posix() in met]
        return found

    def _below(self, pattern: str) -> set[str]:
        """Name the files that a pattern meets, and those in the folders that it meets."""
        try:
            met = list(self.root.glob(pattern))
        except (ValueError, NotImplementedError, IndexError) as error:
            raise ValueError(
                f"{pattern!r} is no pattern relative to {self.root}, such as '**/*.laz'"
            ) from error
        files = {file for path in met for file in (path.rglob("*") if path.is_dir() else [path])}
        return {file.relative_to(self.root).as_posix() for file in files}


def split_folder(scan: str) -> str | None:
    """Give the first folder of a scan's relative path that is called as a split is."""
    return next((part for part in scan.split("/")[:-1] if part in SPLITS), None)
