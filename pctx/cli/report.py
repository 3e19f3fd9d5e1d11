"""pctx report: one page about a training run."""

from __future__ import annotations

import logging
import platform
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pctx.cli.config import UsageError
from pctx.cli.report_page import Report, Shot, report_page

if TYPE_CHECKING:
    from pctx.data.dataset import ScanDataset
    from pctx.engine.metrics import Scores
    from pctx.inference.predictor import Predictor

log = logging.getLogger(__name__)

EXAMPLES = """Examples:

pctx report runs/street/2026-03-01_12-00-00

pctx report runs/street/… -o report.html --split test --scans 200 --worst 8
"""

_PACKAGES = ("torch", "numpy", "pytorch-lightning", "hydra-core", "laspy", "open3d")
_SHOT = (560, 520)
"""Pixels of each of the three pictures of a scan."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Scored:
    """The scores of a scan."""

    name: str
    scores: Scores


def report(
    run: Annotated[Path, typer.Argument(help="The folder of a training run.", metavar="RUN")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; by default RUN/report.html.")
    ] = None,
    split: Annotated[str, typer.Option(help="The split whose scans are scored.")] = "val",
    scans: Annotated[
        int, typer.Option(help="Scans that are scored, evenly chosen; 0 for none.", min=0)
    ] = 50,
    worst: Annotated[int, typer.Option(help="Scans that are drawn.", min=0)] = 4,
    overwrite: Annotated[bool, typer.Option(help="Replace a page that exists.")] = False,
) -> None:
    """Write a page of a run: curves, classes, confusion, worst scans, configuration."""
    from pctx.data.io.atomic import replacing

    model, table = run / "model.pt", run / "metrics.csv"
    if not model.is_file() and not table.is_file():
        raise UsageError(f"{run}: no run of `pctx train` (neither model.pt nor metrics.csv)")
    path = out or run / "report.html"
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path}: exists already; --overwrite replaces it")
    config = run / ".hydra" / "config.yaml"
    scored: list[_Scored] = []
    shots: list[Shot] = []
    about = "no scans were scored"
    if not config.is_file():
        about += f": there is no {config}, which says where they lie"
    if scans and model.is_file() and config.is_file():
        scored, shots = _look(config, model, split, scans, worst)
        count = f"{len(scored)} scan{'s' if len(scored) > 1 else ''}"
        about = f"split {split}, {count}, every raw point"
    total = _sum([each.scores for each in scored]) if scored else None
    page = report_page(
        Report(
            title=f"{run.resolve().name}",
            about=_about(model),
            curves=_drawn("save_curves", table) if table.is_file() else None,
            scores=total,
            scored=about,
            confusion=_confusion(run, total),
            worst=shots,
            texts=_texts(run),
            environment=_environment(),
        )
    )
    with replacing(path, overwrite=overwrite) as beside:
        beside.write_text(page, encoding="utf-8")
    log.info("%s", path)


def _look(
    config: Path, model: Path, split: str, limit: int, worst: int
) -> tuple[list[_Scored], list[Shot]]:
    """Score the scans of a split, and draw those that went worst."""
    from pctx.cli.feeding import data_of, make_dataset
    from pctx.inference.predictor import Predictor

    dataset = make_dataset(data_of(config))
    names = dataset.scans(split)
    chosen = names[:: max(1, -(-len(names) // limit))]
    predictor = Predictor(model)
    scored = []
    for number, name in enumerate(chosen, start=1):
        scored.append(_Scored(name=name, scores=_score(dataset, predictor, name)))
        log.info("%d of %d: %s, mIoU %.3f", number, len(chosen), name, scored[-1].scores.miou)
    ranked = sorted(scored, key=lambda each: each.scores.miou)[:worst]
    return scored, [_draw(dataset, predictor, each) for each in ranked]


def _score(dataset: ScanDataset, predictor: Predictor, name: str) -> Scores:
    from pctx.engine.metrics import Scores, confusion_matrix

    cloud, labels = dataset.read(name), dataset.card.labels
    if cloud.label is None:
        raise ValueError(f"{name}: no labels to compare with")
    truth, found = labels.encode(cloud.label), predictor(cloud).label
    return Scores(labels=labels, confusion=confusion_matrix(truth, found, len(labels)))


def _sum(scores: list[Scores]) -> Scores:
    import numpy as np

    return replace(scores[0], confusion=np.sum([each.confusion for each in scores], axis=0))


def _draw(dataset: ScanDataset, predictor: Predictor, scored: _Scored) -> Shot:
    from pctx.vis.fields import make_scene
    from pctx.vis.figure import PAPER
    from pctx.vis.render import draw_row

    cloud, labels = dataset.read(scored.name), dataset.card.labels
    prediction = predictor(cloud)
    scenes = [
        make_scene(cloud, prediction, color=color, labels=labels, title=title)
        for color, title in (("label", "truth"), ("prediction", "prediction"), ("error", "error"))
    ]
    row = draw_row([scene.thin(1_000_000) for scene in scenes], size=_SHOT, background=PAPER)
    about = f"mIoU {scored.scores.miou:.3f}, OA {scored.scores.oa:.3f}"
    return Shot(name=scored.name, about=about, picture=_bytes(row.save))


def _about(model: Path) -> str:
    if not model.is_file():
        return "there is no model.pt yet"
    from pctx.checkpoint import load_checkpoint

    checkpoint = load_checkpoint(model)
    weights = sum(
        tensor.numel()
        for name, tensor in checkpoint.weights.items()
        if not name.endswith(("running_mean", "running_var", "num_batches_tracked"))
    )
    name = checkpoint.backbone.rpartition(".")[2]
    return f"{name}, {weights:,} parameters, voxels of {checkpoint.grid_size:g} m"


def _confusion(run: Path, scores: Scores | None) -> bytes | None:
    """Draw the matrix of what was scored, or take the picture that training left."""
    if scores is not None:
        return _drawn("save_confusion", scores)
    left = run / "confusion.png"
    return left.read_bytes() if left.is_file() else None


def _drawn(figure: str, about: object) -> bytes:
    from pctx.engine import figures

    save: Callable[[object, Path], None] = {
        "save_curves": figures.save_curves,
        "save_confusion": figures.save_confusion,
    }[figure]  # type: ignore[assignment]
    return _bytes(lambda path: save(about, path))


def _bytes(save: Callable[[Path], None]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="pctx-report-") as folder:
        path = Path(folder) / "picture.png"
        save(path)
        return path.read_bytes()


def _texts(run: Path) -> dict[str, str]:
    texts = {}
    for heading, name in (("Overrides", "overrides.yaml"), ("Configuration", "config.yaml")):
        path = run / ".hydra" / name
        if path.is_file():
            texts[heading] = path.read_text(encoding="utf-8", errors="replace")
    return texts


def _environment() -> dict[str, str]:
    from pctx import __version__

    found = {
        "pctx": __version__,
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
