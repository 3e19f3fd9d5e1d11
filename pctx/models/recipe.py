"""Recipe: which points meet, how they attend, how they know where they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, get_args

from torch import nn

from pctx.geometry.hierarchy import Level
from pctx.geometry.neighbors import Neighborhood, knn
from pctx.geometry.serialization import Serialization
from pctx.geometry.windows import Windows, curve_windows, grid_windows, octree_windows
from pctx.models.arguments import require_numbers
from pctx.models.mixers import NeighborMixer, PlacedMixer, WindowMixer
from pctx.nn.attention import WindowAttention
from pctx.nn.contextual import ContextualEncoding
from pctx.nn.contextual_attention import ContextualWindowAttention
from pctx.nn.neighbor_attention import NeighborAttention
from pctx.nn.position import CoordinateMLP, SinusoidalEncoding
from pctx.nn.relative import CoordinateBias, RelativePositionBias
from pctx.nn.rotary_attention import RotaryWindowAttention
from pctx.nn.vector_attention import GroupedVectorAttention, VectorAttention

Window = Literal["serial", "octree", "grid", "knn"]
Attention = Literal["dot", "vector", "grouped_vector"]
Absolute = Literal["sinusoidal", "coordinate_mlp"]
Relative = Literal["relative_bias", "coordinate_bias", "rotary", "contextual"]
Position = Literal["conditional", Absolute, Relative]
Alternate = Literal["auto", "curve", "dilation", "shift", "none"]

BIAS_HIDDEN = 8
"""Hidden channels of a bias by metres."""

WAYS: Mapping[str, tuple[Alternate, ...]] = MappingProxyType(
    {
        "serial": ("curve", "dilation", "shift", "none"),
        "octree": ("dilation", "curve", "none"),
        "grid": ("shift", "none"),
        "knn": ("none",),
    }
)
"""How the blocks of a stage can cross the borders of windows; the first is what `auto` takes."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One choice a row; `CustomTransformer` says what each means.

    Raises:
        ValueError: if a choice is unknown, or two do not go together.
    """

    window: Window
    attention: Attention
    position: tuple[Position, ...]
    alternate: Alternate
    dilation: int
    window_edge: int
    share_channels: int

    def __post_init__(self) -> None:
        _require_known("window", self.window, get_args(Window))
        _require_known("attention", self.attention, get_args(Attention))
        for name in self.position:
            _require_known("position", name, get_args(Position))
        if self.alternate != "auto":
            known = ("auto", *self.ways)
            _require_known(f"alternate with window={self.window}", self.alternate, known)
        for kind in (Absolute, Relative, Literal["conditional"]):
            found = [name for name in self.position if name in get_args(kind)]
            if len(found) > 1:
                raise ValueError(
                    f"position takes at most one of {', '.join(get_args(kind))}, found "
                    f"{' and '.join(found)}; leave one out"
                )
        if self.relative is not None and self.attention != "dot":
            raise ValueError(
                f"position {self.relative} belongs to dot products, and attention="
                f"{self.attention} encodes offsets by a coordinate MLP of its own; leave "
                f"{self.relative} out, or take attention=dot"
            )
        if self.window == "knn" and self.relative not in (None, "coordinate_bias"):
            raise ValueError(
                f"position {self.relative} is made for windows, and window=knn gives every point "
                "its own neighbours; take position coordinate_bias, or window=serial, octree or "
                "grid"
            )
        require_numbers(
            dilation=self.dilation,
            window_edge=self.window_edge,
            share_channels=self.share_channels,
        )

    @property
    def ways(self) -> tuple[Alternate, ...]:
        """How blocks can cross borders here."""
        return WAYS[self.window]

    @property
    def way(self) -> Alternate:
        """How they do."""
        return self.ways[0] if self.alternate == "auto" else self.alternate

    @property
    def relative(self) -> Relative | None:
        """The encoding that attention takes in, if any."""
        return next((name for name in get_args(Relative) if name in self.position), None)

    def meet(self, level: Level, along: Serialization, size: int) -> Level:
        """Give a level its windows, one partition a turn of the blocks, or its neighbours.

        Args:
            level: a bare one.
            along: the order of its points.
            size: the largest window, or neighbours a point.
        """
        if self.window == "knn":
            return replace(level, neighbors=_neighbors(level, along, size))
        if self.way != "curve":
            along = replace(along, order=along.order[:1], inverse=along.inverse[:1])
        dilations = (1, self.dilation) if self.way == "dilation" else (1,)
        halves = (0, 1) if self.way == "shift" else (0,)
        windows: list[Windows] = []
        for dilation in dilations:
            for half in halves:
                match self.window:
                    case "serial":
                        shift = half * size // 2
                        windows += curve_windows(along, size, shift=shift, dilation=dilation)
                    case "octree":
                        windows += (
                            octree_windows(order, along.offsets, size, dilation)
                            for order in along.order
                        )
                    case "grid":
                        windows.append(
                            grid_windows(
                                level.grid_coord,
                                level.offsets,
                                self.window_edge,
                                shift=half * self.window_edge / 2,
                                order=along.order[0],
                                slots=size,
                            )
                        )
        return replace(level, windows=tuple(windows))

    def absolute(self, channels: int) -> nn.Module | None:
        """Make the encoding of metres that is added to the points' channels, if any."""
        if "sinusoidal" in self.position:
            return SinusoidalEncoding(channels)
        if "coordinate_mlp" in self.position:
            return CoordinateMLP(channels, channels)
        return None

    def mixer(self, channels: int, num_heads: int, *, turn: int, size: int) -> nn.Module:
        """Make what mixes the points of a level.

        Args:
            channels: c.
            num_heads: heads, or groups.
            turn: the block's place in its stage.
            size: the largest window, or neighbours a point.
        """
        match self.attention:
            case "vector":
                vector = VectorAttention(channels, share_channels=self.share_channels)
                return PlacedMixer(vector, "metres", turn)
            case "grouped_vector":
                return PlacedMixer(GroupedVectorAttention(channels, num_heads), "metres", turn)
        if self.window == "knn":
            metric = self.relative == "coordinate_bias"
            bias = CoordinateMLP(num_heads, BIAS_HIDDEN) if metric else None
            return NeighborMixer(NeighborAttention(channels, num_heads), bias)
        plain, reach = WindowAttention(channels, num_heads), self._reach(turn, size)
        match self.relative:
            case "rotary":
                return PlacedMixer(RotaryWindowAttention(channels, num_heads), "voxels", turn)
            case "contextual":
                width = channels // num_heads
                encoding = ContextualEncoding(num_heads, width, (reach,) * 3, (1,) * 3)
                return PlacedMixer(ContextualWindowAttention(channels, encoding), "voxels", turn)
            case "relative_bias":
                return WindowMixer(plain, RelativePositionBias(num_heads, reach), "voxels", turn)
            case "coordinate_bias":
                return WindowMixer(plain, CoordinateBias(num_heads, BIAS_HIDDEN), "metres", turn)
        return WindowMixer(plain, None, "voxels", turn)

    def _reach(self, turn: int, size: int) -> int:
        """Return how many voxels either way a table tells apart, as the windows' kind is wide."""
        dilation = self.dilation if self.way == "dilation" and turn % 2 else 1
        match self.window:
            case "grid":
                return self.window_edge
            case "octree":
                return max(RelativePositionBias.octformer_bound(size, dilation), 1)
        return RelativePositionBias.bound_for(size * dilation)


def _require_known(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}; found {value!r}")


def _neighbors(level: Level, along: Serialization, k: int) -> Neighborhood:
    """Find the k nearest points; those equally far by their place on a curve, not by their row."""
    order = along.order[0]
    found = knn(level.coord.index_select(0, order), level.offsets, k)
    renamed = replace(found, index=order.take(found.index), distance=None)
    return renamed.rows(along.inverse[0])
