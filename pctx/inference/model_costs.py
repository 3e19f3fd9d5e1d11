"""What each model costs on this machine: parameters, plan, forward pass, memory.

n voxels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from jaxtyping import Int
from torch import Tensor

from pctx.geometry.points import PointBatch
from pctx.inference.memory import peak_memory
from pctx.inference.timing import Clock
from pctx.models.factory import create_model

CHANNELS = 6
"""Channels of a point, as driving scans and scans with colours have about."""

CLASSES = 20
"""Classes told apart."""


@dataclass(frozen=True, kw_only=True)
class ModelCost:
    """What one model costs.

    Attributes:
        name: of the model.
        parameters: their number.
        plan_ms: of a plan, the median.
        forward_ms: of a forward pass along it without gradients, the median.
        peak: bytes that plan and pass together add to the process, or to a GPU's allocations, at
            most; None where the system does not tell.
    """

    name: str
    parameters: int
    plan_ms: float
    forward_ms: float
    peak: int | None


def measure_models(
    grid_coord: Int[Tensor, "n 3"],
    *,
    names: Sequence[str],
    grid_size: float,
    repeats: int,
    device: torch.device | str = "cpu",
    tell: Callable[[str], object] = lambda _: None,
) -> Iterator[ModelCost]:
    """Measure models one after another, with random weights and channels.

    Takes the threads that torch is set to. The median is that of up to `repeats` runs.

    Args:
        grid_coord: one cloud.
        names: of models.
        grid_size: edge of a voxel, metres.
        repeats: most runs of each piece of work.
        tell: called with what is being measured.
    """
    clock = Clock(repeats=repeats, device=torch.device(device))
    generator = torch.Generator().manual_seed(0)
    n = len(grid_coord)
    points = PointBatch(
        coord=(grid_coord + 0.5) * grid_size,
        grid_coord=grid_coord,
        feat=torch.randn(n, CHANNELS, generator=generator),
        offsets=torch.tensor([0, n]),
    ).to(clock.device)
    for name in names:
        tell(f"{name}, {n:,} voxels")
        with torch.inference_mode():
            yield _measure(name, points, clock)


def _measure(name: str, points: PointBatch, clock: Clock) -> ModelCost:
    model = create_model(name, CHANNELS, CLASSES).to(clock.device).eval()
    hierarchy = model.backbone.plan(points)
    model(points)  # what is loaded once is not the model's
    peak = peak_memory(lambda: model(points), clock.device)
    seconds = clock.time(
        {
            "plan": lambda: model.backbone.plan(points),
            "forward": lambda: model(points, hierarchy),
        }
    )
    return ModelCost(
        name=name,
        parameters=sum(p.numel() for p in model.parameters()),
        plan_ms=1e3 * median(seconds["plan"]),
        forward_ms=1e3 * median(seconds["forward"]),
        peak=peak,
    )
