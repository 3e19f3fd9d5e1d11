"""StoredDataset: scans that are files below a folder; and where that folder is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pctx.data.dataset import ScanDataset
from pctx.data.io.companions import label_files


class StoredDataset(ScanDataset):
    """Scans named by their paths below `root`. Final classes list them and say how one is read."""

    root: Path
    _splits: Mapping[str, Sequence[str]]

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits."""
        return tuple(self._splits)

    def scans(self, split: str) -> list[str]:
        """Name the scans of a split, in a fixed order.

        Raises:
            ValueError: no such split, or no scan is in it; the message lists those there are.
        """
        sizes = ", ".join(f"{name} ({len(scans)})" for name, scans in self._splits.items())
        if split not in self._splits:
            raise ValueError(f"{self.root}: no split {split!r}; there are {sizes}")
        if not self._splits[split]:
            raise ValueError(
                f"{self.root}: no scan is in the split {split!r}; there are {sizes}; `splits` of "
                "the card, or data.splits, name them"
            )
        return list(self._splits[split])

    def files(self, scan: str) -> list[Path]:
        """Name the files that `read` reads."""
        return scan_files(self.root / scan)


def find_root(root: str | Path, inside: Sequence[str], needs: str) -> Path:
    """Find the folder that holds what a pattern meets: `root`, or one of those inside it.

    Args:
        root: the folder that the user names.
        inside: names of folders below it, as archives unpack.
        needs: the pattern.

    Raises:
        ValueError: there is none.
    """
    given = Path(root).expanduser()
    if not given.is_dir():
        raise ValueError(f"{given}: no such folder; data.root is where the dataset was unpacked")
    places = [given, *(given / name for name in inside)]
    for place in places:
        if place.is_dir() and next(place.glob(needs), None) is not None:
            return place
    below = f", nor in {', '.join(inside)} below it" if inside else ""
    raise ValueError(f"{given}: it holds no {needs}{below}; the card says what should lie there")


def scan_files(path: Path) -> list[Path]:
    """Name the files of one scan: itself and its labels, or the arrays of its folder."""
    return sorted(path.glob("*.npy")) if path.is_dir() else [path, *label_files(path)]
