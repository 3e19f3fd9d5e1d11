"""pctx benchmark models: what each model costs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import typer

from pctx.cli.config import UsageError
from pctx.cli.records import FACTS, add_record, facts
from pctx.cli.subjects import SceneConfig, begin, find_scene, measuring, print_table, short


@dataclass
class ModelsConfig(SceneConfig):
    """The keys of `pctx benchmark models`, each with what it means."""

    models: list[str] = field(
        default_factory=list, metadata={"is": "their names; else all that end in _tiny"}
    )
    voxels: int = field(default=60_000, metadata={"is": "of the scan that passes the models"})
    repeats: int = field(default=3, metadata={"is": "runs of each piece of work, at most"})


EXAMPLES = """Examples:

pctx benchmark models  (a minute on one core)

pctx benchmark models 'models=\\[ptv3_base,litept_base]' file=scan.laz grid_size=0.2 device=cuda
"""

_SETTINGS = ("threads", "file", "grid_size", "voxels", "repeats")
_COLUMNS = (*FACTS, *_SETTINGS, "model", "parameters", "plan_ms", "forward_ms", "peak_mib")


def models(context: typer.Context) -> None:
    """Measure parameters, plan, forward pass and memory of models; print a table and csv rows."""
    config = begin(ModelsConfig, context.args, lambda _: _COLUMNS)
    from pctx.inference.model_costs import measure_models
    from pctx.models.factory import list_models

    names = list_models()
    if unknown := [name for name in config.models if name not in names]:
        raise UsageError(f"no model is called {unknown[0]!r}; there are {', '.join(names)}")
    names = config.models or [name for name in names if name.endswith("_tiny")]
    scene, most = find_scene(config.file, config.grid_size)
    config = replace(config, voxels=int(min(config.voxels, most)))
    with measuring(config.threads) as tell:
        costs = list(
            measure_models(
                scene(config.voxels),
                names=names,
                grid_size=config.grid_size,
                repeats=config.repeats,
                device=config.device,
                tell=tell,
            )
        )
    here = facts(config.device)
    print_table(
        [
            (
                cost.name,
                f"{cost.parameters / 1e6:.2f}",
                short(cost.plan_ms),
                short(cost.forward_ms),
                "" if cost.peak is None else short(cost.peak / 2**20),
            )
            for cost in costs
        ],
        here,
        config.threads,
        f"{config.voxels:,} voxels of {config.file or 'a simulated drive'}; "
        f"medians of up to {config.repeats} runs",
        headings=("", "million parameters", "plan ms", "forward ms", "peak MiB"),
    )
    for cost in costs:
        row = {**here, **{name: getattr(config, name) for name in _SETTINGS}}
        row |= {
            "model": cost.name,
            "parameters": str(cost.parameters),
            "plan_ms": f"{cost.plan_ms:.3f}",
            "forward_ms": f"{cost.forward_ms:.3f}",
            "peak_mib": "" if cost.peak is None else f"{cost.peak / 2**20:.1f}",
        }
        if config.csv is not None:
            add_record(Path(config.csv), row, _COLUMNS)
