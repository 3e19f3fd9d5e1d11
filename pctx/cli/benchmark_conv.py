"""pctx benchmark conv: what sparse convolutions cost, beside spconv."""

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
    from pctx.inference.convolution import ConvolutionReport


@dataclass
class ConvConfig(SceneConfig):
    """The keys of `pctx benchmark conv`, each with what it means."""

    voxels: int = field(default=60_000, metadata={"is": "of the scan that is convolved"})
    channels: list[int] = field(
        default_factory=lambda: [16, 32, 64, 128, 256, 512],
        metadata={"is": "read and written, for each convolution; [16,32,64,128,256,512]"},
    )
    repeats: int = field(default=7, metadata={"is": "runs of each piece of work, at most"})


EXAMPLES = """Examples:

pctx benchmark conv  (a minute or two on one core)

pctx benchmark conv file=scan.laz grid_size=0.2 'channels=[32,64]'
"""

_WIDE = 64
"""Channels from which convolutions have the higher targets."""

_SETTINGS = ("threads", "file", "grid_size", "voxels", "repeats")


def conv(context: typer.Context) -> None:
    """Measure kernel maps and sparse convolutions beside spconv; print a table and a csv row."""
    config = begin(ConvConfig, context.args, _columns)
    from pctx.inference.convolution import measure_convolutions

    scene, most = find_scene(config.file, config.grid_size)
    config = replace(config, voxels=int(min(config.voxels, most)))
    with measuring(config.threads) as tell:
        report = measure_convolutions(
            scene(config.voxels),
            channels=config.channels,
            repeats=config.repeats,
            device=config.device,
            tell=tell,
        )
    here = facts(config.device)
    caption = (
        f"voxels of {config.file or 'a simulated drive'}: {report.met:.1f} of 27 taps meet one; "
        f"medians of up to {config.repeats} runs"
    )
    if not report.work[0].plain:
        caption += "; spconv is not installed, so nothing is beside"
    print_table(_rows(report), here, config.threads, caption)
    row = {**here, **{name: getattr(config, name) for name in _SETTINGS}}
    row |= {"taps_met": f"{report.met:.2f}"}
    for run in report.work:
        row[f"{run.name}_ms"] = f"{run.ms:.3f}"
        row[f"{run.name}_spconv_ms"] = f"{run.plain_ms('spconv'):.3f}" if run.plain else ""
    write_row(row, _columns(config), config.csv)


def _columns(config: ConvConfig) -> list[str]:
    names = ["map3", "map5"]
    names += [f"{name}{width}" for width in config.channels for name in ("forward", "both")]
    timed = [f"{name}{way}_ms" for name in names for way in ("", "_spconv")]
    return [*FACTS, *_SETTINGS, "taps_met", *timed]


def _rows(report: ConvolutionReport) -> Iterator[tuple[str, ...]]:
    """Lay the report out: work, voxels, ms, plainer way, its ms, ratio, target."""
    for run in report.work:
        label, least = _named(run.name)
        first = (label, f"{run.size:,}", short(run.ms))
        if not run.plain:
            yield *first, "", "", "", ""
            continue
        ratio = run.ratio("spconv")
        target = f"≥ {least:g} {mark(ratio >= least)}"
        yield *first, "spconv", short(run.plain_ms("spconv")), f"{ratio:.2f}", target


def _named(name: str) -> tuple[str, float]:
    """Give the label of a piece of work, and the least ratio wanted."""
    kind, number = name.rstrip("0123456789"), int("".join(c for c in name if c.isdigit()))
    if kind == "map":
        return f"kernel map, {number}³ taps", 2.5
    wide = number >= _WIDE
    if kind == "forward":
        return f"{number} channels", 1.3 if wide else 0.9
    return "- with backward", 1.2 if wide else 0.9
