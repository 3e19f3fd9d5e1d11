"""pctx benchmark: what things cost on this machine."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import typer

from pctx.cli.config import UsageError, pick_device, unquoted
from pctx.cli.records import FACTS, add_record, as_csv, check_records, facts

if TYPE_CHECKING:
    from pctx.inference.benchmark import PlanReport, Scene

log = logging.getLogger(__name__)

_SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000)


@dataclass
class PlanConfig:
    """The keys of `pctx benchmark plan`, each with what it means."""

    points: int = field(default=1_000_000, metadata={"is": "voxels that are encoded and ordered"})
    voxels: int = field(default=60_000, metadata={"is": "voxels of the plan that is taken apart"})
    sizes: list[int] = field(
        default_factory=lambda: list(_SIZES),
        metadata={"is": "voxels of the plans whose growth is looked at"},
    )
    repeats: int = field(default=7, metadata={"is": "runs of each piece of work, at most"})
    threads: int = field(default=1, metadata={"is": "of torch"})
    device: str = field(default="cpu", metadata={"is": "cpu, cuda, auto"})
    file: str | None = field(default=None, metadata={"is": "a scan; else a drive is simulated"})
    grid_size: float = field(default=0.05, metadata={"is": "metres; the voxels of file"})
    csv: str | None = field(default=None, metadata={"is": "a file to which the row is added"})


def _keys() -> str:
    """List the keys, their defaults and meanings."""
    lines = []
    for f in fields(PlanConfig):
        default = "[…]" if f.name == "sizes" else "" if f.default is None else f.default
        lines.append(f"{f.name}={default}  {f.metadata['is']}")
    return "\n\n".join(lines)


EXAMPLES = """Examples:

pctx benchmark plan  (one to two minutes on one core)

pctx benchmark plan points=100000 repeats=3 'sizes=[10000,100000]'

pctx benchmark plan file=scan.laz grid_size=0.05 csv=bench.csv
"""

app = typer.Typer(epilog=EXAMPLES)

_WORK: Mapping[str, str] = MappingProxyType(
    {
        "codes": "codes, four curves",
        "order": "orders and inverses",
        "plan": "plan of ptv3_base",
        "serialize": "- serialization",
        "coarsen": "- coarser levels",
        "windows": "- windows",
        "kernel_maps": "- kernel maps",
        "neighbors": "16 neighbours",
        "farthest": "farthest, 1 in 4",
    }
)
"""What is measured, as the table has it."""

_WAYS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "codes": {"bits": "bits unpacked", "levels": "bits in place"},
        "order": {"together": "one argsort", "singly": "argsort each"},
        "neighbors": {"tree": "cKDTree"},
        "farthest": {"steps": "step by step"},
    }
)
"""The plainer ways to the same; the first may have a target."""

_RATIO_TARGETS: Mapping[str, float] = MappingProxyType({"codes": 200, "order": 3.5})
_MS_TARGETS: Mapping[str, float] = MappingProxyType({"plan": 60})
_EXPONENT_TARGET = 1.1

_SETTINGS = ("threads", "file", "grid_size", "points", "voxels", "repeats")
"""Keys that are columns of a csv row."""

_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "int": "a whole number",
        "float": "a number",
        "list[int]": "whole numbers in brackets, as [1000,2000]",
    }
)
"""What a value must be, by the type of its key."""


@app.callback(invoke_without_command=True)
def benchmark(context: typer.Context) -> None:
    """Measure what things cost on this machine."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(
    epilog=f"Keys:\n\n{_keys()}\n\n{EXAMPLES}",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    options_metavar="[KEY=VALUE]",
)
def plan(context: typer.Context) -> None:
    """Measure curve codes, orders and plans beside plainer ways; print a table and a csv row."""
    config = parse_plan(context.args)
    import torch

    from pctx.inference.benchmark import measure_plan

    scene, config = _scene(config)
    before = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    try:
        with _progress() as tell:
            report = measure_plan(
                scene,
                points=config.points,
                voxels=config.voxels,
                sizes=config.sizes,
                repeats=config.repeats,
                device=config.device,
                tell=tell,
            )
    finally:
        torch.set_num_threads(before)
    here = facts(config.device)
    _print(report, here, config)
    settings = {name: getattr(config, name) for name in _SETTINGS}
    row = {**here, **settings, **_figures(report)}
    if config.csv is None:
        typer.echo(as_csv(row, columns(), header=True), nl=False)
    else:
        add_record(Path(config.csv), row, columns())
        log.info("%s: a row more", config.csv)


def parse_plan(arguments: Sequence[str]) -> PlanConfig:
    """Read key=value, in Hydra's grammar of values.

    Raises:
        UsageError: a key is not known, or a value does not suit it.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    schema = OmegaConf.structured(PlanConfig)
    types = {f.name: str(f.type) for f in fields(PlanConfig)}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not equals:
            raise UsageError(unquoted(argument))
        if key not in types:
            close = get_close_matches(key, types, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(types)}"
            raise UsageError(f"there is no key {key!r}; {hint}")
        try:
            schema[key] = OverridesParser.create().parse_override(argument).value()
        except HydraException as error:
            raise UsageError(unquoted(argument)) from error
        except OmegaConfBaseException as error:
            kind = _KINDS.get(types[key], "a name")
            raise UsageError(f"{key} takes {kind}, found {text!r}") from error
    config: PlanConfig = OmegaConf.to_object(schema)  # type: ignore[assignment]
    for key in ("points", "voxels", "repeats", "threads"):
        if getattr(config, key) < 1:
            raise UsageError(f"{key} must be 1 or more, found {getattr(config, key)}")
    if min(config.sizes, default=1) < 1 or len(set(config.sizes)) < len(config.sizes):
        raise UsageError(f"sizes must be different numbers, 1 or more, found {config.sizes}")
    if not 0 < config.grid_size < math.inf:
        raise UsageError(f"grid_size must be above 0 metres, found {config.grid_size}")
    if config.csv is not None:
        check_records(Path(config.csv), columns())
    return replace(config, device=pick_device(config.device))


def columns() -> list[str]:
    """Name the columns of a csv row."""
    names = [*FACTS, *_SETTINGS, "depth", "taps_met"]
    for name in _WORK:
        names.append(f"{name}_ms")
        for way in _WAYS.get(name, ()):
            names += [f"{name}_{way}_ms", f"{name}_{way}_ratio"]
    return [*names, "growth_voxels", "growth_ms", "growth_exponent"]


def _scene(config: PlanConfig) -> tuple[Scene, PlanConfig]:
    """Give the voxels to measure with, and cut what is asked for to what there is."""
    from pctx.inference.drive import drive_voxels, slab

    if config.file is None:
        return drive_voxels, config
    import torch

    from pctx.data.io.formats import read
    from pctx.geometry.grid import voxelize

    cloud = read(Path(config.file))
    grid_coord = torch.from_numpy(voxelize(cloud.coord[cloud.finite], config.grid_size).grid_coord)
    n = len(grid_coord)
    if n == 0:
        raise ValueError(f"{config.file}: no points to measure with")
    log.info("%s: %s voxels; sizes above that are left out", config.file, f"{n:,}")
    return partial(slab, grid_coord), replace(
        config,
        points=min(config.points, n),
        voxels=min(config.voxels, n),
        sizes=[size for size in config.sizes if size <= n],
    )


@contextmanager
def _progress() -> Iterator[Callable[[str], object]]:
    """Say on stderr what is being measured: in one place of a terminal, elsewhere line by line."""
    if not sys.stderr.isatty():
        yield log.info
        return
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield status.update


def _print(report: PlanReport, here: Mapping[str, str], config: PlanConfig) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    voxels = escape(config.file or "a simulated drive")
    threads = "1 thread" if config.threads == 1 else f"{config.threads} threads"
    table = Table(
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        title=f"{here['device']}, {here['cpu']}, {threads}",
        caption=f"voxels of {voxels}: {report.met:.1f} of 27 taps meet one; curves of "
        f"{report.depth} levels; medians of up to {config.repeats} runs",
        title_justify="left",
        title_style="bold",
        caption_justify="left",
    )
    for heading in ("", "voxels", "ms", "plainer way", "ms", "ratio", "target"):
        number = heading in ("voxels", "ms", "ratio")
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for row in _rows(report):
        table.add_row(*row)
    Console().print(table)


def _rows(report: PlanReport) -> Iterator[tuple[str, ...]]:
    """Lay the report out: work, voxels, ms, plainer way, its ms, ratio, target."""
    for run in report.work:
        first = (_WORK[run.name], f"{run.size:,}", _short(run.ms))
        if not run.plain:
            most = _MS_TARGETS.get(run.name)
            target = "" if most is None else f"≤ {most:g} {_mark(run.ms <= most)}"
            yield *first, "", "", "", target
        least = _RATIO_TARGETS.get(run.name)
        for way in run.plain:
            ratio = run.ratio(way)
            target = "" if least is None else f"≥ {least:g} {_mark(ratio >= least)}"
            yield *first, _WAYS[run.name][way], _short(run.plain_ms(way)), _short(ratio), target
            first, least = ("", "", ""), None
    for run in report.growth:
        yield _WORK[run.name], f"{run.size:,}", _short(run.ms), "", "", "", ""
    if report.exponent is not None:
        target = f"≤ {_EXPONENT_TARGET:g} {_mark(report.exponent <= _EXPONENT_TARGET)}"
        yield "growth, exponent", "", f"{report.exponent:.2f}", "", "", "", target


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _mark(met: bool) -> str:
    return "✓" if met else "✗"


def _figures(report: PlanReport) -> dict[str, str]:
    """Name every figure, for a csv row."""
    figures = {"depth": str(report.depth), "taps_met": f"{report.met:.2f}"}
    for run in report.work:
        figures[f"{run.name}_ms"] = f"{run.ms:.3f}"
        for way in run.plain:
            figures[f"{run.name}_{way}_ms"] = f"{run.plain_ms(way):.3f}"
            figures[f"{run.name}_{way}_ratio"] = f"{run.ratio(way):.2f}"
    figures["growth_voxels"] = " ".join(str(run.size) for run in report.growth)
    figures["growth_ms"] = " ".join(f"{run.ms:.3f}" for run in report.growth)
    figures["growth_exponent"] = "" if report.exponent is None else f"{report.exponent:.3f}"
    return figures
