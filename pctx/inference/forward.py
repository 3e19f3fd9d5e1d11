"""What PTv3 costs on this machine, beside the released way to the same numbers.

n voxels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from pctx.geometry.points import PointBatch
from pctx.inference.memory import peak_memory
from pctx.inference.plain_ptv3 import run_plainly
from pctx.inference.timing import Clock, Measurement
from pctx.models.factory import create_backbone, look_up
from pctx.models.point_transformer_v3 import PointTransformerV3

CHANNELS = 4
"""Channels of a point: nuScenes' position and intensity."""


@dataclass(frozen=True, kw_only=True)
class ForwardReport:
    """What a network costs, each beside the released way, `plain`.

    Attributes:
        work: `forward` in evaluation; `both`, a forward and backward in training. Both plan too.
        plan: the share of `forward` that its plan takes.
        peaks: by work and way, "" ours, the bytes it adds at most; None where none tells.
        differences: by work, the largest of the rows' differences in evaluation, and the norm of
            the gradients' difference over theirs.
    """

    work: tuple[Measurement, ...]
    plan: float
    peaks: dict[str, dict[str, int | None]]
    differences: dict[str, float]


def measure_forward(
    grid_coord: Int[Tensor, "n 3"],
    *,
    model: str = "ptv3_base",
    backward: bool = True,
    repeats: int,
    device: torch.device | str = "cpu",
    tell: Callable[[str], object] = lambda _: None,
) -> ForwardReport:
    """Time a forward, and one with its backward, against `plain_ptv3`; weights are random.

    Takes the threads that torch is set to; with one, time is that of the process.

    Args:
        grid_coord: one cloud.
        model: a variant of PTv3 without relative position bias.
        backward: whether training is measured too.
        repeats: most runs of each way.
        tell: called with what is being measured.

    Raises:
        ValueError: for another model.
    """
    place = torch.device(device)
    alone = place.type == "cpu" and torch.get_num_threads() == 1
    clock = Clock(repeats=repeats, device=place, process=alone, budget=40.0)
    torch.manual_seed(0)
    row = look_up(model)
    if row.backbone is not PointTransformerV3 or row.arguments.get("relative_position_bias"):
        raise ValueError(f"model must be a PTv3 without relative position bias, found {model}")
    # What follows needs the released order, and nothing left to chance.
    settings: dict[str, Any] = {"published": True, "drop_path": 0.0}
    backbone = create_backbone(model, CHANNELS, **settings).to(place)
    assert isinstance(backbone, PointTransformerV3)
    n = len(grid_coord)
    points = PointBatch(
        coord=grid_coord.float(),
        grid_coord=grid_coord,
        feat=torch.randn(n, CHANNELS),
        offsets=torch.tensor([0, n]),
    ).to(place)
    ways = _Ways(backbone, points)
    work: list[Measurement] = []
    peaks: dict[str, dict[str, int | None]] = {}
    differences: dict[str, float] = {}
    for name in ("forward", "both") if backward else ("forward",):
        backbone.train(name == "both")
        ours, plain = ways.of(name)
        tell(f"{name}, {n:,} voxels, both ways once: numbers and memory")
        rows, peaks[name] = [], {}
        for way, run in (("", ours), ("plain", plain)):  # ours first: theirs leaves holes behind
            rows.append(run())
            peaks[name][way] = peak_memory(run, place)
        differences[name] = _difference(name, *rows)
        del rows
        tell(f"{name}, {n:,} voxels, in turns")
        work.append(clock.compare(name, n, ours, plain=plain))
    plan = clock.time({"plan": lambda: backbone.plan(points)})["plan"]
    return ForwardReport(
        work=tuple(work),
        plan=1e3 * median(plan) / work[0].ms,
        peaks=peaks,
        differences=differences,
    )


@dataclass(frozen=True)
class _Ways:
    """A model and a scan, to be run either way."""

    backbone: PointTransformerV3
    points: PointBatch

    def of(self, name: str) -> tuple[Callable[[], list[Tensor]], Callable[[], list[Tensor]]]:
        """Give our way and the released one: rows, or the gradients of all weights."""
        wrap = self._gradients if name == "both" else self._rows
        return wrap(self._ours), wrap(lambda: run_plainly(self.backbone, self.points))

    def _ours(self) -> Tensor:
        rows = self.backbone(self.points.feat, self.backbone.plan(self.points))
        return rows

    def _rows(self, run: Callable[[], Tensor]) -> Callable[[], list[Tensor]]:
        def rows() -> list[Tensor]:
            with torch.no_grad():
                return [run()]

        return rows

    def _gradients(self, run: Callable[[], Tensor]) -> Callable[[], list[Tensor]]:
        def gradients() -> list[Tensor]:
            rows = run()
            weights = list(self.backbone.parameters())
            return list(torch.autograd.grad(rows, weights, torch.ones_like(rows).cumsum(1)))

        return gradients


def _difference(name: str, ours: list[Tensor], plain: list[Tensor]) -> float:
    if name == "forward":
        return float((ours[0] - plain[0]).abs().amax())
    pairs = list(zip(ours, plain, strict=True))
    missed = sum(float((a - b).square().sum()) for a, b in pairs)
    return float((missed / sum(float(b.square().sum()) for _, b in pairs)) ** 0.5)
