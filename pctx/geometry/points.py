"""PointCloud, one scan in numpy, and PointBatch, packed clouds in torch.

torch takes seconds to load, and a cloud does without: a batch imports it. n points, b clouds, c
channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

if TYPE_CHECKING:
    import torch
    from torch import Tensor

FLOAT32_SAFE_EXTENT = 4096.0
"""Metres from the origin within which float32 holds a quarter of a millimetre."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PointCloud:
    """One scan. Absent fields are None; every field has one row a point, in the file's order.

    Attributes:
        coord: (n, 3) float32, metres relative to `origin`. May hold non-finite rows.
        origin: (3,) float64, metres.
        color: (n, 3) uint8.
        intensity: (n,) float32; in [0, 1] where the format states its range, else as stored.
        normal: (n, 3) float32, unit length.
        label: (n,) int64, the raw ids of the file.
        instance: (n,) int64.
        extra: other columns by name, each (n, ...).
    """

    coord: np.ndarray
    origin: np.ndarray = field(default_factory=lambda: np.zeros(3))
    color: np.ndarray | None = None
    intensity: np.ndarray | None = None
    normal: np.ndarray | None = None
    label: np.ndarray | None = None
    instance: np.ndarray | None = None
    extra: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.coord.ndim != 2 or self.coord.shape[1] != 3 or self.coord.dtype != np.float32:
            raise ValueError(
                f"coord must be (n, 3) float32, found {self.coord.shape} {self.coord.dtype}"
            )
        for name, column in self._columns():
            if len(column) != len(self.coord):
                raise ValueError(f"{name} has {len(column)} rows, coord has {len(self.coord)}")

    @classmethod
    def from_xyz(cls, xyz: np.ndarray, **columns: object) -> PointCloud:
        """Make a cloud from float64 coordinates, recentred before they become float32.

        The origin stays (0, 0, 0) where the median of the finite points lies within 4096 m of it
        (sensor frames; a far stray point moves nothing); else it is that median, rounded to whole
        metres.

        Raises:
            ValueError: if xyz is not (n, 3), or a column has another number of rows.
        """
        xyz = np.asarray(xyz, dtype=np.float64)
        if xyz.ndim != 2 or xyz.shape[1] != 3:
            raise ValueError(f"xyz must be (n, 3), found {xyz.shape}")
        finite = xyz[np.isfinite(xyz).all(axis=1)]
        origin = np.zeros(3)
        median = np.median(finite, axis=0) if len(finite) else origin
        if np.abs(median).max() > FLOAT32_SAFE_EXTENT:
            origin = np.round(median)
        with np.errstate(over="ignore"):  # a stray 1e39 becomes infinite
            coord = (xyz - origin).astype(np.float32)
        return cls(coord=coord, origin=origin, **columns)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.coord)

    @property
    def xyz(self) -> np.ndarray:
        """(n, 3) float64, metres in the file's frame."""
        return self.coord + self.origin

    @property
    def finite(self) -> np.ndarray:
        """(n,) bool: points whose three coordinates are finite."""
        if all_finite(self.coord):
            return np.ones(len(self), dtype=bool)
        known = np.isfinite(self.coord)
        return known[:, 0] & known[:, 1] & known[:, 2]

    def select(self, index: np.ndarray | slice) -> PointCloud:
        """Cut every field by an index array, a boolean mask or a slice."""
        cut = {name: _cut(column, index) for name, column in self._columns()}
        extra = {name: cut.pop(f"extra.{name}") for name in self.extra}
        return replace(self, coord=_cut(self.coord, index), extra=extra, **cut)

    def _columns(self) -> Iterable[tuple[str, np.ndarray]]:
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name not in ("coord", "origin", "extra") and value is not None:
                yield f.name, value
        for name, column in self.extra.items():
            yield f"extra.{name}", column


def _cut(column: np.ndarray, index: np.ndarray | slice) -> np.ndarray:
    """Index rows; `take` does it four to nine times as fast where rows are short."""
    if isinstance(index, np.ndarray) and index.ndim == 1 and index.dtype.kind in "iu":
        return column.take(index, axis=0)
    rows: np.ndarray = column[index]
    return rows


@dataclass(frozen=True, kw_only=True, eq=False)
class PointBatch:
    """Voxelised clouds, one after another: cloud i owns the rows offsets[i] : offsets[i + 1].

    Attributes:
        coord: metres, relative to each cloud's own origin.
        grid_coord: voxel numbers, any integers; no two points of a cloud share a voxel.
        feat: the channels a model reads.
        offsets: (b + 1,) int64, from 0 to n, ascending; clouds may be empty.
        label: (n,) int64 class numbers, -1 ignored.
    """

    coord: Float[Tensor, "n 3"]
    grid_coord: Int[Tensor, "n 3"]
    feat: Float[Tensor, "n c"]
    offsets: Int[Tensor, "b+1"]
    label: Int[Tensor, "n"] | None = None

    def __post_init__(self) -> None:
        import torch

        from pctx.geometry.checks import check_grid_coord, check_offsets

        n = len(self.feat)
        for name in ("coord", "grid_coord", "feat"):
            if getattr(self, name).ndim != 2:
                shape = tuple(getattr(self, name).shape)
                raise ValueError(
                    f"{name} must be packed (n, channels), found {shape}; "
                    "put clouds one after another and give offsets (b + 1,)"
                )
        check_grid_coord(self.grid_coord)
        if self.coord.shape != (n, 3) or len(self.grid_coord) != n:
            raise ValueError(
                f"coord {tuple(self.coord.shape)}, grid_coord {tuple(self.grid_coord.shape)} "
                f"and feat {tuple(self.feat.shape)} do not agree"
            )
        if self.label is not None and self.label.shape != (n,):
            raise ValueError(f"label must be ({n},), found {tuple(self.label.shape)}")
        offsets = self.offsets
        if offsets.ndim != 1 or len(offsets) < 1 or offsets.dtype != torch.int64:
            raise ValueError(
                f"offsets must be (b + 1,) int64, found {tuple(offsets.shape)} {offsets.dtype}"
            )
        check_offsets(offsets, n)

    def __len__(self) -> int:
        return len(self.feat)

    @property
    def num_clouds(self) -> int:
        """The number of clouds, empty ones included."""
        return len(self.offsets) - 1

    def to(self, device: torch.device | str) -> PointBatch:
        """Copy every tensor to a device."""
        moved = {
            f.name: getattr(self, f.name).to(device, non_blocking=True)
            for f in fields(self)
            if getattr(self, f.name) is not None
        }
        return replace(self, **moved)


def all_finite(values: np.ndarray) -> bool:
    """Whether no value is infinite or undefined; quickly where that is so."""
    # What is not finite makes the sum so. Finite values may as well, if they are huge.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum()) or np.isfinite(values).all())


def pack(
    batches: Sequence[PointBatch],
    empty: Callable[[Sequence[int], torch.dtype], Tensor] | None = None,
) -> PointBatch:
    """Put batches one after another into one. Labels are kept where every batch has them.

    Args:
        batches: at least one.
        empty: gives the tensors that are filled, by size and type; None lets torch do so.
    """
    import torch

    if not batches:
        raise ValueError("pack() needs at least one PointBatch")
    starts = accumulate((len(b) for b in batches), initial=0)
    first = batches[0].offsets.new_zeros(1)
    offsets = torch.cat(
        [first, *(b.offsets[1:] + start for b, start in zip(batches, starts, strict=False))]
    )
    labels = [b.label for b in batches if b.label is not None]

    def join(parts: list[Tensor]) -> Tensor:
        if empty is None:
            return torch.cat(parts)
        size = (int(offsets[-1]), *parts[0].shape[1:])
        return torch.cat(parts, out=empty(size, parts[0].dtype))

    return PointBatch(
        coord=join([b.coord for b in batches]),
        grid_coord=join([b.grid_coord for b in batches]),
        feat=join([b.feat for b in batches]),
        offsets=offsets,
        label=join(labels) if len(labels) == len(batches) else None,
    )
