"""Which file is predicted into which, and who of several processes does it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pctx.cli.config import UsageError

if TYPE_CHECKING:
    from pctx.data.labels import LabelSet

_PATIENCE = 0.2
"""Seconds between two looks at whether the others have finished."""


@dataclass(frozen=True)
class Job:
    """One file in, one file out."""

    source: Path
    target: Path


@dataclass(frozen=True)
class Rank:
    """One of several processes that share the files; the only one where nothing says otherwise.

    Attributes:
        number: from 0.
        count: processes on all machines.
        local: number on this machine.
        local_count: processes on this machine.
    """

    number: int = 0
    count: int = 1
    local: int = 0
    local_count: int = 1

    def wait_for_all(self) -> None:
        """Wait until every process is here: torchrun ends all others when one of them fails."""
        if self.count == 1 or "TORCHELASTIC_RUN_ID" not in os.environ:
            return
        from torch.distributed.rendezvous import rendezvous

        store, _, _ = next(rendezvous("env://"))
        store.add("pctx/finished", 1)
        while store.add("pctx/finished", 0) < self.count:
            time.sleep(_PATIENCE)


def find_rank() -> Rank:
    """Read what torchrun tells each process: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE.

    Raises:
        UsageError: they are no whole numbers, or do not go together.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    texts = [os.environ.get(name, default) for name, default in zip(names, "0101", strict=True)]
    try:
        rank = Rank(*map(int, texts))
    except ValueError:
        rank = Rank(number=-1)
    if not (0 <= rank.number < rank.count and 0 <= rank.local < rank.local_count):
        told = ", ".join(f"{name}={text}" for name, text in zip(names, texts, strict=True))
        raise UsageError(f"{told} do not go together; start with torchrun, or set none of them")
    return rank


def find_jobs(inputs: list[Path], out: Path, suffix: str | None) -> tuple[list[Job], list[str]]:
    """Pair files with what is written of them; name the inputs that cannot be done.

    Files below `out` are outputs of an earlier run and no inputs.

    Raises:
        UsageError: two inputs would be written to one file.
    """
    from pctx.data.io.arrays import is_scan_folder
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
        elif source.is_dir() and not is_scan_folder(source):
            scans = [scan for scan in find_scans(source) if not _is_below(scan, out, source)]
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
                f"{seen[job.target]} and {job.source} would both be written to {job.target}; "
                "label them into folders of their own"
            )
        seen[job.target] = job.source
    return jobs, failed


def share(jobs: Sequence[Job], count: int) -> list[list[Job]]:
    """Deal jobs to so many processes, the largest first, each to the one that has least to do.

    Every process that sees the same files comes to the same result.
    """
    shares: list[list[Job]] = [[] for _ in range(count)]
    loads = [0] * count
    for job in sorted(jobs, key=lambda job: (-_size(job.source), str(job.source))):
        least = loads.index(min(loads))
        shares[least].append(job)
        loads[least] += max(_size(job.source), 1)
    place = {job: number for number, job in enumerate(jobs)}
    return [sorted(part, key=lambda job: place[job]) for part in shares]


def allowed(
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
            # What cannot be written is told in a sentence; what cannot be read has a number.
            of_source = _has_number(error) or str(job.source) in str(error)
            failed.append(named(job.source if of_source else job.target, error))
    return kept


def named(source: Path, error: BaseException) -> str:
    """Say which file, where the message does not."""
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    text = " ".join(told.split())
    return text if str(source) in text else f"{source}: {text}"


def _has_number(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno is not None


def _is_below(scan: Path, out: Path, source: Path) -> bool:
    """Tell whether a scan lies in the folder of outputs, where that is within the inputs."""
    # Path.resolve ends at a link that leads to itself, which is a scan that cannot be read.
    inner, outer, scan = (Path(os.path.realpath(path)) for path in (out, source, scan))
    return inner != outer and inner.is_relative_to(outer) and scan.is_relative_to(inner)


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    return path.stat().st_size


def _with_ending(path: Path, ending: str) -> Path:
    stem = path.name.removesuffix(".pcd.bin") if path.name.endswith(".pcd.bin") else path.stem
    return path.with_name(stem + ending)
