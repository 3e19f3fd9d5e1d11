"""FeatureSpec: which fields of a cloud a model reads, and how they are scaled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pctx.geometry.curves import MAX_DEPTH
from pctx.geometry.grid import Voxelization, voxelize
from pctx.geometry.points import PointCloud, all_finite

SHAPE_CELL = 1.0
"""Metres: the edge of the cubes whose points are looked at together for their shape."""
MIN_SHAPE_POINTS = 4
"""Points in a cube below which it has no shape."""
GROUND_CELL = 4.0
"""Metres: the edge of the square cells whose lowest point stands for the ground."""


@dataclass(frozen=True, kw_only=True)
class FeatureSpec:
    """An ordered list of fields; the model sees each less its center, divided by its scale.

    Fields: `coord` (3: metres from the middle of the cloud's extent in x and y and from its
    lowest point), `sensor_coord` (3: metres from the origin, the sensor of a scan in its own
    frame), `height` (1: metres above the lowest point nearby; the model sees
    asinh(height / scale), fine near the ground and coarse far above), `range` (1: horizontal
    metres from the origin, the sensor of a scan in its own frame), `color` (3), `intensity` (1),
    `normal` (3), `returns` (2: return number and number of returns), `shape` (5: what the points
    within the same metre look like, see `local_shape`), or the name of any one-column entry of
    `PointCloud.extra` (1).

    Attributes:
        scales: divisors by field name; 1 where not named. Those of other fields stay unused.
        centers: subtracted before, by field name; 0 where not named.
        ranges: what was seen in training, by field name: see `pctx.data.ranges`. Not used here.
    """

    fields: tuple[str, ...]
    scales: Mapping[str, float] = field(default_factory=dict)
    centers: Mapping[str, float] = field(default_factory=dict)
    ranges: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.fields:
            raise ValueError("a feature list needs at least one field, such as height")
        if len(set(self.fields)) < len(self.fields):
            raise ValueError(f"features repeat: {', '.join(self.fields)}")
        for name, scale in self.scales.items():
            if name not in self.fields and name not in _FIELDS:
                raise ValueError(f"scale of {name!r}, which is not in {', '.join(self.fields)}")
            if not scale > 0:
                raise ValueError(f"the scale of {name} must be above 0, found {scale}")
        for name, center in self.centers.items():
            if name not in self.fields and name not in _FIELDS:
                raise ValueError(f"center of {name!r}, which is not in {', '.join(self.fields)}")
            if not np.isfinite(center):
                raise ValueError(f"the center of {name} must be a finite number, found {center}")

    @property
    def width(self) -> int:
        """The number of channels."""
        return sum(_WIDTHS.get(name, 1) for name in self.fields)

    @property
    def reach(self) -> np.ndarray:
        """(3,) metres around a point within which all others are needed for its features."""
        reaches = [_REACHES[name] for name in self.fields if name in _REACHES]
        return np.max([(0.0, 0.0, 0.0), *reaches], axis=0)

    def check_fill(self, fill: Mapping[str, float]) -> None:
        """Find out whether values can be filled in.

        Raises:
            ValueError: one is not finite, or of a field that is not read.
        """
        for name, value in fill.items():
            if name not in self.fields:
                raise ValueError(f"fill names {name}, but the model reads {', '.join(self.fields)}")
            if not np.isfinite(value):
                raise ValueError(f"fill of {name} must be a finite number, found {value}")

    def missing(self, cloud: PointCloud) -> list[str]:
        """Name the fields that a cloud lacks."""
        rows = cloud.select(slice(0))
        return [name for name in self.fields if self.read(rows, name) is None]

    def read(self, cloud: PointCloud, name: str) -> np.ndarray | None:
        """Give the raw values of a field, (n,) or (n, channels); None where a cloud lacks it."""
        values = _FIELDS[name](cloud) if name in _FIELDS else cloud.extra.get(name)
        return None if values is None else np.asarray(values)

    def extract(
        self,
        cloud: PointCloud,
        fill: Mapping[str, float] | None = None,
        middle: np.ndarray | None = None,
    ) -> np.ndarray:
        """Give (n, width) float32, channels one after another in memory.

        Non-finite values of a field other than `coord` count as 0.

        Args:
            cloud: the whole cloud, or a tile of it with all points within `reach` of those that
                count: heights need the surroundings.
            fill: values for fields that the cloud lacks.
            middle: (3,) what `coord` of a tile is relative to: the middle of the whole cloud's
                extent in x and y, and its lowest z.

        Raises:
            ValueError: the cloud lacks a field that `fill` does not name.
        """
        fill = fill or {}
        found = {name: self.read(cloud, name) for name in self.fields}
        if middle is not None and "coord" in found:
            found["coord"] = cloud.coord - middle
        missing = [name for name in self.fields if found[name] is None and name not in fill]
        if missing:
            raise ValueError(_lacking(missing))
        # A channel after another in memory, where each is worked on at a time.
        feat = np.empty((self.width, len(cloud)), dtype=np.float32)
        start = 0
        for name in self.fields:
            block = feat[start : start + _WIDTHS.get(name, 1)]
            start += len(block)
            values = found[name]
            block[:] = fill[name] if values is None else values.reshape(len(cloud), len(block)).T
            if not all_finite(block):
                block[~np.isfinite(block)] = 0
            if name in self.centers:
                block -= np.float32(self.centers[name])
            if name in self.scales:
                block /= np.float32(self.scales[name])
            if name == "height":
                np.arcsinh(block, out=block)
        return feat.T

    def to_dict(self) -> dict[str, Any]:
        """Give plain lists and numbers."""
        scales, centers = (
            {name: float(value) for name, value in numbers.items() if name in self.fields}
            for numbers in (self.scales, self.centers)
        )
        given = {"centers": centers} if centers else {}  # older versions know none
        if self.ranges:
            given["ranges"] = {name: float(value) for name, value in self.ranges.items()}
        return {"fields": list(self.fields), "scales": scales, **given}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FeatureSpec:
        """Read the form that `to_dict` gives."""
        numbers = {
            key: {str(k): float(v) for k, v in (data.get(key) or {}).items()}
            for key in ("scales", "centers", "ranges")
        }
        return cls(fields=tuple(str(name) for name in data["fields"]), **numbers)


def height_above_ground(coord: np.ndarray) -> np.ndarray:
    """Give (n,) float32 metres above the lowest finite point of the 3 x 3 cells around a point.

    Cells are squares of 4 m in x and y. Non-finite points get 0.
    """
    known, axes = _finite_axes(coord)
    if not axes.size:
        return np.zeros(len(coord), dtype=np.float32)
    cells = _cells(np.floor(axes[:2].astype(np.float64) / GROUND_CELL))
    z = axes[2]
    lowest = np.minimum.reduceat(z[cells.order], cells.starts[:-1])
    # Cells by sorted key, so that one far stray point costs nothing.
    key = cells.grid_coord[:, 0] * 2**32 + cells.grid_coord[:, 1]
    around = lowest.copy()
    for dx in (-1, 0, 1):
        for dy in (-1, 0, 1):
            wanted = key + (dx * 2**32 + dy)
            place = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
            here = key[place] == wanted
            around[here] = np.minimum(around[here], lowest[place[here]])
    return _spread([z - around[cells.inverse]], known)[:, 0]


def local_shape(coord: np.ndarray) -> np.ndarray:
    """Describe the points of each cube of 1 m: (n, 5) float32.

    With the eigenvalues a >= b >= c of their covariance, square roots taken (metres): linearity
    (a - b) / a, planarity (b - c) / a, scattering c / a; verticality 1 - |z of the normal|; and the
    roughness c, which the model sees as asinh(c / 2 cm). Cubes of fewer than 4 points, and points
    that are not finite, get zeros. (Demantke et al., Dimensionality based scale selection in 3D
    lidar point clouds, 2011.)
    """
    known, axes = _finite_axes(coord)
    if not axes.size:
        return np.zeros((len(coord), 5), dtype=np.float32)
    xyz = axes.astype(np.float64)
    cells = _cells(np.floor(xyz / SHAPE_CELL))
    cell_of, count = cells.inverse, cells.counts
    covariance = np.empty((len(count), 3, 3))
    for axis in xyz:
        axis -= (np.bincount(cell_of, weights=axis) / count)[cell_of]
    for i in range(3):
        for j in range(i + 1):
            products = np.bincount(cell_of, weights=xyz[i] * xyz[j])
            covariance[:, i, j] = covariance[:, j, i] = products / count
    described = np.zeros((5, len(count)), dtype=np.float32)
    full = count >= MIN_SHAPE_POINTS
    described[:, full] = _describe(covariance[full]).T
    return _spread([column.take(cell_of) for column in described], known)


def _finite_axes(coord: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
    """Give the finite points (3, m), and which of all they are: None where all are.

    Axis by axis in memory: over the rows of a narrow array numpy is many times slower.
    """
    known = None if all_finite(coord) else np.isfinite(coord).all(axis=1)
    return known, np.ascontiguousarray((coord if known is None else coord[known]).T)


def _spread(columns: Sequence[np.ndarray], known: np.ndarray | None) -> np.ndarray:
    """Give every point its row (n, c) of columns of the finite ones; the others have zeros."""
    if known is None:
        return np.stack(columns).T
    values = np.zeros((len(columns), len(known)), dtype=np.float32)
    values[:, known] = columns
    return values.T


def _describe(covariance: np.ndarray) -> np.ndarray:
    """Give the five numbers of `local_shape` for (k, 3, 3) covariances."""
    values, vectors = np.linalg.eigh(covariance)  # ascending
    c, b, a = np.sqrt(values.clip(0)).T
    longest = np.maximum(a, 1e-6)
    columns = [
        (a - b) / longest,
        (b - c) / longest,
        c / longest,
        1 - np.abs(vectors[:, 2, 0]),
        np.arcsinh(c / 0.02),
    ]
    return np.stack(columns, axis=1)


def _cells(cell: np.ndarray) -> Voxelization:
    """Group points by their cells' numbers (2, n) or (3, n), whole float64 ones.

    Where an axis takes more than 21 bits, cells further than 2**20 from the middle one count as
    that far away.
    """
    if np.ptp(cell, axis=1).max() >= 1 << MAX_DEPTH:
        reach = (1 << (MAX_DEPTH - 1)) - 1
        middle = np.median(cell, axis=1, keepdims=True).round()
        cell = cell.clip(middle - reach, middle + reach)
    flat = np.zeros((3 - len(cell), cell.shape[1]))
    return voxelize(np.concatenate([cell, flat]).T, 1.0)


def _centred(cloud: PointCloud) -> np.ndarray:
    known, finite = _finite_axes(cloud.coord)
    if not finite.size:
        return np.zeros_like(cloud.coord)
    low, high = finite.min(axis=1), finite.max(axis=1)
    middle = np.array([(low[0] + high[0]) / 2, (low[1] + high[1]) / 2, low[2]], dtype=np.float32)
    if known is None:
        return (finite - middle[:, None]).T
    return cloud.coord - middle


def _lacking(names: Sequence[str]) -> str:
    """Say which fields a cloud lacks, and what helps."""
    one = len(names) == 1
    listed = names[0] if one else f"{', '.join(names[:-1])} and {names[-1]}"
    flags = " ".join(f"--fill {name}=0" for name in names)
    keys = ", ".join(f"{name}: 0" for name in names)
    return (
        f"the model reads {listed}, which the cloud does not have; give "
        f"{'a value for it' if one else 'values for them'} ({flags}; in a configuration "
        f"data.fill='{{{keys}}}'), or train without {'it' if one else 'them'}"
    )


def _returns(cloud: PointCloud) -> np.ndarray | None:
    number, count = cloud.extra.get("return_number"), cloud.extra.get("number_of_returns")
    return None if number is None or count is None else np.stack([number, count], axis=1)


# The cells of heights and the cubes of shapes may lie askew to the tiles: times sqrt(2) and more.
_REACHES = {
    "height": (3 * GROUND_CELL, 3 * GROUND_CELL, np.inf),
    "shape": (2 * SHAPE_CELL, 2 * SHAPE_CELL, 2 * SHAPE_CELL),
}
_WIDTHS = {"coord": 3, "sensor_coord": 3, "color": 3, "normal": 3, "returns": 2, "shape": 5}
_FIELDS: dict[str, Callable[[PointCloud], np.ndarray | None]] = {
    "coord": _centred,
    "sensor_coord": lambda cloud: cloud.coord,
    "height": lambda cloud: height_above_ground(cloud.coord),
    "range": lambda cloud: np.hypot(cloud.coord[:, 0], cloud.coord[:, 1]),
    "color": lambda cloud: cloud.color,
    "intensity": lambda cloud: cloud.intensity,
    "normal": lambda cloud: cloud.normal,
    "returns": _returns,
    "shape": lambda cloud: local_shape(cloud.coord),
}
