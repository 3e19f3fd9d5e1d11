"""What serialization and planning cost on this machine, beside plainer ways to the same result.

n voxels, o curves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from pctx.geometry.curves import CURVES, encode_curves
from pctx.geometry.hierarchy import Level
from pctx.geometry.kernel_map import kernel_maps
from pctx.geometry.points import PointBatch
from pctx.geometry.serialization import Serialization, coarsen, inverted, serialize
from pctx.geometry.sorting import stable_sort
from pctx.geometry.windows import curve_windows
from pctx.inference import baseline
from pctx.inference.drive import GRID_SIZE
from pctx.models.factory import create_model
from pctx.models.point_transformer_v3 import ENCODING_KERNEL, PointTransformerV3

MODEL = "ptv3_base"
"""The model whose plan is measured."""

_BUDGET = 8.0
"""Seconds after which a piece of work is not repeated."""

_WARM_UP = 1.0
"""Seconds within which a first run only warms up."""

Scene = Callable[[int], Int[Tensor, "n 3"]]
"""Gives so many voxels of a scan, no two alike, sorted as `voxelize` leaves them."""

Work = Callable[[], object]
"""What is timed."""

_Key = TypeVar("_Key")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A piece of work, timed.

    Attributes:
        name: what was done.
        size: voxels it was done to.
        seconds: of each run.
        plain: by name, the seconds of each run of a plainer way to the same result, taking turns.
    """

    name: str
    size: int
    seconds: tuple[float, ...]
    plain: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def ms(self) -> float:
        """The median of the runs, in milliseconds."""
        return 1e3 * median(self.seconds)

    def plain_ms(self, way: str) -> float:
        """Return the median of a plainer way, in milliseconds."""
        return 1e3 * median(self.plain[way])

    def ratio(self, way: str) -> float:
        """Return how many times as long a plainer way takes."""
        return self.plain_ms(way) / self.ms


@dataclass(frozen=True, kw_only=True)
class PlanReport:
    """What a plan and its pieces cost.

    Attributes:
        work: `codes` of the four curves, against the two plain Hilbert encoders `bits` and
            `levels`; `order`, their orders and inverses, against argsorts `together` and `singly`;
            the `plan` of a model; its parts `serialize`, `coarsen`, `windows` and `kernel_maps`.
        growth: the plan at several sizes.
        depth: levels of the codes.
        met: mean number of voxels under the 27 taps of a kernel, the centre included, in the plan.
    """

    work: tuple[Measurement, ...]
    growth: tuple[Measurement, ...]
    depth: int
    met: float

    @property
    def exponent(self) -> float | None:
        """The slope of log time over log size, by least squares; None for fewer than two sizes."""
        if len(self.growth) < 2:
            return None
        sizes, times = zip(*((run.size, run.ms) for run in self.growth), strict=True)
        return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def measure_plan(
    scene: Scene,
    *,
    points: int,
    voxels: int,
    sizes: Sequence[int],
    repeats: int,
    device: torch.device | str = "cpu",
    tell: Callable[[str], object] = lambda _: None,
) -> PlanReport:
    """Time codes and orders, the plan of a model and its parts, and the plan's growth.

    Takes the threads that torch is set to.

    Args:
        scene: where voxels come from.
        points: voxels that are encoded and ordered.
        voxels: of the plan that is taken apart.
        sizes: of the plans whose growth is looked at.
        repeats: most runs of each piece of work, as for `interleave`.
        tell: called with what is being measured.
    """
    device = torch.device(device)
    grid_coord = scene(points).to(device)
    depth = int(grid_coord.amax()).bit_length()
    tell(f"codes of {points:,} voxels; the plain ways take a while")
    codes = _measure_codes(grid_coord, depth, repeats)
    tell(f"orders of {points:,} codes")
    order = _measure_order(encode_curves(grid_coord, depth, CURVES), 3 * depth, repeats)
    tell(f"the plan of {MODEL} for {voxels:,} voxels, and its parts")
    backbone = _backbone()
    batch = _batch(scene(voxels), device)
    plan = {"plan": partial(backbone.plan, batch)}
    levels = backbone.plan(batch).levels
    parts = interleave({**plan, **plan_parts(backbone, batch, levels)}, repeats, device)
    tell(f"plans of {', '.join(f'{size:,}' for size in sizes)} voxels")
    plans = {size: partial(backbone.plan, _batch(scene(size), device)) for size in sizes}
    growth = interleave(plans, repeats, device)
    return PlanReport(
        work=(
            codes,
            order,
            *(Measurement(name=k, size=voxels, seconds=v) for k, v in parts.items()),
        ),
        growth=tuple(Measurement(name="plan", size=k, seconds=v) for k, v in growth.items()),
        depth=depth,
        met=len(levels[0].kernel_maps[ENCODING_KERNEL].source) / voxels,
    )


def interleave(
    work: Mapping[_Key, Work], repeats: int, device: torch.device
) -> dict[_Key, tuple[float, ...]]:
    """Run pieces of work in turns and return the seconds of each run.

    A first run of less than a second only warms up. What has taken 8 seconds is not repeated.
    """
    seconds: dict[_Key, list[float]] = {key: [] for key in work}
    spent = dict.fromkeys(work, 0.0)
    for turn in range(repeats + 1):
        for key, run in work.items():
            if len(seconds[key]) == repeats or spent[key] > _BUDGET:
                continue
            took = _seconds(run, device)
            spent[key] += took
            if turn > 0 or took > _WARM_UP:
                seconds[key].append(took)
    return {key: tuple(runs) for key, runs in seconds.items()}


def order_and_invert(
    codes: Int[Tensor, "o n"], bits: int
) -> tuple[Int[Tensor, "o n"], Int[Tensor, "o n"]]:
    """Order codes of so many bits and invert, as `serialize` does for one cloud."""
    order = torch.stack([stable_sort(code, bits)[1] for code in codes])
    return order, inverted(order)


def plan_parts(
    backbone: PointTransformerV3, points: PointBatch, levels: Sequence[Level]
) -> dict[str, Work]:
    """Take apart how `serial_hierarchy` made the levels of a plan."""
    serializing = partial(serialize, points.grid_coord, points.offsets, backbone.curves)
    finest = serializing()

    def coarsening() -> list[Serialization]:
        coarser = finest
        return [coarser := coarsen(coarser, stride)[0] for stride in backbone.strides]

    serial = [finest, *coarsening()]
    return {
        "serialize": serializing,
        "coarsen": coarsening,
        "windows": lambda: [
            curve_windows(fine, size)
            for fine, size in zip(serial, backbone.window_sizes, strict=True)
        ],
        "kernel_maps": lambda: [
            kernel_maps(level.grid_coord, level.offsets, tuple(level.kernel_maps))
            for level in levels
        ],
    }


def _seconds(run: Work, device: torch.device) -> float:
    _wait(device)
    start = time.perf_counter()
    result = run()
    _wait(device)
    took = time.perf_counter() - start
    del result  # to free it is no part of the work
    return took


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _measure_codes(grid_coord: Tensor, depth: int, repeats: int) -> Measurement:
    def plainly(hilbert: baseline.HilbertEncoder) -> Work:
        return partial(baseline.encode_plainly, grid_coord, depth, CURVES, hilbert)

    work: dict[str, Work] = {
        "codes": partial(encode_curves, grid_coord, depth, CURVES),
        "bits": plainly(baseline.hilbert_by_bits),
        "levels": plainly(baseline.hilbert_by_levels),
    }
    return _against("codes", len(grid_coord), interleave(work, repeats, grid_coord.device))


def _measure_order(codes: Tensor, bits: int, repeats: int) -> Measurement:
    work: dict[str, Work] = {
        "order": partial(order_and_invert, codes, bits),
        "together": partial(baseline.order_together, codes),
        "singly": partial(baseline.order_singly, codes),
    }
    return _against("order", codes.shape[1], interleave(work, repeats, codes.device))


def _against(name: str, size: int, seconds: dict[str, tuple[float, ...]]) -> Measurement:
    """Make the work of that name a measurement, and the rest its plainer ways."""
    plain = {way: runs for way, runs in seconds.items() if way != name}
    return Measurement(name=name, size=size, seconds=seconds[name], plain=plain)


def _backbone() -> PointTransformerV3:
    """Make the model without memory for weights, which a plan does not read."""
    with torch.device("meta"):
        backbone = create_model(MODEL, in_channels=1, num_classes=1).backbone
    assert isinstance(backbone, PointTransformerV3)
    return backbone


def _batch(grid_coord: Tensor, device: torch.device) -> PointBatch:
    coord = grid_coord.float() * GRID_SIZE
    offsets = torch.tensor([0, len(coord)])
    return PointBatch(coord=coord, grid_coord=grid_coord, feat=coord[:, :1], offsets=offsets).to(
        device
    )
