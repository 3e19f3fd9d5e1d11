"""Preview: an even selection of a scan's points, for looking at files of any size."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pctx.data.io.formats import read
from pctx.data.io.las import count_points, is_las, read_las_point, read_las_sample
from pctx.geometry.points import PointCloud


@dataclass(frozen=True, kw_only=True, eq=False)
class Preview:
    """Every `step`-th point of a scan.

    Attributes:
        cloud: those points; its row i is the point of number i * step.
        num_points: of the whole scan.
        step: 1 where all points are there.
        whole: reads every field of the point of a number, where `cloud` lacks some.
    """

    cloud: PointCloud
    num_points: int
    step: int
    whole: Callable[[int], PointCloud] | None = None

    @property
    def note(self) -> str:
        """Say what is missing; empty where nothing is."""
        if self.step == 1:
            return ""
        return f"every {_ordinal(self.step)} of {self.num_points:,} points"


def read_preview(path: Path, limit: int, fields: Collection[str] | None = None) -> Preview:
    """Read a scan of at most `limit` points whole, and of a larger one every second, third, …

    LAS and LAZ take the memory of the selection alone.

    Args:
        path: the scan.
        limit: points at most.
        fields: which of color and intensity are wanted; None wants every column. A selection of
            LAS and LAZ then lacks the rest but positions, returns, label and extra fields.

    Raises:
        FileNotFoundError: there is no such file.
        ReadError: it cannot be read.
    """
    if path.is_file() and is_las(path) and (n := count_points(path)) > limit:
        step = -(-n // limit)
        whole = None if fields is None else partial(read_las_point, path)
        cloud = read_las_sample(path, step, fields)
        return Preview(cloud=cloud, num_points=n, step=step, whole=whole)
    cloud = read(path)
    step = max(1, -(-len(cloud) // limit))
    chosen = cloud if step == 1 else cloud.select(slice(None, None, step))
    return Preview(cloud=chosen, num_points=len(cloud), step=step)


def _ordinal(number: int) -> str:
    ending = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
