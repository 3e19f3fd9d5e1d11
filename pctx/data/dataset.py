"""ScanDataset: where a dataset's scans are and how one is read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

from pctx.data.labels import SPLITS, Card
from pctx.geometry.points import PointCloud


class ScanDataset(ABC):
    """The scans of a dataset by split. Final classes say where files lie and how to read one."""

    card: Card

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits."""
        return SPLITS

    @abstractmethod
    def scans(self, split: str) -> list[str]:
        """Name the scans of a split, in a fixed order.

        Raises:
            ValueError: no such split, or no scan is in it; the message lists those there are.
        """

    @abstractmethod
    def read(self, scan: str) -> PointCloud:
        """Read one scan by a name from `scans`; its `label` holds raw ids, or is None."""

    def files(self, scan: str) -> list[Path]:
        """Name the files there are that `read` reads: a cache made of them counts while they last.

        Here none, as of scans that are drawn from their names.
        """
        return []
