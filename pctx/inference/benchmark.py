"""What serialization and planning cost on this machine, beside plainer ways to the same result.

n voxels, o curves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from pctx.geometry.curves import CURVES, encode_curves
from pctx.geometry.hierarchy import Level
from pctx.geometry.kernel_map import kernel_maps
from pctx.geometry.neighbors import knn
from pctx.geometry.points import PointBatch
from pctx.geometry.sampling import farthest_points, plain_farthest_points, strided_counts
from pctx.geometry.serialization import Serialization, coarsen, inverted, serialize
from pctx.geometry.sorting import stable_sort
from pctx.geometry.windows import curve_windows
from pctx.inference import baseline
from pctx.inference.drive import GRID_SIZE
from pctx.inference.timing import Clock, Measurement, Work
from pctx.models.factory import create_model
from pctx.models.point_transformer_v3 import ENCODING_KERNEL, PointTransformerV3

MODEL = "ptv3_base"
"""The model whose plan is measured."""

NEIGHBORS = 16
"""Neighbours a point that are looked for."""

FARTHEST_STRIDE = 4
"""Points a sample of the farthest."""

Scene = Callable[[int], Int[Tensor, "n 3"]]
"""Gives so many voxels of a scan, no two alike, sorted as `voxelize` leaves them."""


@dataclass(frozen=True, kw_only=True)
class PlanReport:
    """What a plan and its pieces cost.

    Attributes:
        work: `codes` of the four curves, against the two plain Hilbert encoders `bits` and
            `levels`; `order`, their orders and inverses, against argsorts `together` and `singly`;
            the `plan` of a model; its parts `serialize`, `coarsen`, `windows` and `kernel_maps`;
            the nearest `neighbors`, against a `tree`; `farthest` points, against single `steps`.
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
    clock = Clock(repeats=repeats, device=torch.device(device))
    grid_coord = scene(points).to(device)
    depth = int(grid_coord.amax()).bit_length()
    tell(f"codes of {points:,} voxels; the plain ways take a while")
    codes = _measure_codes(clock, grid_coord, depth)
    tell(f"orders of {points:,} codes")
    order = _measure_order(clock, encode_curves(grid_coord, depth, CURVES), 3 * depth)
    tell(f"the plan of {MODEL} for {voxels:,} voxels, and its parts")
    backbone = _backbone()
    batch = _batch(scene(voxels), clock.device)
    levels = backbone.plan(batch).levels
    plan: dict[str, Work] = {"plan": partial(backbone.plan, batch)}
    plan |= plan_parts(backbone, batch, levels)
    times = clock.time(plan)
    tell(f"neighbours and farthest points of {voxels:,} points")
    near = _measure_neighbors(clock, batch)
    far = _measure_farthest(clock, batch)
    tell(f"plans of {', '.join(f'{size:,}' for size in sizes)} voxels")
    plans = {size: partial(backbone.plan, _batch(scene(size), clock.device)) for size in sizes}
    growth = clock.time(plans)
    parts = (Measurement(name=k, size=voxels, seconds=v) for k, v in times.items())
    return PlanReport(
        work=(codes, order, *parts, near, far),
        growth=tuple(Measurement(name="plan", size=k, seconds=v) for k, v in growth.items()),
        depth=depth,
        met=len(levels[0].kernel_maps[ENCODING_KERNEL].source) / voxels,
    )


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


def _measure_codes(clock: Clock, grid_coord: Tensor, depth: int) -> Measurement:
    def plainly(hilbert: baseline.HilbertEncoder) -> Work:
        return partial(baseline.encode_plainly, grid_coord, depth, CURVES, hilbert)

    return clock.compare(
        "codes",
        len(grid_coord),
        partial(encode_curves, grid_coord, depth, CURVES),
        bits=plainly(baseline.hilbert_by_bits),
        levels=plainly(baseline.hilbert_by_levels),
    )


def _measure_order(clock: Clock, codes: Tensor, bits: int) -> Measurement:
    return clock.compare(
        "order",
        codes.shape[1],
        partial(order_and_invert, codes, bits),
        together=partial(baseline.order_together, codes),
        singly=partial(baseline.order_singly, codes),
    )


def _measure_neighbors(clock: Clock, points: PointBatch) -> Measurement:
    return clock.compare(
        "neighbors",
        len(points),
        partial(knn, points.coord, points.offsets, NEIGHBORS),
        tree=partial(baseline.neighbors_by_tree, points.coord, NEIGHBORS),
    )


def _measure_farthest(clock: Clock, points: PointBatch) -> Measurement:
    counts = strided_counts(points.offsets, FARTHEST_STRIDE)
    return clock.compare(
        "farthest",
        len(points),
        partial(farthest_points, points.coord, points.offsets, counts),
        steps=partial(plain_farthest_points, points.coord, points.offsets, counts),
    )


def _backbone() -> PointTransformerV3:
    """Make the model without memory for weights, which a plan does not read."""
    with torch.device("meta"):
        backbone = create_model(MODEL, in_channels=1, num_classes=1).backbone
    assert isinstance(backbone, PointTransformerV3)
    return backbone


def _batch(grid_coord: Tensor, device: torch.device) -> PointBatch:
    # A point somewhere in each voxel: distances on a lattice would be equal too often.
    within = torch.rand(grid_coord.shape, generator=torch.Generator().manual_seed(0))
    coord = (grid_coord + within) * GRID_SIZE
    offsets = torch.tensor([0, len(coord)])
    return PointBatch(coord=coord, grid_coord=grid_coord, feat=coord[:, :1], offsets=offsets).to(
        device
    )
