"""FeatureSpec: which fields of a cloud a model reads, and how they are scaled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pctx.geometry.points import PointCloud

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
    """

    fields: tuple[str, ...]
    scales: Mapping[str, float] = field(default_factory=dict)
    centers: Mapping[str, float] = field(default_factory=dict)

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

    def extract(self, cloud: PointCloud, fill: Mapping[str, float] | None = None) -> np.ndarray:
        """Give (n, width) float32. Non-finite values of a field other than `coord` count as 0.

        Args:
            cloud: the whole cloud, not a tile of it: heights need the surroundings.
            fill: values for fields that the cloud lacks.

        Raises:
            ValueError: the cloud lacks a field that `fill` does not name.
        """
        columns = []
        for name in self.fields:
            values = _FIELDS.get(name, lambda c, name=name: c.extra.get(name))(cloud)
            width = _WIDTHS.get(name, 1)
            if values is None and fill is not None and name in fill:
                values = np.full((len(cloud), width), fill[name], dtype=np.float32)
            if values is None:
                raise ValueError(
                    f"the model reads {name}, which the cloud does not have; give a value for "
                    f"it (--fill {name}=0), or train without it"
                )
            values = np.asarray(values, dtype=np.float32).reshape(len(cloud), width)
            values = np.nan_to_num(values, nan=0, posinf=0, neginf=0)
            values = (values - _number(self.centers, name, 0)) / _number(self.scales, name, 1)
            columns.append(np.arcsinh(values) if name == "height" else values)
        return np.concatenate(columns, axis=1).astype(np.float32)

    def to_dict(self) -> dict[str, Any]:
        """Give plain lists and numbers."""
        scales, centers = (
            {name: float(value) for name, value in numbers.items() if name in self.fields}
            for numbers in (self.scales, self.centers)
        )
        given = {"centers": centers} if centers else {}  # older versions know none
        return {"fields": list(self.fields), "scales": scales, **given}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FeatureSpec:
        """Read the form that `to_dict` gives."""
        scales, centers = (
            {str(k): float(v) for k, v in (data.get(key) or {}).items()}
            for key in ("scales", "centers")
        )
        fields = tuple(str(name) for name in data["fields"])
        return cls(fields=fields, scales=scales, centers=centers)


def height_above_ground(coord: np.ndarray) -> np.ndarray:
    """Give (n,) float32 metres above the lowest finite point of the 3 x 3 cells around a point.

    Cells are squares of 4 m in x and y. Non-finite points get 0.
    """
    height = np.zeros(len(coord), dtype=np.float32)
    finite = np.isfinite(coord).all(axis=1)
    if not finite.any():
        return height
    cell = np.floor(coord[finite, :2].astype(np.float64) / GROUND_CELL)
    xy = cell.clip(-(2.0**30), 2.0**30).astype(np.int64)
    z = coord[finite, 2]
    # Cells by sorted key, so that one far stray point costs nothing.
    key = xy[:, 0] * 2**32 + xy[:, 1]
    cells, cell_of = np.unique(key, return_inverse=True)
    cell_of = cell_of.reshape(-1)
    lowest = np.full(len(cells), np.inf, dtype=np.float32)
    np.minimum.at(lowest, cell_of, z)
    around = lowest.copy()
    for dx in (-1, 0, 1):
        for dy in (-1, 0, 1):
            wanted = cells + dx * 2**32 + dy
            found = np.minimum(np.searchsorted(cells, wanted), len(cells) - 1)
            here = cells[found] == wanted
            around[here] = np.minimum(around[here], lowest[found[here]])
    height[finite] = z - around[cell_of]
    return height


def local_shape(coord: np.ndarray) -> np.ndarray:
    """Describe the points of each cube of 1 m: (n, 5) float32.

    With the eigenvalues a >= b >= c of their covariance, square roots taken (metres): linearity
    (a - b) / a, planarity (b - c) / a, scattering c / a; verticality 1 - |z of the normal|; and the
    roughness c, which the model sees as asinh(c / 2 cm). Cubes of fewer than 4 points, and points
    that are not finite, get zeros. (Demantke et al., Dimensionality based scale selection in 3D
    lidar point clouds, 2011.)
    """
    shape = np.zeros((len(coord), 5), dtype=np.float32)
    finite = np.isfinite(coord).all(axis=1)
    if not finite.any():
        return shape
    xyz = coord[finite].astype(np.float64)
    # 21 bits an axis: cubes repeat every 2000 km.
    cell = np.floor(xyz / SHAPE_CELL).clip(-(2.0**62), 2.0**62).astype(np.int64) & (2**21 - 1)
    key = (cell[:, 0] << 42) | (cell[:, 1] << 21) | cell[:, 2]
    _, cell_of = np.unique(key, return_inverse=True)
    cell_of = cell_of.reshape(-1)
    count = np.bincount(cell_of)
    mean = np.stack([np.bincount(cell_of, weights=axis) / count for axis in xyz.T], axis=1)
    centred = xyz - mean[cell_of]
    covariance = np.empty((len(count), 3, 3))
    for i in range(3):
        for j in range(i + 1):
            products = np.bincount(cell_of, weights=centred[:, i] * centred[:, j])
            covariance[:, i, j] = covariance[:, j, i] = products / count
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
    described = np.stack(columns, axis=1) * (count >= MIN_SHAPE_POINTS)[:, None]
    shape[finite] = described[cell_of]
    return shape


def _centred(cloud: PointCloud) -> np.ndarray:
    coord = cloud.coord
    finite = coord[cloud.finite]
    if not len(finite):
        return np.zeros_like(coord)
    low, high = finite.min(axis=0), finite.max(axis=0)
    middle = np.array([(low[0] + high[0]) / 2, (low[1] + high[1]) / 2, low[2]], dtype=np.float32)
    return coord - middle


def _number(numbers: Mapping[str, float], name: str, default: float) -> np.float32:
    return np.float32(numbers.get(name, default))


def _returns(cloud: PointCloud) -> np.ndarray | None:
    number, count = cloud.extra.get("return_number"), cloud.extra.get("number_of_returns")
    return None if number is None or count is None else np.stack([number, count], axis=1)


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
