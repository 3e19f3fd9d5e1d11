"""The one way from a raw cloud to what a model reads, and back to every raw point.

n raw points, m voxels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from pctx.data.features import FeatureSpec
from pctx.data.labels import IGNORE_INDEX, LabelSet
from pctx.data.parcel import pinned
from pctx.geometry.grid import Voxelization
from pctx.geometry.grid import voxelize as voxelize_coord
from pctx.geometry.hierarchy import Hierarchy
from pctx.geometry.points import PointBatch, PointCloud, all_finite
from pctx.geometry.voxel_values import draw_points, take_rows, voxel_labels, voxel_means

OFF_FACE = np.float32(0.0005)
"""Metres that points are moved by to find their voxel. Surveys are in whole millimetres or more, so
that many points lie in a face of voxels of 0.4 m, where the last bit of a float32 would decide: of
real tiles, 1 to 5 % of the labels changed where the whole tile was moved by whole metres."""

_WHOLE = 1e-12
"""Part of a distance that rounding may leave of it, where it is whole voxels."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """One prepared cloud.

    Attributes:
        points: the voxels of the finite points, a batch of one cloud.
        inverse: the voxel of each raw point; -1 where the point is not finite.
        label: class number of each raw point, -1 ignored; None where the cloud has no labels.
        hierarchy: a plan of the voxels; None where nobody planned.
    """

    points: PointBatch
    inverse: Int[Tensor, "n"]
    label: Int[Tensor, "n"] | None = None
    hierarchy: Hierarchy | None = None

    def spread(self, voxel_label: Int[Tensor, "m"]) -> Int[Tensor, "n"]:
        """Give every raw point the class number of its voxel; -1 where it has none."""
        padded = torch.cat([voxel_label, voxel_label.new_full((1,), IGNORE_INDEX)])
        return padded[self.inverse.to(padded.device)]

    def to(self, device: torch.device | str) -> Sample:
        """Copy voxels and plan to a device; the raw labels and the way back stay where they are."""
        plan = self.hierarchy
        return replace(
            self,
            points=self.points.to(device),
            hierarchy=None if plan is None else plan.to(device),
        )

    def pin_memory(self) -> Sample:
        """Copy every tensor to memory that a GPU reads by itself."""
        copied: Sample = pinned(self)
        return copied


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
    columns = _columns(cloud, features, labels, fill)
    rows = np.flatnonzero(cloud.finite)
    return prepare_rows(*columns, rows, grid_size, anchor_of(cloud.coord))


def anchor_of(coord: np.ndarray) -> np.ndarray:
    """Give (3,): the median of the finite ones of points (n, 3), rounded to whole metres.

    Voxels and cells that begin there lie as they did, relative to the points, if a cloud is moved
    by whole metres, also by such as are no multiple of their edge. The lowest point would do as
    well, but a stray one would then move all voxels; the median hardly moves.
    """
    if not all_finite(coord):
        coord = coord[np.isfinite(coord).all(axis=1)]
    if not len(coord):
        return np.zeros(3)
    anchor: np.ndarray = np.round(np.median(coord, axis=0).astype(np.float64))
    return anchor


def prepare_rows(
    coord: np.ndarray,
    feat: np.ndarray,
    label: np.ndarray | None,
    rows: np.ndarray,
    grid_size: float,
    anchor: np.ndarray | None = None,
) -> Sample:
    """Voxelise some rows (finite ones, ascending) of a cloud whose features are extracted.

    A voxel begins at `anchor` (3,), metres; by default at 0.
    """
    voxels, points = _gather(coord, feat, label, rows, grid_size, anchor=anchor)
    inverse = np.full(len(coord), -1, dtype=np.int64)
    inverse[rows] = voxels.inverse
    raw_label = None if label is None else torch.from_numpy(label)
    return Sample(points=points, inverse=torch.from_numpy(inverse), label=raw_label)


def voxelize(
    cloud: PointCloud,
    grid_size: float,
    features: FeatureSpec,
    labels: LabelSet | None = None,
    fill: Mapping[str, float] | None = None,
    rng: np.random.Generator | None = None,
) -> PointBatch:
    """Turn a raw cloud into a batch of one cloud of voxels; as `prepare`, but with no way back.

    Args:
        rng: draws a point of each voxel, whose coordinates, features and label stand for it, as in
            published recipes; None takes the means of all and the commonest label.
    """
    columns = _columns(cloud, features, labels, fill)
    rows = None if all_finite(cloud.coord) else np.flatnonzero(cloud.finite)
    return _gather(*columns, rows, grid_size, rng)[1]


def crop(
    points: PointBatch,
    max_points: int,
    rng: np.random.Generator,
    centers: Literal["uniform", "balanced"] = "uniform",
    class_weights: np.ndarray | None = None,
) -> PointBatch:
    """Keep the `max_points` voxels nearest in x and y to a random voxel of a one-cloud batch.

    Args:
        points: one cloud.
        max_points: voxels that are kept; a smaller cloud comes back as it is.
        rng: draws the voxel in the middle.
        centers: `uniform`: each voxel is as likely as another; `balanced`: each class that the
            cloud has is, and then each of its voxels, so that a voxel counts by the inverse
            frequency of its class. Ignored voxels are then drawn only where there are no others.
        class_weights: (classes,) how much likelier each class is to be drawn than another that the
            cloud has too; None: as likely.
    """
    if len(points) <= max_points:
        return points
    xy = points.coord[:, :2]
    choice = np.arange(len(points))
    if centers == "balanced" and points.label is not None:
        label = points.label.numpy()
        if len(classes := np.unique(label[label != IGNORE_INDEX])):
            share = None if class_weights is None else class_weights[classes]
            drawn = rng.choice(classes, p=None if share is None else share / share.sum())
            choice = np.flatnonzero(label == drawn)
    centre = xy[int(choice[rng.integers(len(choice))])]
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


def _columns(
    cloud: PointCloud,
    features: FeatureSpec,
    labels: LabelSet | None,
    fill: Mapping[str, float] | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Give what is voxelised, a row a raw point: coordinates, features, class numbers."""
    feat = features.extract(cloud, fill)
    if labels is None or cloud.label is None:
        return cloud.coord, feat, None
    return cloud.coord, feat, labels.encode(cloud.label)


def _gather(
    coord: np.ndarray,
    feat: np.ndarray,
    label: np.ndarray | None,
    rows: np.ndarray | None,
    grid_size: float,
    rng: np.random.Generator | None = None,
    anchor: np.ndarray | None = None,
) -> tuple[Voxelization, PointBatch]:
    if rows is not None and len(rows) < len(coord):
        coord, feat = coord[rows], feat[rows]
        label = None if label is None else label[rows]
    voxels = voxelize_coord(coord + _off_face(anchor, grid_size), grid_size)
    if rng is None:
        coord, feat = voxel_means(coord, voxels), voxel_means(feat, voxels)
        label = None if label is None else voxel_labels(label, voxels)
    else:
        drawn = draw_points(voxels, rng)
        coord, feat = take_rows(coord, drawn), take_rows(feat, drawn)
        label = None if label is None else label[drawn]
    batch = PointBatch(
        coord=torch.from_numpy(coord),
        grid_coord=torch.from_numpy(voxels.grid_coord),
        feat=torch.from_numpy(feat),
        offsets=torch.tensor([0, len(voxels)]),
        label=None if label is None else torch.from_numpy(label),
    )
    return voxels, batch


def _off_face(anchor: np.ndarray | None, grid_size: float) -> np.ndarray | np.float32:
    """Say by what points are moved to find their voxel: no further than they must."""
    if anchor is None or not grid_size > 0:  # which voxels refuse
        return OFF_FACE
    anchor = anchor.astype(np.float64)
    beyond = anchor - np.round(anchor / grid_size) * grid_size
    # What is left of whole voxels by rounding is none.
    beyond[np.abs(beyond) < _WHOLE * np.abs(anchor)] = 0
    return OFF_FACE - beyond.astype(np.float32)
