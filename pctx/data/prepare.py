"""The one way from a raw cloud to what a model reads, and back to every raw point.

n raw points, m voxels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from pctx.data.features import FeatureSpec
from pctx.data.labels import IGNORE_INDEX, LabelSet
from pctx.geometry.grid import voxelize as voxelize_coord
from pctx.geometry.points import PointBatch, PointCloud


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """One prepared cloud.

    Attributes:
        points: the voxels of the finite points, a batch of one cloud.
        inverse: the voxel of each raw point; -1 where the point is not finite.
        label: class number of each raw point, -1 ignored; None where the cloud has no labels.
    """

    points: PointBatch
    inverse: Int[Tensor, "n"]
    label: Int[Tensor, "n"] | None = None

    def spread(self, voxel_label: Int[Tensor, "m"]) -> Int[Tensor, "n"]:
        """Give every raw point the class number of its voxel; -1 where it has none."""
        padded = torch.cat([voxel_label, voxel_label.new_full((1,), IGNORE_INDEX)])
        return padded[self.inverse.to(padded.device)]


def prepare(
    cloud: PointCloud,
    *,
    grid_size: float,
    features: FeatureSpec,
    labels: LabelSet | None = None,
    fill: Mapping[str, float] | None = None,
) -> Sample:
    """Turn a raw cloud into voxels: means of coordinates and features, the commonest label.

    Args:
        grid_size: edge of a voxel, metres.
        labels: maps the cloud's raw ids to class numbers; None leaves labels out.
        fill: values for fields that `features` names and the cloud lacks.

    Raises:
        ValueError: a field is missing, a raw id is unknown, or the extent is too large for the
            grid size.
    """
    feat = features.extract(cloud, fill)
    label = None
    if labels is not None and cloud.label is not None:
        label = labels.encode(cloud.label)
    return prepare_rows(cloud.coord, feat, label, np.flatnonzero(cloud.finite), grid_size)


def prepare_rows(
    coord: np.ndarray,
    feat: np.ndarray,
    label: np.ndarray | None,
    rows: np.ndarray,
    grid_size: float,
) -> Sample:
    """Voxelise some rows (finite ones) of a cloud whose features are extracted already."""
    voxels = voxelize_coord(coord[rows], grid_size)
    inverse = np.full(len(coord), -1, dtype=np.int64)
    inverse[rows] = voxels.inverse
    m = len(voxels.first)
    voxel_label = None if label is None else _commonest(label[rows], voxels.inverse, m)
    points = PointBatch(
        coord=torch.from_numpy(_means(coord[rows], voxels.inverse, m)),
        grid_coord=torch.from_numpy(voxels.grid_coord),
        feat=torch.from_numpy(_means(feat[rows], voxels.inverse, m)),
        offsets=torch.tensor([0, m]),
        label=None if voxel_label is None else torch.from_numpy(voxel_label),
    )
    raw_label = None if label is None else torch.from_numpy(label)
    return Sample(points=points, inverse=torch.from_numpy(inverse), label=raw_label)


def voxelize(
    cloud: PointCloud,
    grid_size: float,
    features: FeatureSpec,
    labels: LabelSet | None = None,
) -> PointBatch:
    """Turn a raw cloud into a batch of one cloud of voxels; see `prepare`."""
    return prepare(cloud, grid_size=grid_size, features=features, labels=labels).points


def crop(points: PointBatch, max_points: int, rng: np.random.Generator) -> PointBatch:
    """Keep the `max_points` voxels nearest in x and y to a random voxel of a one-cloud batch."""
    if len(points) <= max_points:
        return points
    xy = points.coord[:, :2]
    centre = xy[int(rng.integers(len(points)))]
    near = (xy - centre).square().sum(dim=1).argsort(stable=True)[:max_points]
    keep = near.sort().values
    return replace(
        points,
        coord=points.coord[keep],
        grid_coord=points.grid_coord[keep],
        feat=points.feat[keep],
        offsets=torch.tensor([0, max_points]),
        label=None if points.label is None else points.label[keep],
    )


def _means(values: np.ndarray, voxel: np.ndarray, m: int) -> np.ndarray:
    """Average the columns of (n, c) over each voxel, summed in float64: (m, c) float32."""
    counts = np.bincount(voxel, minlength=m)
    sums = [np.bincount(voxel, weights=column, minlength=m) for column in values.T]
    return (np.stack(sums, axis=1) / counts[:, None]).astype(np.float32)


def _commonest(label: np.ndarray, voxel: np.ndarray, m: int) -> np.ndarray:
    """Give each voxel its most frequent class number (m,); ignored points vote only alone."""
    classes = int(label.max(initial=0)) + 1
    known = label != IGNORE_INDEX
    pairs, votes = np.unique(voxel[known] * classes + label[known], return_counts=True)
    # Ascending votes, then descending classes: the last write wins, ties go to the lowest class.
    order = np.lexsort((-pairs, votes))
    result = np.full(m, IGNORE_INDEX, dtype=np.int64)
    result[pairs[order] // classes] = pairs[order] % classes
    return result
