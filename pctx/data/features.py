"""FeatureSpec: which fields of a cloud a model reads, and how they are scaled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np

from pctx.data.surroundings import (
    GROUND_CELL,
    SHAPE_CELL,
    finite_axes,
    height_above_ground,
    local_shape,
)
from pctx.data.terrain import TERRAIN_REACH, height_above_terrain
from pctx.geometry.points import PointCloud, all_finite


@dataclass(frozen=True, kw_only=True)
class FeatureSpec:
    """An ordered list of fields; the model sees each less its center, divided by its scale.

    Fields: `coord` (3: metres from the middle of the cloud's extent in x and y and from its
    lowest point), `sensor_coord` (3: metres from the origin, the sensor of a scan in its own
    frame), `height` (1: metres above the lowest point nearby; the model sees
    asinh(height / scale), fine near the ground and coarse far above), `terrain_height` (1: the same
    above the ground that `pctx.data.terrain` finds: for tiles from the air), `range` (1: horizontal
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
            if name in _HEIGHTS:
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


def _centred(cloud: PointCloud) -> np.ndarray:
    known, finite = finite_axes(cloud.coord)
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
    strange = [name for name in names if name not in _FIELDS]
    close = [known for name in strange for known in get_close_matches(name, _FIELDS, n=1)]
    meant = f" (did you mean {close[0]}?)" if close else ""
    return (
        f"the model reads {listed}, which the cloud does not have{meant}; give "
        f"{'a value for it' if one else 'values for them'} ({flags}; in a configuration "
        f"data.fill='{{{keys}}}'), or train without {'it' if one else 'them'}"
    )


def _returns(cloud: PointCloud) -> np.ndarray | None:
    number, count = cloud.extra.get("return_number"), cloud.extra.get("number_of_returns")
    return None if number is None or count is None else np.stack([number, count], axis=1)


# The cells of heights and the cubes of shapes may lie askew to the tiles: times sqrt(2) and more.
_REACHES = {
    "height": (3 * GROUND_CELL, 3 * GROUND_CELL, np.inf),
    "terrain_height": (TERRAIN_REACH, TERRAIN_REACH, np.inf),
    "shape": (2 * SHAPE_CELL, 2 * SHAPE_CELL, 2 * SHAPE_CELL),
}
_HEIGHTS = ("height", "terrain_height")
_WIDTHS = {"coord": 3, "sensor_coord": 3, "color": 3, "normal": 3, "returns": 2, "shape": 5}
_FIELDS: dict[str, Callable[[PointCloud], np.ndarray | None]] = {
    "coord": _centred,
    "sensor_coord": lambda cloud: cloud.coord,
    "height": lambda cloud: height_above_ground(cloud.coord),
    "terrain_height": lambda cloud: height_above_terrain(cloud.coord),
    "range": lambda cloud: np.hypot(cloud.coord[:, 0], cloud.coord[:, 1]),
    "color": lambda cloud: cloud.color,
    "intensity": lambda cloud: cloud.intensity,
    "normal": lambda cloud: cloud.normal,
    "returns": _returns,
    "shape": lambda cloud: local_shape(cloud.coord),
}
