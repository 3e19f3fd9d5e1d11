"""pctx benchmark forward: what PTv3 costs, beside the released way to the same numbers."""

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
    from pctx.inference.forward import ForwardReport


@dataclass
class ForwardConfig(SceneConfig):
    """The keys of `pctx benchmark forward`, each with what it means."""

    model: str = field(default="ptv3_base", metadata={"is": "a PTv3 of `pctx.list_models()`"})
    voxels: int = field(default=20_000, metadata={"is": "of the scan that passes the model"})
    backward: bool = field(default=True, metadata={"is": "measures training too"})
    repeats: int = field(default=3, metadata={"is": "runs of each way, at most"})


EXAMPLES = """Examples:

pctx benchmark forward  (two minutes on one core)

pctx benchmark forward file=scan.laz grid_size=0.2 csv=forward.csv
"""

_NAMES = {"forward": "plan and forward", "both": "- with backward"}
_RATIO_TARGETS = {"forward": 4.0, "both": 3.0}
_MEMORY_TARGET = 8.0
_PLAN_TARGET = 5.0
_DIFFERENCE_TARGET = 1e-4
_SETTINGS = ("threads", "file", "grid_size", "voxels", "repeats", "model")
_COLUMNS = (
    *FACTS,
    *_SETTINGS,
    *(
        f"{name}_{figure}"
        for name in _NAMES
        for figure in ("ms", "plain_ms", "ratio", "peak_mib", "plain_peak_mib", "difference")
    ),
    "plan_percent",
)


def forward(context: typer.Context) -> None:
    """Measure PTv3 beside its released code without flash attention; a table and a csv row."""
    config = begin(ForwardConfig, context.args, lambda _: _COLUMNS)
    from pctx.inference.forward import measure_forward
    from pctx.nn.spconv_engine import spconv_is_installed

    scene, most = find_scene(config.file, config.grid_size)
    config = replace(config, voxels=int(min(config.voxels, most)))
    with measuring(config.threads) as tell:
        report = measure_forward(
            scene(config.voxels),
            model=config.model,
            backward=config.backward,
            repeats=config.repeats,
            device=config.device,
            tell=tell,
        )
    here = facts(config.device)
    theirs = "spconv's" if spconv_is_installed() else "ours, as spconv is not installed"
    caption = (
        f"{config.model}, voxels of {config.file or 'a simulated drive'}; "
        f"medians of up to {config.repeats} runs; convolutions of the released way: {theirs}"
    )
    print_table(_rows(report), here, config.threads, caption)
    settings = {name: getattr(config, name) for name in _SETTINGS}
    figures = dict.fromkeys(_COLUMNS, "") | _figures(report)
    write_row({**figures, **here, **settings}, _COLUMNS, config.csv)


def _rows(report: ForwardReport) -> Iterator[tuple[str, ...]]:
    """Lay the report out: work, voxels, ms, plainer way, its ms, ratio, target."""
    for run in report.work:
        ratio, least = run.ratio("plain"), _RATIO_TARGETS[run.name]
        yield (
            _NAMES[run.name],
            f"{run.size:,}",
            short(run.ms),
            "as released",
            short(run.plain_ms("plain")),
            f"{ratio:.2f}",
            f"≥ {least:g} {mark(ratio >= least)}",
        )
    for run in report.work:
        ours, plain = (report.peaks[run.name][way] for way in ("", "plain"))
        if ours and plain:
            label = "peak memory, MiB" if run.name == "forward" else _NAMES[run.name]
            target = f"≥ {_MEMORY_TARGET:g} {mark(plain >= _MEMORY_TARGET * ours)}"
            figures = (short(ours / 2**20), "as released", short(plain / 2**20))
            yield label, "", *figures, f"{plain / ours:.2f}", target
    share = 100 * report.plan
    yield (
        "plan, % of forward", "", short(share), "", "", "",
        f"≤ {_PLAN_TARGET:g} {mark(share <= _PLAN_TARGET)}",
    )  # fmt: skip
    for name, label in (("forward", "largest difference"), ("both", "- of gradients")):
        if (difference := report.differences.get(name)) is not None:
            target = f"≤ {_DIFFERENCE_TARGET:g} {mark(difference <= _DIFFERENCE_TARGET)}"
            yield label, "", f"{difference:.1e}", "", "", "", target


def _figures(report: ForwardReport) -> dict[str, str]:
    """Name every figure, for a csv row."""
    figures = {"plan_percent": f"{100 * report.plan:.2f}"}
    for run in report.work:
        figures |= {
            f"{run.name}_ms": f"{run.ms:.3f}",
            f"{run.name}_plain_ms": f"{run.plain_ms('plain'):.3f}",
            f"{run.name}_ratio": f"{run.ratio('plain'):.3f}",
            f"{run.name}_difference": f"{report.differences[run.name]:.3g}",
        }
        for way, bytes_ in report.peaks[run.name].items():
            name = f"{run.name}_{'plain_' if way else ''}peak_mib"
            figures[name] = "" if bytes_ is None else f"{bytes_ / 2**20:.1f}"
    return figures
