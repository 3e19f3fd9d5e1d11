"""pctx prepare: read a dataset's files once, into a cache that training maps into memory."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pctx.cli.config import UsageError, quoted, run_composed

if TYPE_CHECKING:
    from pctx.data.dataset import ScanDataset

log = logging.getLogger(__name__)

EXAMPLES = """Examples:

pctx prepare data=semantic_kitti data.raw=/data/kitti

pctx prepare data=folder data.raw=scans data.cache=/fast/scans workers=8

pctx prepare data=street                                   (simulates each street once)

Then: pctx train data=folder data.root=scans data.cache=/fast/scans
"""

_RAW, _ROOT = "data.raw=", "data.root="
_SECONDS = 30.0
"""Between two lines of a plain log."""


def prepare(context: typer.Context) -> None:
    """Keep every scan of a dataset in a form that loads fast: columns that are mapped, not read.

    What lies in the cache already is left: a run that was stopped goes on, and files that changed
    are read anew. Exit code 1 where a file could not be read, each in one line.
    """
    arguments = [
        _ROOT + argument.removeprefix(_RAW) if argument.startswith(_RAW) else argument
        for argument in context.args
    ]
    run_composed("prepare", arguments, lambda config, _: fill_cache(config))


def fill_cache(config: Any) -> Path:
    """Fill the cache that a composed configuration names, and say where it is.

    Raises:
        typer.Exit: with 1, where a scan could not be read.
    """
    from hydra.core.hydra_config import HydraConfig
    from hydra.utils import instantiate

    from pctx.cli.feeding import cached
    from pctx.data.cache import keep_all
    from pctx.data.io.atomic import sweep

    workers = (os.cpu_count() or 1) if config.workers is None else config.workers
    if workers < 0:
        raise UsageError(f"workers must be 0 or more, found {workers}")
    data = config.data
    folder = _folder(data)
    dataset = cached(instantiate(data.dataset), data, folder)
    scans = _scans(dataset, config.splits)
    folder.mkdir(parents=True, exist_ok=True)
    for place in {dataset.path(scan).parent for scan in scans}:
        sweep(place)
    outcomes = _progress(keep_all(dataset, scans, num_workers=workers), len(scans))
    failed = [sentence for sentence in outcomes if sentence]
    kept = len(scans) - len(failed)
    log.info("%s: %d scan%s; next:", folder, kept, "" if kept == 1 else "s")
    choices = [f"data={HydraConfig.get().runtime.choices['data']}"]
    choices += [quoted("data.root", data.root)] if "root" in data else []
    typer.echo(" ".join(["pctx train", *choices, quoted("data.cache", folder)]))
    for sentence in failed:
        sys.stderr.write(f"pctx: {sentence}\n")
    if failed:
        raise typer.Exit(1)
    return folder


def _folder(data: Any) -> Path:
    """Find where the cache goes: what `data.cache` says, else beside the raw files."""
    if data.cache is not None:
        return Path(data.cache).expanduser()
    if "root" not in data:
        return Path("cache")
    root = Path(data.root).expanduser().resolve()
    return root.with_name(f"{root.name}.cache")


def _scans(dataset: ScanDataset, splits: Sequence[str] | None) -> list[str]:
    """List the scans of some splits, by default of all that have any."""
    if splits is not None:
        return _once(scan for split in splits for scan in dataset.scans(split))
    scans: list[str] = []
    errors = []
    for split in dataset.splits:
        try:
            scans += dataset.scans(split)
        except ValueError as error:  # no scan is in it
            errors.append(error)
    if not scans:
        raise errors[0]
    return _once(scans)


def _once(scans: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(scans))


def _progress(outcomes: Iterable[str], total: int) -> Iterable[str]:
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import track

        yield from track(outcomes, "reading", total=total, console=Console(stderr=True))
        return
    last = time.monotonic()
    for done, outcome in enumerate(outcomes, start=1):
        if time.monotonic() - last > _SECONDS:
            last = time.monotonic()
            log.info("%d of %d scans", done, total)
        yield outcome
