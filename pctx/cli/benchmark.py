"""pctx benchmark: what things cost on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import typer

from pctx.cli import (
    benchmark_conv,
    benchmark_forward,
    benchmark_loader,
    benchmark_models,
    benchmark_predict,
    benchmark_vector,
)
from pctx.cli.records import FACTS, facts
from pctx.cli.subjects import (
    SceneConfig,
    begin,
    describe_keys,
    find_scene,
    mark,
    measuring,
    print_table,
    short,
    write_row,
)

if TYPE_CHECKING:
    from pctx.inference.benchmark import PlanReport

_SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000)


@dataclass
class PlanConfig(SceneConfig):
    """The keys of `pctx benchmark plan`, each with what it means."""

    points: int = field(default=1_000_000, metadata={"is": "voxels that are encoded and ordered"})
    voxels: int = field(default=60_000, metadata={"is": "voxels of the plan that is taken apart"})
    sizes: list[int] = field(
        default_factory=lambda: list(_SIZES),
        metadata={"is": "voxels of the plans whose growth is looked at"},
    )
    repeats: int = field(default=7, metadata={"is": "runs of each piece of work, at most"})


EXAMPLES = """Examples:

pctx benchmark plan  (one to two minutes on one core)

pctx benchmark plan points=100000 repeats=3 'sizes=[10000,100000]'

pctx benchmark plan file=scan.laz grid_size=0.05 csv=bench.csv
"""

KEYS_ONLY = {"allow_extra_args": True, "ignore_unknown_options": True}

_SUBJECTS = (
    benchmark_forward,
    benchmark_vector,
    benchmark_conv,
    benchmark_models,
    benchmark_loader,
    benchmark_predict,
)

app = typer.Typer(
    epilog="\n".join(
        [
            EXAMPLES,
            *(part.EXAMPLES.partition("\n")[2] for part in _SUBJECTS),
        ]
    )
)

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


@app.callback(invoke_without_command=True)
def benchmark(context: typer.Context) -> None:
    """Measure what things cost on this machine."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(
    epilog=f"Keys:\n\n{describe_keys(PlanConfig)}\n\n{EXAMPLES}",
    context_settings=KEYS_ONLY,
    options_metavar="[KEY=VALUE]",
)
def plan(context: typer.Context) -> None:
    """Measure curve codes, orders and plans beside plainer ways; print a table and a csv row."""
    config = begin(PlanConfig, context.args, lambda _: columns())
    from pctx.inference.benchmark import measure_plan

    scene, most = find_scene(config.file, config.grid_size)
    config = replace(
        config,
        points=int(min(config.points, most)),
        voxels=int(min(config.voxels, most)),
        sizes=[size for size in config.sizes if size <= most],
    )
    with measuring(config.threads) as tell:
        report = measure_plan(
            scene,
            points=config.points,
            voxels=config.voxels,
            sizes=config.sizes,
            repeats=config.repeats,
            device=config.device,
            tell=tell,
        )
    here = facts(config.device)
    caption = (
        f"voxels of {config.file or 'a simulated drive'}: {report.met:.1f} of 27 taps meet one; "
        f"curves of {report.depth} levels; medians of up to {config.repeats} runs"
    )
    print_table(_rows(report), here, config.threads, caption)
    settings = {name: getattr(config, name) for name in _SETTINGS}
    write_row({**here, **settings, **_figures(report)}, columns(), config.csv)


def columns() -> list[str]:
    """Name the columns of a csv row."""
    names = [*FACTS, *_SETTINGS, "depth", "taps_met"]
    for name in _WORK:
        names.append(f"{name}_ms")
        for way in _WAYS.get(name, ()):
            names += [f"{name}_{way}_ms", f"{name}_{way}_ratio"]
    return [*names, "growth_voxels", "growth_ms", "growth_exponent"]


def _rows(report: PlanReport) -> Iterator[tuple[str, ...]]:
    """Lay the report out: work, voxels, ms, plainer way, its ms, ratio, target."""
    for run in report.work:
        first = (_WORK[run.name], f"{run.size:,}", short(run.ms))
        if not run.plain:
            most = _MS_TARGETS.get(run.name)
            target = "" if most is None else f"≤ {most:g} {mark(run.ms <= most)}"
            yield *first, "", "", "", target
        least = _RATIO_TARGETS.get(run.name)
        for way in run.plain:
            ratio = run.ratio(way)
            target = "" if least is None else f"≥ {least:g} {mark(ratio >= least)}"
            yield *first, _WAYS[run.name][way], short(run.plain_ms(way)), short(ratio), target
            first, least = ("", "", ""), None
    for run in report.growth:
        yield _WORK[run.name], f"{run.size:,}", short(run.ms), "", "", "", ""
    if report.exponent is not None:
        target = f"≤ {_EXPONENT_TARGET:g} {mark(report.exponent <= _EXPONENT_TARGET)}"
        yield "growth, exponent", "", f"{report.exponent:.2f}", "", "", "", target


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


for _measure, _keys, _examples in (
    (benchmark_forward.forward, benchmark_forward.ForwardConfig, benchmark_forward.EXAMPLES),
    (benchmark_vector.vector, benchmark_vector.VectorConfig, benchmark_vector.EXAMPLES),
    (benchmark_conv.conv, benchmark_conv.ConvConfig, benchmark_conv.EXAMPLES),
    (benchmark_models.models, benchmark_models.ModelsConfig, benchmark_models.EXAMPLES),
    (benchmark_loader.loader, benchmark_loader.LoaderConfig, benchmark_loader.EXAMPLES),
    (benchmark_predict.predict, benchmark_predict.PredictConfig, benchmark_predict.EXAMPLES),
):
    app.command(
        epilog=f"Keys:\n\n{describe_keys(_keys)}\n\n{_examples}",
        context_settings=KEYS_ONLY,
        options_metavar="[KEY=VALUE]",
    )(_measure)
