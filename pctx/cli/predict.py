"""pctx predict: label files with a model."""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pctx.cli.config import UsageError, named_numbers, pick_device

if TYPE_CHECKING:
    from pctx.data.labels import LabelSet
    from pctx.data.prediction import Prediction
    from pctx.geometry.points import PointCloud
    from pctx.inference.predictor import Predictor, Progress

log = logging.getLogger(__name__)

EXAMPLES = """Examples:

pctx predict model.pt scan.laz -o labelled.laz

pctx predict model.pt scans/ -o labelled/ --format laz

pctx predict model.pt 000000.bin -o 000000.label

pctx predict model.pt scan.ply -o out.ply --fill intensity=0 --entropy

pctx predict model.pt scan.laz -o scan.npz --features
"""


@dataclass(frozen=True)
class Job:
    """One file in, one file out."""

    source: Path
    target: Path


def predict(
    model: Annotated[
        str, typer.Argument(help="A model file, such as runs/…/model.pt.", metavar="MODEL")
    ],
    inputs: Annotated[list[str], typer.Argument(help="Files or folders.", metavar="INPUT")],
    out: Annotated[
        str, typer.Option("-o", "--out", help="A file for one input file, else a folder.")
    ],
    format_: Annotated[
        str | None,
        typer.Option("--format", help="Suffix of the files written: laz, las, ply, label, npz."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, …")] = "auto",
    tile: Annotated[
        float | None, typer.Option(help="Edge of a tile in metres; by default as large as fits.")
    ] = None,
    overlap: Annotated[
        float | None, typer.Option(help="Metres a tile sees around itself (50 voxels).")
    ] = None,
    views: Annotated[int, typer.Option(min=1, help="Forward passes a tile, each turned.")] = 1,
    probabilities: Annotated[
        bool, typer.Option(help="Write the probability of each class too.")
    ] = False,
    entropy: Annotated[bool, typer.Option(help="Write the entropy, 0 sure to 1 unsure.")] = False,
    features: Annotated[
        bool, typer.Option(help="Write what the model's last layer reads, as `feat` (npz only).")
    ] = False,
    fill: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="A value for a channel that the files lack."),
    ] = None,
    only_classes: Annotated[
        str | None,
        typer.Option(help="Comma-separated names: change only points predicted as one of these."),
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace files that exist.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Files read ahead.")] = 1,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Say only what went wrong.")] = False,
) -> None:
    """Label point clouds. Each file written has the points of its source, in their order."""
    from pctx.data.io.formats import write

    sources = [_path("INPUT", text) for text in inputs]
    jobs, failed = _jobs(sources, _path("-o", out), format_)
    predictor = _predictor(
        _path("MODEL", model),
        pick_device(device),
        tile=tile,
        overlap=overlap,
        views=views,
        fill=named_numbers("--fill", fill or []),
        features=features,
    )
    labels = predictor.checkpoint.labels
    only = _class_numbers(only_classes, labels)
    jobs = _allowed(jobs, labels, features, overwrite, failed)
    for number, (job, reading) in enumerate(_read_ahead(jobs, workers), start=1):
        try:
            start = time.monotonic()
            cloud = reading.result()
            with _bar(f"{job.source.name} ({number}/{len(jobs)})", quiet) as progress:
                prediction = predictor(cloud, progress)
            if only is not None:
                prediction = _keep_others(prediction, cloud, only)
            write(
                job.target,
                cloud,
                prediction=prediction,
                source=job.source,
                probabilities=probabilities,
                entropy=entropy,
                features=features,
                overwrite=overwrite,
            )
        except (ValueError, OSError) as error:
            failed.append(named(job.source, error))
            continue
        if not quiet:
            seconds = time.monotonic() - start
            rate = f"{len(cloud) / max(seconds, 1e-9):,.0f} points/s"
            log.info("%s: %s points, %.1f s, %s", job.target, f"{len(cloud):,}", seconds, rate)
    for sentence in failed:
        sys.stderr.write(f"pctx: {sentence}\n")
    if failed:
        raise typer.Exit(1)


def _path(what: str, text: str) -> Path:
    """Turn a word of the command line into a path; an empty one would name the current folder."""
    if not text:
        raise UsageError(f"{what} is empty; name a file or a folder")
    return Path(text)


def _predictor(model: Path, device: str, *, features: bool, **settings: Any) -> Predictor:
    from pctx.checkpoint import load_checkpoint
    from pctx.inference.predictor import Predictor, check_settings

    checkpoint = load_checkpoint(model)
    try:
        check_settings(checkpoint, **settings)
    except ValueError as error:
        raise UsageError(f"--{error}") from error
    return Predictor(checkpoint, device, features=features, **settings)


def _jobs(inputs: list[Path], out: Path, suffix: str | None) -> tuple[list[Job], list[str]]:
    """Pair files with what is written of them; name the inputs that cannot be done.

    Raises:
        UsageError: two inputs would be written to one file.
    """
    from pctx.data.io.formats import find_scans, output_suffix, suffix_of

    ending = None if suffix is None else "." + suffix.lower().lstrip(".")
    jobs, failed = [], []
    single = len(inputs) == 1 and not inputs[0].is_dir() and out.suffix and not out.is_dir()
    if single and ending is not None and not out.name.lower().endswith(ending):
        raise UsageError(f"-o {out} and --format {suffix} do not agree; leave one out")
    if not single and suffix_of(out) is not None and not out.is_dir():
        raise UsageError(f"-o {out} names a file; give a folder for the labels of several files")
    for source in inputs:
        if not source.exists():
            failed.append(f"{source}: no such file or folder")
        elif single:
            jobs.append(Job(source, out))
        elif source.is_dir():
            scans = find_scans(source)
            if not scans:
                failed.append(f"{source}: no readable scans in this folder")
            for scan in scans:
                target = out / scan.relative_to(source)
                jobs.append(Job(scan, _with_ending(target, ending or output_suffix(scan))))
        else:
            jobs.append(
                Job(source, _with_ending(out / source.name, ending or output_suffix(source)))
            )
    seen: dict[Path, Path] = {}
    for job in jobs:
        if job.target in seen:
            raise UsageError(
                f"{seen[job.target]} and {job.source} would both be written to {job.target}"
            )
        seen[job.target] = job.source
    return jobs, failed


def _allowed(
    jobs: list[Job], labels: LabelSet, features: bool, overwrite: bool, failed: list[str]
) -> list[Job]:
    """Keep the jobs whose file may be written; name the others before anything is computed."""
    from pctx.data.io.formats import check_output

    kept = []
    for job in jobs:
        try:
            check_output(
                job.target, labels, source=job.source, features=features, overwrite=overwrite
            )
            kept.append(job)
        except (ValueError, OSError) as error:
            failed.append(named(job.target, error))
    return kept


def _with_ending(path: Path, ending: str) -> Path:
    stem = path.name.removesuffix(".pcd.bin") if path.name.endswith(".pcd.bin") else path.stem
    return path.with_name(stem + ending)


def _read_ahead(jobs: list[Job], workers: int) -> Iterator[tuple[Job, Future[PointCloud]]]:
    """Read files in threads, at most `workers` beyond the one that is used."""
    from pctx.data.io.formats import read

    with ThreadPoolExecutor(max_workers=workers) as pool:
        waiting: deque[tuple[Job, Future[PointCloud]]] = deque()
        for job in jobs:
            waiting.append((job, pool.submit(read, job.source)))
            if len(waiting) > workers:
                yield waiting.popleft()
        while waiting:
            yield waiting.popleft()


def _class_numbers(names: str | None, labels: LabelSet) -> list[int] | None:
    if names is None:
        return None
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in labels.names:
            known = ", ".join(labels.names)
            raise UsageError(f"the model has no class {name!r}; it has {known}")
    return [labels.names.index(name) for name in wanted]


def _keep_others(prediction: Prediction, cloud: PointCloud, only: list[int]) -> Prediction:
    if cloud.label is None:
        raise ValueError("--only-classes keeps the other labels, and the file has none")
    import numpy as np

    return replace(prediction, kept=np.where(np.isin(prediction.label, only), -1, cloud.label))


@contextmanager
def _bar(title: str, quiet: bool) -> Iterator[Progress | None]:
    """Show a bar on a terminal, nothing elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def named(source: Path, error: Exception) -> str:
    """Say which file, where the message does not."""
    text = " ".join(str(error).split())
    return text if str(source) in text else f"{source}: {text}"
