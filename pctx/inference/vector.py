"""What vector attention costs on this machine, taken in parts, beside all pairs at once.

n points, c channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pctx.geometry.neighbors import Neighborhood, knn
from pctx.inference.drive import GRID_SIZE
from pctx.inference.memory import peak_memory
from pctx.inference.timing import Clock, Measurement
from pctx.nn.pairs import PairAttention
from pctx.nn.vector_attention import GroupedVectorAttention, VectorAttention

SHARED = 8
"""Channels that share a weight, as released with both."""


@dataclass(frozen=True, kw_only=True)
class VectorReport:
    """What forwards cost, each beside `plain`, all pairs at once.

    Attributes:
        work: `v1` and `v2`, of a block of either paper.
        peaks: by work and way, "" ours, the bytes it adds at most; None where none tells.
    """

    work: tuple[Measurement, ...]
    peaks: dict[str, dict[str, int | None]]


def measure_vector(
    grid_coord: Int[Tensor, "n 3"],
    *,
    channels: int,
    neighbors: int,
    repeats: int,
    device: torch.device | str = "cpu",
    tell: Callable[[str], object] = lambda _: None,
) -> VectorReport:
    """Time vector attention of one cloud, in evaluation; with one thread, by the process.

    Args:
        grid_coord: one cloud.
        channels: c, a multiple of 8.
        neighbors: of each point.
        repeats: most runs of each way.
        tell: called with what is being measured.
    """
    place = torch.device(device)
    alone = place.type == "cpu" and torch.get_num_threads() == 1
    clock = Clock(repeats=repeats, device=place, process=alone)
    generator = torch.Generator().manual_seed(0)
    coord = (grid_coord.float() * GRID_SIZE).to(place)
    n = len(coord)
    around = knn(coord, torch.tensor([0, n], device=place), neighbors)
    feat = torch.randn(n, channels, generator=generator).to(place)
    kinds: dict[str, PairAttention] = {
        "v1": VectorAttention(channels, share_channels=SHARED),
        "v2": GroupedVectorAttention(channels, channels // SHARED, position_multiplier=True),
    }
    work, peaks = [], {}
    for name, module in kinds.items():
        tell(f"vector attention, {name}, {n:,} points")
        module.to(place).eval()
        ours, plain = _ways(module, feat, coord, around)
        ours(), plain()
        peaks[name] = {way: peak_memory(run, place) for way, run in (("", ours), ("plain", plain))}
        work.append(clock.compare(name, n, ours, plain=plain))
    return VectorReport(work=tuple(work), peaks=peaks)


def _ways(
    module: PairAttention,
    feat: Float[Tensor, "n c"],
    coord: Float[Tensor, "n 3"],
    around: Neighborhood,
) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    @torch.no_grad()
    def ours() -> Tensor:
        rows: Tensor = module(feat, coord, around)
        return rows

    @torch.no_grad()
    def plain() -> Tensor:
        # With all its weights, which takes all pairs together.
        return module.at_once(feat, coord, around)

    return ours, plain
