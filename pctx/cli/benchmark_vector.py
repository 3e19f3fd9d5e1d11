"""pctx benchmark vector: what the vector attention of PTv1 and PTv2 costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import typer

from pctx.cli.records import FACTS, facts
from pctx.cli.subjects import (
    SceneConfig,
    begin,
    find_scene,
    mark,
    measuring,
    print_table,
    short,
    write_row,
)

if TYPE_CHECKING:
    from pctx.inference.vector import VectorReport


@dataclass
class VectorConfig(SceneConfig):
    """The keys of `pctx benchmark vector`, each with what it means."""

    voxels: int = field(default=100_000, metadata={"is": "of the scan, a point each"})
    channels: int = field(default=64, metadata={"is": "a multiple of 8"})
    neighbors: int = field(default=16, metadata={"is": "of each point"})
    repeats: int = field(default=5, metadata={"is": "runs of each way, at most"})


EXAMPLES = """Examples:

pctx benchmark vector  (half a minute on one core)
"""

_NAMES = {"v1": "PTv1", "v2": "PTv2"}
_SPEED_TARGET = 1.0
_MEMORY_TARGET = 2.0
_SETTINGS = ("threads", "file", "grid_size", "voxels", "repeats", "channels", "neighbors")
_COLUMNS = (
    *FACTS,
    *_SETTINGS,
    *(
        f"{name}_{figure}"
        for name in _NAMES
        for figure in ("ms", "plain_ms", "ratio", "peak_mib", "plain_peak_mib")
    ),
)


def vector(context: typer.Context) -> None:
    """Measure vector attention beside all pairs at once; print a table and a csv row."""
    config = begin(VectorConfig, context.args, lambda _: _COLUMNS)
    from pctx.inference.vector import measure_vector

    scene, most = find_scene(config.file, config.grid_size)
    config = replace(config, voxels=int(min(config.voxels, most)))
    with measuring(config.threads) as tell:
        report = measure_vector(
            scene(config.voxels),
            channels=config.channels,
            neighbors=config.neighbors,
            repeats=config.repeats,
            device=config.device,
            tell=tell,
        )
    here = facts(config.device)
    caption = (
        f"{config.channels} channels, {config.neighbors} neighbours, voxels of "
        f"{config.file or 'a simulated drive'}; medians of up to {config.repeats} runs"
    )
    print_table(_rows(report), here, config.threads, caption)
    settings = {name: getattr(config, name) for name in _SETTINGS}
    write_row({**here, **settings, **_figures(report)}, _COLUMNS, config.csv)


def _rows(report: VectorReport) -> Iterator[tuple[str, ...]]:
    """Lay the report out: work, voxels, ms, plainer way, its ms, ratio, target."""
    for run in report.work:
        ratio, times = run.ratio("plain"), (short(run.ms), short(run.plain_ms("plain")))
        target = f"≥ {_SPEED_TARGET:g} {mark(ratio >= _SPEED_TARGET)}"
        size = f"{run.size:,}"
        yield _NAMES[run.name], size, times[0], "at once", times[1], f"{ratio:.2f}", target
        ours, plain = (report.peaks[run.name][way] for way in ("", "plain"))
        if ours and plain:
            target = f"≥ {_MEMORY_TARGET:g} {mark(plain >= _MEMORY_TARGET * ours)}"
            figures = (short(ours / 2**20), "at once", short(plain / 2**20))
            yield "- peak memory, MiB", "", *figures, f"{plain / ours:.2f}", target


def _figures(report: VectorReport) -> dict[str, str]:
    """Name every figure, for a csv row."""
    figures: dict[str, str] = {}
    for run in report.work:
        figures |= {
            f"{run.name}_ms": f"{run.ms:.3f}",
            f"{run.name}_plain_ms": f"{run.plain_ms('plain'):.3f}",
            f"{run.name}_ratio": f"{run.ratio('plain'):.3f}",
        }
        for way, found in report.peaks[run.name].items():
            name = f"{run.name}_{'plain_' if way else ''}peak_mib"
            figures[name] = "" if found is None else f"{found / 2**20:.1f}"
    return figures
