"""pctx benchmark loader: what loading costs, beside the common way in numpy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import typer

from pctx.cli.config import UsageError
from pctx.cli.records import FACTS, check_records, facts
from pctx.cli.subjects import mark, measuring, parse_keys, print_table, short, write_row

if TYPE_CHECKING:
    from pctx.data.labels import LabelSet
    from pctx.geometry.points import PointCloud
    from pctx.inference.loading import LoadingReport


@dataclass
class LoaderConfig:
    """The keys of `pctx benchmark loader`, each with what it means."""

    points: int = field(default=120_000, metadata={"is": "of a scan, at most"})
    grid_size: float = field(default=0.05, metadata={"is": "metres"})
    workers: int = field(default=2, metadata={"is": "processes of a loader"})
    scans: int = field(default=48, metadata={"is": "that a loader gives in a turn"})
    repeats: int = field(default=7, metadata={"is": "runs of each piece of work, at most"})
    threads: int = field(default=1, metadata={"is": "of torch, in this process"})
    file: str | None = field(
        default=None,
        metadata={"is": "a scan with intensity and labels; else streets are simulated"},
    )
    csv: str | None = field(default=None, metadata={"is": "a file to which the row is added"})


EXAMPLES = """Examples:

pctx benchmark loader  (a minute or two on two cores)

pctx benchmark loader file=sequences/00/velodyne/000000.bin workers=4
"""

_SCANS = 4
"""Different scans that are simulated."""

_WORK: Mapping[str, str] = MappingProxyType(
    {
        "drawn": "loader, a point a voxel",
        "loader": "loader, means",
        "augment": "- augmentation",
        "sample": "- voxels and features",
        "collate": "- collation",
        "shape": "loader, local shapes too",
        "plan": "loader, plans of ptv3_tiny",
    }
)
"""What is measured, as the table has it."""

_COMPARED = ("drawn", "loader", "augment", "sample", "collate")
_TARGETS: Mapping[str, float] = MappingProxyType({"drawn": 4, "loader": 4})
_SETTINGS = ("threads", "file", "points", "grid_size", "workers", "scans", "repeats")


def loader(context: typer.Context) -> None:
    """Measure augmentation, grid sampling and collation beside the common way; print a table."""
    config = parse_keys(LoaderConfig, context.args)
    if config.csv is not None:
        check_records(Path(config.csv), columns())
    from pctx.inference.loading import measure_loading

    with measuring(config.threads) as tell:
        tell("scans to load")
        clouds, labels = _clouds(config)
        report = measure_loading(
            clouds,
            labels,
            grid_size=config.grid_size,
            workers=config.workers,
            scans=config.scans,
            repeats=config.repeats,
            tell=tell,
        )
    points = max(map(len, clouds))
    here = facts("cpu")
    caption = (
        f"a scan of {config.file or 'simulated streets'}: {points:,} points, {report.voxels:,} "
        f"voxels of {config.grid_size:g} m; milliseconds a scan"
        f"{' of a processor, of all processes together' if report.by_processor else ''}; loaders "
        f"of {config.workers} processes; medians of up to {config.repeats} runs"
    )
    print_table(_rows(report), here, config.threads, caption)
    settings = {name: getattr(config, name) for name in _SETTINGS}
    write_row({**here, **settings, **_figures(report)}, columns(), config.csv)


def columns() -> list[str]:
    """Name the columns of a csv row."""
    names = [*FACTS, *_SETTINGS, "voxels"]
    for name in _WORK:
        names.append(f"{name}_ms")
        if name in _COMPARED:
            names += [f"{name}_common_ms", f"{name}_common_ratio"]
    return names


def _clouds(config: LoaderConfig) -> tuple[list[PointCloud], LabelSet]:
    """Read a scan, or simulate some."""
    from pctx.data.datasets.street import StreetDataset

    keep = slice(0, config.points)
    if config.file is None:
        dataset = StreetDataset(num_train=_SCANS, sensors=("hdl64",))
        scans = dataset.scans("train")
        return [dataset.read(scan).select(keep) for scan in scans], dataset.card.labels
    from pctx.data.io.formats import read
    from pctx.data.labels import LabelSet

    cloud = read(Path(config.file)).select(keep)
    if cloud.intensity is None or cloud.label is None:
        raise UsageError(f"{config.file}: a scan with intensity and labels is needed")
    # Each raw id is a class of its own.
    ids = sorted({*cloud.label.tolist(), -1, -2})
    labels = LabelSet(
        names=tuple(map(str, ids)), colors=((0, 0, 0),) * len(ids), raw=tuple((i,) for i in ids)
    )
    return [cloud], labels


def _rows(report: LoadingReport) -> Iterator[tuple[str, ...]]:
    """Lay the report out: work, voxels, ms a scan, plainer way, its ms, ratio, target."""
    for run in report.work:
        first = (_WORK[run.name], f"{report.voxels:,}", short(run.ms))
        if not run.plain:
            yield *first, "", "", "", ""
            continue
        least = _TARGETS.get(run.name)
        ratio = run.ratio("common")
        target = "" if least is None else f"≥ {least:g} {mark(ratio >= least)}"
        yield *first, "hash and unique", short(run.plain_ms("common")), short(ratio), target


def _figures(report: LoadingReport) -> dict[str, str]:
    """Name every figure, for a csv row."""
    figures = {"voxels": str(report.voxels)}
    for run in report.work:
        figures[f"{run.name}_ms"] = f"{run.ms:.3f}"
        for way in run.plain:
            figures[f"{run.name}_{way}_ms"] = f"{run.plain_ms(way):.3f}"
            figures[f"{run.name}_{way}_ratio"] = f"{run.ratio(way):.2f}"
    return figures
