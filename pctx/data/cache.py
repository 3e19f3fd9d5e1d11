"""CachedDataset: scans kept as plain columns, which are mapped into memory and never copied.

n points.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
from torch.utils.data import DataLoader, Dataset

from pctx.data.dataset import ScanDataset
from pctx.data.io.atomic import replacing
from pctx.geometry.points import PointCloud

SUFFIX = ".scan"

_MAGIC = b"pctxscan"
_READERS = 1
"""Rises when a reader gives something else of the same file, so that caches are made anew."""
_LINE = 64
"""Bytes: columns start at multiples of it."""
_FIELDS = ("coord", "color", "intensity", "normal", "label", "instance")
_EXTRA = "extra."

log = logging.getLogger(__name__)


@final
class CachedDataset(ScanDataset):
    """A dataset that reads from a folder what `keep` put there, and the rest from its files.

    What was kept counts as long as the files it was read from have the same names, sizes and times,
    the settings are the same and the readers give the same. A file of the folder holds one scan:
    `pctxscan`, the length of a header in 8 bytes, the header in JSON, columns.

    Args:
        dataset: what is cached.
        folder: the cache.
        settings: of the dataset, beside where its files lie.
    """

    def __init__(
        self, dataset: ScanDataset, folder: Path, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.dataset, self.folder = dataset, folder
        self.settings = dict(settings or {})
        self.card = dataset.card

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits."""
        return self.dataset.splits

    def scans(self, split: str) -> list[str]:
        """Name the scans of a split.

        Raises:
            ValueError: as the dataset's own.
        """
        return self.dataset.scans(split)

    def files(self, scan: str) -> list[Path]:
        """Name the files that a scan is read from."""
        return self.dataset.files(scan)

    def read(self, scan: str) -> PointCloud:
        """Map a scan into memory, where it is kept; its columns cannot be written to."""
        kept = load(self.path(scan), self._key(scan))
        return self.dataset.read(scan) if kept is None else kept

    def has(self, scan: str) -> bool:
        """Whether a scan is kept, and its files are as they were."""
        return load(self.path(scan), self._key(scan)) is not None

    def keep(self, scan: str) -> None:
        """Put a scan into the folder, where it is not there already.

        Several processes may do so at once: a file is written beside and renamed.
        """
        if not self.has(scan):
            save(self.path(scan), self.dataset.read(scan), self._key(scan))

    def known_counts(self, scans: Iterable[str], grid_size: float) -> dict[str, int]:
        """Give the voxels of those scans that `keep_counts` got, and whose files are as before."""
        kept = self._counts(grid_size)
        found = ((scan, kept[scan]) for scan in scans if scan in kept)
        return {scan: count for scan, (key, count) in found if key == _in_json(self._key(scan))}

    def keep_counts(self, counts: Mapping[str, int], grid_size: float) -> None:
        """Write down the voxels of scans, where the folder can be written to."""
        kept = self._counts(grid_size)
        kept.update((scan, [self._key(scan), count]) for scan, count in counts.items())
        try:
            with replacing(self._counts_path(grid_size), overwrite=True) as beside:
                beside.write_text(json.dumps(kept))
        except OSError as error:
            log.debug("voxels of %s are not kept: %s", self.folder, error)

    def path(self, scan: str) -> Path:
        """Name the file of a scan."""
        return self.folder / f"{scan}{SUFFIX}"

    def _counts(self, grid_size: float) -> dict[str, list[Any]]:
        """Read what `keep_counts` wrote: key and count by scan."""
        try:
            kept: dict[str, list[Any]] = json.loads(self._counts_path(grid_size).read_text())
        except (OSError, ValueError):
            return {}
        return kept

    def _counts_path(self, grid_size: float) -> Path:
        return self.folder / f"voxels_{float(grid_size)!r}.json"

    def _key(self, scan: str) -> dict[str, Any]:
        files = [(path.name, path.stat()) for path in self.files(scan)]
        return {
            "readers": _READERS,
            "settings": self.settings,
            "files": [[name, stat.st_size, stat.st_mtime_ns] for name, stat in files],
        }


def keep_all(dataset: CachedDataset, scans: list[str], *, num_workers: int = 0) -> Iterator[str]:
    """Keep scans, and give a sentence on each in turn: empty, or why it could not be read."""
    yield from DataLoader(_Keeper(dataset, scans), batch_size=None, num_workers=num_workers)


def save(path: Path, cloud: PointCloud, key: Mapping[str, Any]) -> None:
    """Write a scan."""
    columns = {name: getattr(cloud, name) for name in _FIELDS}
    columns |= {_EXTRA + name: column for name, column in cloud.extra.items()}
    columns = {name: np.ascontiguousarray(c) for name, c in columns.items() if c is not None}
    table, end = {}, 0
    for name, column in columns.items():
        table[name] = [column.dtype.str, column.shape, end]
        end += -(-column.nbytes // _LINE) * _LINE
    header = json.dumps(
        {"key": key, "origin": cloud.origin.tolist(), "columns": table, "size": end}
    ).encode()
    with replacing(path, overwrite=True) as beside, beside.open("wb") as file:
        file.write(_MAGIC + len(header).to_bytes(8, "little") + header)
        start = _start(len(header))
        for name, column in columns.items():
            file.seek(start + table[name][2])
            file.write(column.data)
        file.truncate(start + end)


def load(path: Path, key: Mapping[str, Any]) -> PointCloud | None:
    """Map a scan into memory; None where there is none of this key, or a damaged one."""
    try:
        block = np.memmap(path, np.uint8, "r").view(np.ndarray)
    except (FileNotFoundError, ValueError):  # an empty file cannot be mapped
        return None
    length = int.from_bytes(block[8:16].tobytes(), "little")
    if block[:8].tobytes() != _MAGIC or len(block) < _start(length):
        return None
    header = json.loads(block[16 : 16 + length].tobytes())
    start = _start(length)
    if header["key"] != _in_json(key) or len(block) != start + header["size"]:
        return None
    columns = {}
    for name, (dtype, shape, at) in header["columns"].items():
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        columns[name] = block[start + at : start + at + size].view(dtype).reshape(shape)
    extra = {name[len(_EXTRA) :]: columns.pop(name) for name in list(columns) if "." in name}
    return PointCloud(origin=np.array(header["origin"]), extra=extra, **columns)


class _Keeper(Dataset[str]):
    def __init__(self, dataset: CachedDataset, scans: list[str]) -> None:
        self.dataset, self.scans = dataset, scans

    def __len__(self) -> int:
        return len(self.scans)

    def __getitem__(self, index: int) -> str:
        scan = self.scans[index]
        try:
            self.dataset.keep(scan)
        except (ValueError, OSError) as error:
            told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            text = " ".join(told.split())
            return text if scan in text else f"{scan}: {text}"
        return ""


def _in_json(key: Mapping[str, Any]) -> Any:
    """Give a key as it is read again."""
    return json.loads(json.dumps(key))


def _start(header: int) -> int:
    """Where the columns begin: the first line after the header."""
    return -(-(16 + header) // _LINE) * _LINE
