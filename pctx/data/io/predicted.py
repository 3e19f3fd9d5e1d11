"""Predictions that were written into files, read back beside the scan they are of.

n points, c classes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pctx.data.io.companions import check_count
from pctx.data.io.errors import ReadError
from pctx.data.io.formats import read, suffix_of
from pctx.data.labels import LabelSet
from pctx.data.prediction import Prediction
from pctx.geometry.points import PointCloud

PROBABILITY = "probability_"
"""What the columns of probabilities in a file begin with; the class follows."""

_BARE = (".label", "_lidarseg.bin")
_HALF = 0xFFFF  # of a SemanticKITTI label, the class


def read_predicted(path: Path, scan: Path, num_points: int) -> PointCloud:
    """Read predicted classes, with what else was written beside them; bare labels have no place.

    Args:
        path: a scan with classes, a `.label` or a `_lidarseg.bin`.
        scan: what they were predicted for, to name it in errors.
        num_points: of the scan.

    Raises:
        ReadError: they are of another number of points, or there are no classes.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if (suffix_of(path) or "") in _BARE:
        size = path.stat().st_size
        kind = np.dtype("u1" if size == num_points else "<u4")
        check_count(scan, path, num_points, size // kind.itemsize)
        label = np.fromfile(path, kind).astype(np.int64)
        label = label if kind.itemsize == 1 else label & _HALF
        return PointCloud(coord=np.zeros((num_points, 3), np.float32), label=label)
    found = read(path)
    check_count(scan, path, num_points, len(found))
    if found.label is None:
        raise ReadError(f"{path}: there are no classes in this file")
    return found


def as_prediction(found: PointCloud, labels: LabelSet) -> Prediction:
    """Give what a file says as a prediction of the classes of `labels`.

    Raises:
        ValueError: the file has no classes, or ids that are in no class.
    """
    if found.label is None:
        raise ValueError("there are no classes to take for a prediction")
    columns = [found.extra.get(PROBABILITY + name) for name in labels.names]
    known = [column for column in columns if column is not None]
    measures = {
        name: None if found.extra.get(name) is None else np.asarray(found.extra[name], np.float32)
        for name in ("entropy", "variance")
    }
    return Prediction(
        label=labels.encode(found.label),
        labels=labels,
        probability=np.stack(known, axis=1) if len(known) == len(columns) else None,
        **measures,
    )
