"""Files labelled one after another, in this process or in several."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pctx.cli.config import choose_backend
from pctx.cli.predict_jobs import Job, named, share
from pctx.cli.progress import Task, points_progress

if TYPE_CHECKING:
    from pctx.checkpoint import Checkpoint
    from pctx.data.prediction import Prediction
    from pctx.geometry.points import PointCloud
    from pctx.inference.predictor import Predictor

log = logging.getLogger(__name__)

_IN_MEMORY = 0.5
"""Part of the memory that a whole file may take; a larger LAS or LAZ file is streamed."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be done with every file.

    Attributes:
        model: the model file.
        device: cpu, cuda, cuda:1, …
        backend: of sparse convolutions.
        settings: of the `Predictor`, `memory` among them.
        only: class numbers; points predicted as another keep their code.
        probabilities: whether they are written beside the class.
        measures: of certainty, written too.
        features: whether they are written too.
    """

    model: Path
    device: str
    backend: str
    settings: Mapping[str, Any]
    only: tuple[int, ...] | None
    probabilities: bool
    measures: tuple[str, ...]
    features: bool
    overwrite: bool
    quiet: bool


def run_jobs(order: Order, checkpoint: Checkpoint, jobs: Sequence[Job]) -> list[str]:
    """Label files in turn; name those that could not be done."""
    from pctx.data.io.atomic import sweep
    from pctx.inference.memory import part_large_tensors
    from pctx.inference.predictor import Predictor

    part_large_tensors()
    try:
        predictor = Predictor(checkpoint, order.device, features=order.features, **order.settings)
    except ValueError as error:
        raise ValueError(named(order.model, error)) from error
    choose_backend(predictor.model, order.backend)
    failed = []
    for folder in {job.target.parent for job in jobs}:
        sweep(folder)
    for number, job in enumerate(jobs, start=1):
        start = time.monotonic()
        task = Task(f"{job.source.name} ({number}/{len(jobs)})", order.quiet)
        try:
            count = _label(order, predictor, job, task)
        except (ValueError, OSError, MemoryError) as error:
            failed.append(named(job.source, error))
            continue
        if not order.quiet:
            seconds = time.monotonic() - start
            rate = f"{count / max(seconds, 1e-9):,.0f} points/s"
            log.info("%s: %s points, %.1f s, %s", job.target, f"{count:,}", seconds, rate)
    return failed


def run_workers(order: Order, jobs: Sequence[Job], workers: int) -> list[str]:
    """Label files in several processes, each with its part of the memory and the threads."""
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import active_children, get_context

    import torch

    threads = max(torch.get_num_threads() // workers, 1)
    shares = [part for part in share(jobs, workers) if part]
    failed = []
    # Spawned, as threads of torch and of CUDA do not survive a fork.
    with ProcessPoolExecutor(len(shares) or 1, mp_context=get_context("spawn")) as pool:
        running = [
            (part, pool.submit(_work, replace(order, device=_device(order, i)), part, threads))
            for i, part in enumerate(shares)
        ]
        for part, result in running:
            try:
                failed += result.result()
            except BrokenProcessPool:
                unfinished = [job for job in part if not job.target.exists()]
                failed += [f"{job.source}: its worker process was ended" for job in unfinished]
            except BaseException:  # stopped: the pool would wait until all is done
                for child in active_children():
                    child.terminate()
                raise
    return failed


def _work(order: Order, jobs: Sequence[Job], threads: int) -> list[str]:
    import torch

    from pctx.checkpoint import load_checkpoint

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(threads)
    return run_jobs(order, load_checkpoint(order.model), jobs)


def _device(order: Order, worker: int) -> str:
    """Spread workers over the GPUs of the machine."""
    import torch

    if order.device != "cuda":
        return order.device
    return f"cuda:{worker % torch.cuda.device_count()}"


def _label(order: Order, predictor: Predictor, job: Job, task: Task) -> int:
    if _is_streamed(order, predictor, job):
        return _stream(order, predictor, job, task)
    from pctx.data.coarseness import too_coarse
    from pctx.data.io.formats import read, write
    from pctx.data.io.unchanged import unchanged

    with unchanged(job.source):
        cloud = read(job.source)
        _warn_of_size(order, predictor, job, len(cloud))
        if coarse := too_coarse(cloud.coord[cloud.finite], predictor.checkpoint.grid_size):
            log.warning("%s: %s", job.source, coarse)
        with points_progress(task) as progress:
            prediction = predictor(cloud, progress)
    if order.only is not None:
        prediction = _keep_others(prediction, cloud, order.only)
    write(
        job.target,
        cloud,
        prediction=prediction,
        source=job.source,
        probabilities=order.probabilities,
        features=order.features,
        also=order.measures,
        overwrite=order.overwrite,
    )
    return len(cloud)


def _is_streamed(order: Order, predictor: Predictor, job: Job) -> bool:
    """Tell whether a file is too large to be read as a whole, and of a kind that need not be."""
    from pctx.data.io.las import count_points, is_las

    las = (".las", ".laz")
    if order.features or not job.target.name.lower().endswith(las):
        return False
    if not job.source.is_file() or not is_las(job.source):
        return False
    needed = count_points(job.source) * _point_bytes(predictor)
    return bool(needed > _IN_MEMORY * order.settings["memory"])


def _point_bytes(predictor: Predictor) -> int:
    """Estimate the bytes that a point takes where a whole file is in memory."""
    from pctx.inference.memory import POINT_BYTES

    return POINT_BYTES + 12 * len(predictor.checkpoint.labels)


def _warn_of_size(order: Order, predictor: Predictor, job: Job, count: int) -> None:
    """Say so where a file that cannot be streamed takes more than the memory."""
    needed, memory = count * _point_bytes(predictor), order.settings["memory"]
    if needed > memory:
        log.warning(
            "%s: its %s points take about %.2g GiB as a whole, more than the %.2g GiB of --memory; "
            "from .las or .laz to .las or .laz a file is labelled piece by piece",
            job.source,
            f"{count:,}",
            needed / 2**30,
            memory / 2**30,
        )


def _stream(order: Order, predictor: Predictor, job: Job, task: Task) -> int:
    from pctx.inference.streaming import Columns, label_las

    with points_progress(task) as progress:
        return label_las(
            predictor,
            job.source,
            job.target,
            columns=Columns(probabilities=order.probabilities, measures=order.measures),
            only=order.only,
            overwrite=order.overwrite,
            progress=progress,
        )


def _keep_others(prediction: Prediction, cloud: PointCloud, only: Sequence[int]) -> Prediction:
    if cloud.label is None:
        raise ValueError("--only-classes keeps the other labels, and the file has none")
    import numpy as np

    kept = np.where(np.isin(prediction.label, only), -1, cloud.label)
    if prediction.kept is not None:
        kept = np.where(prediction.kept >= 0, prediction.kept, kept)
    return replace(prediction, kept=kept)
