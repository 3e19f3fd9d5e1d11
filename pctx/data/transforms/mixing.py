"""Mixtures of two clouds.

Both are taken in their own frames, as if their origins were one: two scans by their sensors, two
rooms by their middles where `Center` goes before. n points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import pi

import numpy as np

from pctx.data.transforms.arguments import (
    check_above_zero,
    check_counts,
    check_ids,
    check_interval,
    check_share,
    is_list,
)
from pctx.data.transforms.geometric import extent, rotation
from pctx.data.transforms.lidar import inclination
from pctx.data.transforms.protocol import Mix
from pctx.geometry.points import PointCloud

FULL_TURN = 2 * pi


@dataclass(frozen=True, kw_only=True)
class Mix3D(Mix):
    """Put two clouds into one (Nekrasov et al., Mix3D: Out-of-Context Data Augmentation, 2021)."""

    probability: float = 0.8

    def __post_init__(self) -> None:
        check_share(self, probability=self.probability)

    def __call__(
        self, cloud: PointCloud, other: PointCloud, rng: np.random.Generator
    ) -> PointCloud:
        """Give all points of both."""
        return union(cloud, other)


@dataclass(frozen=True, kw_only=True)
class PolarMix(Mix):
    """Swap a sector, and paste objects turned about the sensor (Xiao et al., PolarMix, 2022).

    Attributes:
        classes: raw ids of the objects that are pasted; none pastes nothing.
        copies: turned copies of the objects, beside one as it is; copy j of c is turned by a
            uniform angle in [j, j + 1] / (c + 1) of a full turn.
        swap: probability of swapping half a turn, from a uniform angle on.
        paste: probability of pasting.
        probability: of doing anything.
    """

    classes: Sequence[int] = ()
    copies: int = 2
    swap: float = 0.5
    paste: float = 1.0
    probability: float = 1.0

    def __post_init__(self) -> None:
        check_ids(self, classes=self.classes)
        check_counts(self, 0, copies=self.copies)
        check_share(self, swap=self.swap, paste=self.paste, probability=self.probability)

    def __call__(
        self, cloud: PointCloud, other: PointCloud, rng: np.random.Generator
    ) -> PointCloud:
        """Give the cloud with the other's half, and with its objects."""
        parts = [cloud]
        if rng.random() < self.swap:
            start = rng.uniform(-pi, pi)
            mine, theirs = (in_sector(part.coord, start) for part in (cloud, other))
            parts = [_outside(cloud, mine), _inside(other, theirs)]
        if rng.random() < self.paste and other.label is not None and len(self.classes):
            objects = other.select(rows_of(other, self.classes))
            parts.append(objects)
            for copy in range(self.copies):
                angle = (rng.random() + copy) * FULL_TURN / (self.copies + 1)
                parts.append(turned(objects, angle))
        return union(*parts)


@dataclass(frozen=True, kw_only=True)
class LaserMix(Mix):
    """Take turns by bands of inclination (Kong et al., LaserMix, 2023).

    The bands, counted from above, are by turns of the cloud and of the other.

    Attributes:
        bands: one of these numbers of bands is drawn.
        low: inclination in radians where the lowest band begins; what lies beyond is of it.
        high: the same for the highest.
        probability: of mixing at all.
    """

    bands: Sequence[int] = (3, 4, 5, 6)
    low: float = -25 * pi / 180
    high: float = 3 * pi / 180
    probability: float = 1.0

    def __post_init__(self) -> None:
        if not is_list(self.bands) or not self.bands:
            raise ValueError(f"LaserMix: bands must be some numbers, found {self.bands!r}")
        for count in self.bands:
            check_counts(self, 1, bands=count)
        check_interval(self, self.low, self.high)
        check_above_zero(self, high_minus_low=self.high - self.low)
        check_share(self, probability=self.probability)

    def __call__(
        self, cloud: PointCloud, other: PointCloud, rng: np.random.Generator
    ) -> PointCloud:
        """Give the odd bands of the cloud and the even ones of the other."""
        count = self.bands[int(rng.integers(len(self.bands)))]
        mine, theirs = (self._even(part.coord, count) for part in (cloud, other))
        return union(_outside(cloud, mine), _inside(other, theirs))

    def _even(self, coord: np.ndarray, count: int) -> np.ndarray:
        """Say which points (n,) lie in the second, fourth, … band from above."""
        band = (np.float32(self.high) - inclination(coord)) * np.float32(
            count / (self.high - self.low)
        )
        # A point without an inclination counts as of the first band, and stays.
        number = np.nan_to_num(band, copy=False, nan=0).clip(0, count - 1).astype(np.int8)
        return (number & 1).view(bool)


@dataclass(frozen=True, kw_only=True)
class CutMix(Mix):
    """Replace what stands in an upright box by what the other has there (Yun et al., CutMix, 2019).

    A share l is drawn from Beta(`alpha`, `alpha`); the box has sqrt(1 - l) of the cloud's extent in
    x and y, all heights, and its middle anywhere in that extent.

    Attributes:
        alpha: 1 draws all shares alike; below, boxes are rather tiny or huge.
        probability: of mixing at all.
    """

    alpha: float = 1.0
    probability: float = 0.5

    def __post_init__(self) -> None:
        check_above_zero(self, alpha=self.alpha)
        check_share(self, probability=self.probability)

    def __call__(
        self, cloud: PointCloud, other: PointCloud, rng: np.random.Generator
    ) -> PointCloud:
        """Give the cloud with the box of the other."""
        low, high = extent(cloud)
        half = (high - low)[:2] * np.sqrt(1 - rng.beta(self.alpha, self.alpha)) / 2
        middle = rng.uniform(low[:2], high[:2])
        mine, theirs = (in_box(c.coord, middle - half, middle + half) for c in (cloud, other))
        return union(_outside(cloud, mine), _inside(other, theirs))


def union(first: PointCloud, *others: PointCloud) -> PointCloud:
    """Put clouds one after another, in the frame of the first.

    Fields that not all of them have are left out; clouds without points do not count. Numbers of
    instances (above 0) stay different from cloud to cloud.
    """
    parts = [part for part in (first, *others) if len(part)]
    if not parts:
        return first
    if len(parts) == 1:
        return replace(parts[0], origin=first.origin)
    names = ("color", "intensity", "normal", "label")
    own = {name: _joined([_column(part, name) for part in parts]) for name in names}
    extra: dict[str, np.ndarray] = {}
    for name, column in parts[0].extra.items():
        columns = [part.extra.get(name) for part in parts]
        if all(c is not None and c.shape[1:] == column.shape[1:] for c in columns):
            extra[name] = np.concatenate(columns)  # type: ignore[arg-type]  # none is None
    return PointCloud(
        coord=np.concatenate([part.coord for part in parts]),
        origin=first.origin,
        instance=_joined(_apart([part.instance for part in parts])),
        extra=extra,
        **own,
    )


def rows_of(cloud: PointCloud, ids: Sequence[int]) -> np.ndarray:
    """Give the rows of the finite points whose raw id is one of some, in their order."""
    assert cloud.label is not None
    rows = np.flatnonzero(is_any(cloud.label, ids))
    return rows[np.isfinite(cloud.coord.take(rows, axis=0)).all(axis=1)]


def is_any(label: np.ndarray, ids: Sequence[int]) -> np.ndarray:
    """Say which labels (n,) are one of a few ids; numpy's isin is made for many."""
    found = np.zeros(len(label), dtype=bool)
    for number in ids:
        found |= label == number
    return found


def in_sector(coord: np.ndarray, start: float) -> np.ndarray:
    """Say which points (n,) lie within half a turn to the left of an angle from +x, radians."""
    x, y, _ = coord.T
    with np.errstate(invalid="ignore"):
        return y * np.float32(np.cos(start)) > x * np.float32(np.sin(start))


def in_box(coord: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Say which finite points (n,) lie between two corners (2,) in x and y."""
    x, y, z = coord.T
    inside = (x >= low[0]) & (x <= high[0]) & (y >= low[1]) & (y <= high[1])
    return inside & np.isfinite(z)


def turned(cloud: PointCloud, angle: float) -> PointCloud:
    """Turn a cloud of finite points about the vertical through its origin, by radians."""
    turn = rotation(angle, axis=2).T.astype(np.float32)
    normal = None if cloud.normal is None else cloud.normal @ turn
    return replace(cloud, coord=cloud.coord @ turn, normal=normal)


def _inside(cloud: PointCloud, mask: np.ndarray) -> PointCloud:
    return cloud.select(np.flatnonzero(mask))


def _outside(cloud: PointCloud, mask: np.ndarray) -> PointCloud:
    return cloud.select(np.flatnonzero(~mask))


def _column(cloud: PointCloud, name: str) -> np.ndarray | None:
    match name:
        case "color":
            return cloud.color
        case "intensity":
            return cloud.intensity
        case "normal":
            return cloud.normal
    return cloud.label


def _joined(columns: Sequence[np.ndarray | None]) -> np.ndarray | None:
    there = [column for column in columns if column is not None]
    return np.concatenate(there) if len(there) == len(columns) else None


def _apart(instances: Sequence[np.ndarray | None]) -> list[np.ndarray | None]:
    """Raise the numbers of each cloud above those of the clouds before it."""
    most = 0
    raised: list[np.ndarray | None] = []
    for ids in instances:
        if ids is None:
            raised.append(None)
            continue
        raised.append(np.where(ids > 0, ids + ids.dtype.type(most), ids) if most else ids)
        most += max(0, int(ids.max(initial=0)))
    return raised
