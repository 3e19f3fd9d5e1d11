"""Figures as rows of a csv file, with where they were measured."""

from __future__ import annotations

import csv
import io
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

import pctx
from pctx.cli.config import UsageError

FACTS = ("commit", "date", "pctx", "python", "torch", "numpy", "cpu", "device")
"""The columns that `facts` fills in."""


def facts(device: str) -> dict[str, str]:
    """Say what runs now, and where."""
    import numpy as np
    import torch

    on_gpu = device.startswith("cuda")
    values = (
        _commit(Path(pctx.__file__).parents[1]),
        datetime.now(timezone.utc).isoformat(timespec="seconds"),
        pctx.__version__,
        platform.python_version(),
        torch.__version__,
        np.__version__,
        _processor(),
        torch.cuda.get_device_name(device) if on_gpu else device,
    )
    return dict(zip(FACTS, values, strict=True))


def check_records(path: Path, columns: Sequence[str]) -> None:
    """Find out whether rows of these columns can be added to a file.

    Raises:
        UsageError: it is no file, or its columns are others.
    """
    if not path.exists():
        return
    if not path.is_file():
        raise UsageError(f"{path}: not a file, so no rows can be added")
    with path.open(newline="") as file:
        header = next(csv.reader(file), None)
    if header not in (None, list(columns)):
        raise UsageError(f"{path}: its columns are not those of this benchmark; take another file")


def add_record(path: Path, row: Mapping[str, object], columns: Sequence[str]) -> None:
    """Add a row to a file, and before the first one the names of the columns."""
    from pctx.data.io.atomic import replacing

    before = path.read_text() if path.exists() else ""
    with replacing(path, overwrite=True) as beside:
        beside.write_text(before + as_csv(row, columns, header=not before))


def as_csv(row: Mapping[str, object], columns: Sequence[str], *, header: bool) -> str:
    """Lay a row out as csv; no value may be missing or left over."""
    assert set(row) == set(columns), set(row) ^ set(columns)
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerow(row)
    return text.getvalue()


def _commit(checkout: Path) -> str:
    """Name the commit, and whether files differ from it; empty where there is no checkout."""
    if not (checkout / ".git").exists():
        return ""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _processor() -> str:
    """Name the processor, where the system does."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
