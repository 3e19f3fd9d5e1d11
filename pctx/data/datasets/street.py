"""StreetDataset: simulated scans, drawn from their numbers; nothing to download."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import final

import numpy as np

from pctx.data.cards import card
from pctx.data.dataset import ScanDataset
from pctx.data.io.atomic import replacing
from pctx.data.simulator import SENSORS, VERSION, simulate
from pctx.geometry.points import PointCloud

_SPLITS = ("train", "val", "test")


@final
class StreetDataset(ScanDataset):
    """Scans of simulated streets, named "street/SPLIT/NUMBER"; sensors take turns.

    A seed, a split and a number always give the same scan, whatever was read before (another kind
    of processor may round a point to the next millimetre); no two splits share a street.
    """

    def __init__(
        self,
        num_train: int = 200,
        num_val: int = 10,
        num_test: int = 10,
        sensors: Sequence[str] = ("hdl64", "hdl32"),
        seed: int = 0,
        cache: str | Path | None = None,
    ) -> None:
        """Describe the scans; none is drawn before it is read.

        Args:
            num_train: scans to train on.
            num_val: scans of the split `val`.
            num_test: scans of the split `test`.
            sensors: names from `pctx.data.simulator.SENSORS`; number i has the i-th, in turns.
            seed: 0 or above; each gives other streets.
            cache: a folder where scans are kept, so that each is simulated once. About 2 MB a
                64-beam scan.

        Raises:
            ValueError: a count or the seed is negative, or a sensor is not known.
        """
        self.card = card("street")
        self._counts = dict(zip(_SPLITS, (num_train, num_val, num_test), strict=True))
        self._sensors = tuple(sensors)
        self._seed = seed
        self._cache = None if cache is None else Path(cache)
        for split, count in self._counts.items():
            if count < 0:
                raise ValueError(f"num_{split} must be 0 or above, found {count}")
        if seed < 0:
            raise ValueError(f"seed must be 0 or above, found {seed}")
        strange = [name for name in self._sensors if name not in SENSORS]
        if strange or not self._sensors:
            raise ValueError(
                f"sensors must be one or more of {', '.join(SENSORS)}; found "
                f"{', '.join(strange) or 'none'}"
            )

    def scans(self, split: str) -> list[str]:
        """Name the scans of a split.

        Raises:
            ValueError: no such split; the message lists those there are.
        """
        if split not in self._counts:
            raise ValueError(f"no split {split!r}; there are {', '.join(self._counts)}")
        return [f"street/{split}/{number:06d}" for number in range(self._counts[split])]

    def read(self, scan: str) -> PointCloud:
        """Simulate a scan, or read it from the cache.

        Raises:
            ValueError: this is no name of a simulated scan.
        """
        match scan.split("/"):
            case ["street", split, digits] if split in _SPLITS and digits.isdecimal():
                number = int(digits)
            case _:
                raise ValueError(f"no scan {scan!r}; names are like street/train/000012")
        sensor = self._sensors[number % len(self._sensors)]
        if self._cache is None:
            return self._draw(split, number, sensor)
        # The name holds all that a scan follows from.
        path = self._cache / f"v{VERSION}-seed{self._seed}" / split / f"{number:06d}-{sensor}.npz"
        if not path.is_file():
            _keep(path, self._draw(split, number, sensor))
        return _kept(path)

    def _draw(self, split: str, number: int, sensor: str) -> PointCloud:
        return simulate(np.random.default_rng([self._seed, _SPLITS.index(split), number]), sensor)


def _keep(path: Path, cloud: PointCloud) -> None:
    assert cloud.intensity is not None and cloud.label is not None
    with replacing(path, overwrite=True) as beside:
        np.savez(
            beside,
            coord=cloud.coord,
            intensity=cloud.intensity,
            label=cloud.label.astype(np.uint16),
            ring=cloud.extra["ring"],
        )


def _kept(path: Path) -> PointCloud:
    with np.load(path) as table:
        return PointCloud(
            coord=table["coord"],
            intensity=table["intensity"],
            label=table["label"].astype(np.int64),
            extra={"ring": table["ring"]},
        )
