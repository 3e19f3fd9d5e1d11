"""Audit: what the scans of a dataset hold, and what is wrong with them.

n points.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context

import numpy as np

from pctx.data.dataset import ScanDataset
from pctx.data.features import FeatureSpec
from pctx.data.spacing import median_spacing
from pctx.data.strays import STRAY, TAIL
from pctx.geometry.curves import MAX_DEPTH
from pctx.geometry.grid import voxelize
from pctx.geometry.points import PointCloud

MEASURED = 20
"""Scans of a split, evenly chosen, whose spacing and voxels are measured."""
_FEWEST_SIZED = 50
"""Points below which a cloud has no middle to be far from."""


@dataclass(frozen=True, kw_only=True)
class ScanFacts:
    """What was found in one scan. Lengths are in metres.

    Attributes:
        error: why it could not be read; nothing else is known then.
        points: how many there are.
        not_finite: how many have no finite position.
        stray: how many lie far outside.
        size: the longest side of the box of all but the outermost points.
        extent: the longest side of the box of all finite points.
        codes: points by raw id; None where there are no labels.
        missing: fields that the features name and the scan lacks.
        reach: by field, what 99 % of the absolute values that a model sees stay below.
        constant: fields whose values are all the same.
        digest: of the positions, in their order.
        spacing: the median one of a measured scan.
        voxels: of a measured scan, at the grid size.
    """

    split: str
    scan: str
    error: str | None = None
    points: int = 0
    not_finite: int = 0
    stray: int = 0
    size: float = 0.0
    extent: float = 0.0
    codes: Mapping[int, int] | None = None
    missing: tuple[str, ...] = ()
    reach: Mapping[str, float] = field(default_factory=dict)
    constant: tuple[str, ...] = ()
    digest: str = ""
    spacing: float | None = None
    voxels: int | None = None


@dataclass(frozen=True, kw_only=True)
class Question:
    """What every scan is asked.

    Attributes:
        features: the fields that a model will read; None asks for none.
        filled: fields that have a value where a scan lacks them.
        grid_size: metres.
    """

    features: FeatureSpec | None
    filled: tuple[str, ...] = ()
    grid_size: float


def survey(
    dataset: ScanDataset, splits: Mapping[str, Sequence[str]], question: Question, workers: int = 0
) -> Iterator[ScanFacts]:
    """Look at every scan, split by split, in order.

    Args:
        splits: the scans of each split.
        workers: processes; 0 reads in this one.
    """
    jobs = []
    for split, scans in splits.items():
        step = -(-len(scans) // MEASURED)
        jobs += [(split, scan, i % step == 0) for i, scan in enumerate(scans)]
    task = partial(look, dataset, question)
    if workers == 0:
        yield from map(task, jobs)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(task, jobs, chunksize=max(1, min(64, len(jobs) // (4 * workers))))


def look(dataset: ScanDataset, question: Question, job: tuple[str, str, bool]) -> ScanFacts:
    """Read a scan and say what it holds. `job`: split, scan, and whether to measure it."""
    split, scan, measured = job
    try:
        cloud = dataset.read(scan)
    except (ValueError, OSError) as error:
        return ScanFacts(split=split, scan=scan, error=" ".join(str(error).split()))
    codes = None
    if cloud.label is not None:
        ids, counts = np.unique(cloud.label, return_counts=True)
        codes = dict(zip(ids.tolist(), counts.tolist(), strict=True))
    coord = cloud.coord[cloud.finite]
    stray, size, extent = sizes(coord)
    features = question.features
    missing = features.missing(cloud) if features is not None and len(cloud) else []
    reach, constant = _ranges(cloud, features)
    fits = extent / question.grid_size < 2**MAX_DEPTH
    return ScanFacts(
        split=split,
        scan=scan,
        points=len(cloud),
        not_finite=len(cloud) - len(coord),
        stray=stray,
        size=size,
        extent=extent,
        codes=codes,
        missing=tuple(name for name in missing if name not in question.filled),
        reach=reach,
        constant=constant,
        digest=digest(cloud),
        spacing=median_spacing(coord) if measured else None,
        voxels=len(voxelize(coord, question.grid_size).first) if measured and fits else None,
    )


def sizes(coord: np.ndarray) -> tuple[int, float, float]:
    """Give the number of stray points of finite ones (n, 3), the size without them, the extent."""
    if not len(coord):
        return 0, 0.0, 0.0
    extent = float(np.ptp(coord.astype(np.float64), axis=0).max())
    if len(coord) < _FEWEST_SIZED:
        return 0, extent, extent
    low, middle, high = np.percentile(coord, [100 * TAIL, 50, 100 - 100 * TAIL], axis=0)
    size = float((high - low).max())
    far = (np.abs(coord - middle) > STRAY * max(size, 1e-3)).any(axis=1)
    return int(far.sum()), size, extent


def digest(cloud: PointCloud) -> str:
    """Give a short hash of where the points are, the same for the same points in the same order."""
    found = hashlib.blake2b(cloud.origin.astype("<f8").tobytes(), digest_size=16)
    found.update(np.ascontiguousarray(cloud.coord, dtype="<f4").tobytes())
    return found.hexdigest()


def _ranges(
    cloud: PointCloud, features: FeatureSpec | None
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Give how far the values of measured fields go as a model sees them, and which stand still."""
    reach: dict[str, float] = {}
    constant: list[str] = []
    if features is None or not len(cloud):
        return reach, ()
    columns = {"color": cloud.color, "intensity": cloud.intensity, "normal": cloud.normal}
    columns |= {**cloud.extra, "returns": cloud.extra.get("number_of_returns")}
    for name in features.fields:
        column = columns.get(name)
        if column is None or column.dtype.kind not in "fiub":
            continue
        values = column.astype(np.float64)
        values = values[np.isfinite(values)]
        if not len(values):
            continue
        if values.min() == values.max():
            constant.append(name)
        seen = np.abs(values - features.centers.get(name, 0)) / features.scales.get(name, 1)
        reach[name] = float(np.percentile(seen, 99))
    return reach, tuple(constant)
