"""MetricsTable: what a run logs, as metrics.csv."""

from __future__ import annotations

import csv
import os
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

from pctx.data.io.atomic import replacing

EVERY = 200
"""Rows after which the file is written anew, also without a checkpoint."""


class MetricsTable(Logger):
    """Keeps every row in memory and writes the file as a whole, beside its name, then renames it.

    Args:
        path: of the file.
        resumed: whether to go on after the rows that it has.
    """

    def __init__(self, path: Path, *, resumed: bool = False) -> None:
        super().__init__()
        self.path = path
        self.rows = _read(path) if resumed and path.is_file() else []
        self._written = len(self.rows)

    @property
    def name(self) -> str:
        """Nothing: the folder is the run's."""
        return ""

    @property
    def version(self) -> str:
        """Nothing, too."""
        return ""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Add a row."""
        values = {"epoch": 0.0, "step": step or 0, **metrics}
        whole = {"epoch": int(values["epoch"]), "step": int(values["step"])}
        self.rows.append({name: str(value) for name, value in {**values, **whole}.items()})
        if len(self.rows) - self._written >= EVERY:
            self.save()

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        """Leave that to the configuration in the folder."""

    def keep(self, count: int) -> None:
        """Forget the rows that came after a checkpoint."""
        del self.rows[count:]

    @rank_zero_only
    def save(self) -> None:
        """Write the file."""
        if not self.rows:
            return
        names = sorted({name for row in self.rows for name in row} - {"epoch", "step"})
        with replacing(self.path, overwrite=True) as beside, beside.open("w", newline="") as file:
            table = csv.DictWriter(file, ["epoch", "step", *names], lineterminator=os.linesep)
            table.writeheader()
            table.writerows(self.rows)
        self._written = len(self.rows)


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return [{k: v for k, v in row.items() if v} for row in csv.DictReader(file)]
