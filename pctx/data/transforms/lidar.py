"""Augmentations that make one LiDAR see as another would: fewer beams, less reach.

n points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pctx.data.transforms.arguments import check_counts, check_interval, check_share, is_list
from pctx.data.transforms.sampling import keep
from pctx.geometry.points import PointCloud

INSIDE = (1, 99)
"""Percentiles of the inclination between which beams are counted."""


@dataclass(frozen=True, kw_only=True)
class BeamDropout:
    """Leave out whole beams, each with probability `ratio`.

    Attributes:
        ratio: share of the beams that are lost, on average.
        probability: of losing any.
        field: the column of `extra` that numbers beams, or another such as point_source_id, the
            flight strip.
        beams: a cloud without that column is cut into so many steps of inclination, as seen from
            its origin; 0 leaves it as it is.
    """

    ratio: float = 0.1
    probability: float = 0.5
    field: str = "ring"
    beams: int = 64

    def __post_init__(self) -> None:
        check_share(self, ratio=self.ratio, probability=self.probability)
        check_counts(self, 0, beams=self.beams)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Keep the points of the other beams."""
        if rng.random() >= self.probability:
            return cloud
        beam = beam_of(cloud, self.field, self.beams)
        if beam is None or not len(cloud):
            return cloud
        lost = rng.random(int(beam.max()) + 1) < self.ratio
        return keep(cloud, ~lost[beam])


@dataclass(frozen=True, kw_only=True)
class BeamThinning:
    """Keep every second beam, or every fourth, as a sensor with fewer scan lines would.

    Attributes:
        steps: one of these is drawn; the first beam kept is drawn too.
        probability: of thinning at all.
        field: as in `BeamDropout`.
        beams: as in `BeamDropout`.
    """

    steps: Sequence[int] = (2, 4)
    probability: float = 0.5
    field: str = "ring"
    beams: int = 64

    def __post_init__(self) -> None:
        if not is_list(self.steps) or not self.steps:
            raise ValueError(f"BeamThinning: steps must be some numbers, found {self.steps!r}")
        for step in self.steps:
            check_counts(self, 1, steps=step)
        check_share(self, probability=self.probability)
        check_counts(self, 0, beams=self.beams)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Keep the points of the beams drawn."""
        if rng.random() >= self.probability:
            return cloud
        step = self.steps[int(rng.integers(len(self.steps)))]
        first = int(rng.integers(step))
        beam = beam_of(cloud, self.field, self.beams)
        return cloud if beam is None else keep(cloud, beam % step == first)


@dataclass(frozen=True, kw_only=True)
class RangeDropout:
    """Leave out far points: none up to `low` metres, a share `ratio` from `high` on.

    Between, the chance rises linearly: fog, or weak echoes. With `low` = `high` it is a sensor
    that reaches no farther.

    Attributes:
        low: horizontal metres from the origin, the sensor of a scan.
        high: the same.
        ratio: chance of a point to be lost at `high` and beyond.
        probability: of losing any.
    """

    low: float = 20.0
    high: float = 80.0
    ratio: float = 0.8
    probability: float = 0.5

    def __post_init__(self) -> None:
        check_interval(self, self.low, self.high, least=0)
        check_share(self, ratio=self.ratio, probability=self.probability)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Keep the points that are heard."""
        if rng.random() >= self.probability:
            return cloud
        x, y, _ = cloud.coord.T
        with np.errstate(over="ignore"):
            distance = np.sqrt(x * x + y * y)
        width = self.high - self.low
        if width > 0:
            chance = ((distance - np.float32(self.low)) / np.float32(width)).clip(0, 1)
        else:
            chance = (distance > self.low).astype(np.float32)
        # A point that is not finite has no distance, and stays.
        lost = rng.random(len(cloud), dtype=np.float32) < np.float32(self.ratio) * chance
        return keep(cloud, ~lost)


def inclination(coord: np.ndarray) -> np.ndarray:
    """Give (n,) float32: the angle above the horizon, radians, as seen from the origin."""
    x, y, z = coord.T
    with np.errstate(over="ignore", invalid="ignore"):
        return np.arctan2(z, np.sqrt(x * x + y * y))


def beam_of(cloud: PointCloud, name: str, beams: int) -> np.ndarray | None:
    """Number the beams of the points (n,) from 0, by a column or by inclination.

    None where there is neither. Points that are not finite count as of the first beam.
    """
    column = cloud.extra.get(name)
    if column is not None and column.ndim == 1:
        if not len(column):
            return np.zeros(0, dtype=np.int64)
        if column.dtype.kind not in "iu":
            column = np.nan_to_num(column, nan=0, posinf=0, neginf=0)
        number = column.astype(np.int64)
        if int(number.max()) - int(number.min()) > 2**16:
            return np.unique(number, return_inverse=True)[1].reshape(-1)
        return number - number.min()
    if beams == 0:
        return None
    angle = inclination(cloud.coord)
    seen = angle if np.isfinite(angle).all() else angle[np.isfinite(angle)]
    if not len(seen):
        return np.zeros(len(cloud), dtype=np.int64)
    low, high = np.percentile(seen, INSIDE)
    step = max(float(high - low) / beams, 1e-9)
    place = np.nan_to_num((angle - np.float32(low)) / np.float32(step), nan=0)
    return place.clip(0, beams - 1).astype(np.int64)
