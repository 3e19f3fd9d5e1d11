"""What sparse convolutions and their kernel maps cost on this machine, beside spconv.

n voxels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Int
from torch import Tensor

from pctx.geometry.kernel_map import KernelMap, kernel_map
from pctx.inference.timing import Clock, Measurement, Work
from pctx.nn.sparse_conv import SubmanifoldConv3d
from pctx.nn.spconv_engine import lay_out, spconv_is_installed, spconv_library

KERNEL = 3
"""Taps an axis of the convolutions that are measured."""

MAPS = (3, 5)
"""Taps an axis of the kernel maps that are measured."""


@dataclass(frozen=True, kw_only=True)
class ConvolutionReport:
    """What convolutions cost.

    Attributes:
        work: `map3` and `map5`, the maps; by channels, `forward` and `both`, with backward. Each
            against `spconv` where it is installed.
        met: mean number of voxels under the 27 taps of a kernel, the centre included.
    """

    work: tuple[Measurement, ...]
    met: float


def measure_convolutions(
    grid_coord: Int[Tensor, "n 3"],
    *,
    channels: Sequence[int],
    repeats: int,
    device: torch.device | str = "cpu",
    tell: Callable[[str], object] = lambda _: None,
) -> ConvolutionReport:
    """Time kernel maps, and submanifold convolutions by torch, beside spconv's Native algorithm.

    Takes the threads that torch is set to. spconv's pairs are laid out before its time runs.

    Args:
        grid_coord: one cloud.
        channels: read and written, for each convolution.
        repeats: most runs of each piece of work.
        tell: called with what is being measured.
    """
    clock = Clock(repeats=repeats, device=torch.device(device))
    grid_coord = grid_coord.to(clock.device)
    n = len(grid_coord)
    offsets = torch.tensor([0, n], device=clock.device)
    tell(f"kernel maps of {n:,} voxels")
    installed = spconv_is_installed()
    if installed:
        spconv_library()  # takes seconds, which no piece of work should
    work = []
    for size in MAPS:
        theirs: dict[str, Work] = {"spconv": partial(map_by_spconv, grid_coord, size)}
        ours = partial(kernel_map, grid_coord, offsets, size)
        work.append(clock.compare(f"map{size}", n, ours, **(theirs if installed else {})))
    pairs = kernel_map(grid_coord, offsets, KERNEL)
    for width in channels:
        tell(f"convolutions of {width} channels")
        ways = _ways(pairs, width, clock.device)
        theirs = _ways_by_spconv(pairs, width, clock.device) if installed else {}
        for name, run in ways.items():
            plain = {"spconv": theirs[name]} if name in theirs else {}
            work.append(clock.compare(f"{name}{width}", n, run, **plain))
    return ConvolutionReport(work=tuple(work), met=len(pairs.source) / n)


def map_by_spconv(grid_coord: Int[Tensor, "n 3"], kernel_size: int) -> Tensor:
    """Find the pairs of one cloud by spconv: (sources and targets, taps, n), -1 beyond the last."""
    ops = spconv_library()
    rows = torch.nn.functional.pad(grid_coord.int(), (1, 0))
    ones, taps = [1] * 3, [kernel_size] * 3
    pairs: Tensor = ops.get_indice_pairs(
        rows, 1, (grid_coord.amax(0) + 1).tolist(), ops.ConvAlgo.Native,
        taps, ones, [kernel_size // 2] * 3, ones, [0] * 3, True,
    )[1]  # fmt: skip
    return pairs


def _ways(pairs: KernelMap, width: int, device: torch.device) -> dict[str, Work]:
    conv, feat, grad = _inputs(pairs, width, device)
    leaf = feat.clone().requires_grad_()

    def forward() -> Tensor:
        with torch.no_grad():
            rows: Tensor = conv(feat, pairs)
        return rows

    def both() -> tuple[Tensor, ...]:
        return torch.autograd.grad(conv(leaf, pairs), (leaf, conv.weight), grad)

    return {"forward": forward, "both": both}


def _ways_by_spconv(pairs: KernelMap, width: int, device: torch.device) -> dict[str, Work]:
    conv, feat, grad = _inputs(pairs, width, device)
    ops, weight, table = spconv_library(), conv.weight.detach(), lay_out(pairs)
    options = {"inverse": False, "subm": True, "algo": ops.ConvAlgo.Native}

    def forward() -> object:
        return ops.indice_conv(feat, weight, *table, len(feat), **options)

    def both() -> object:
        return forward(), ops.indice_conv_backward(feat, weight, grad, *table, **options)

    return {"forward": forward, "both": both}


def _inputs(
    pairs: KernelMap, width: int, device: torch.device
) -> tuple[SubmanifoldConv3d, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    conv = SubmanifoldConv3d(width, width, KERNEL, bias=False, backend="torch").to(device)
    feat, grad = (torch.randn(pairs.num_sources, width, generator=generator) for _ in range(2))
    return conv, feat.to(device), grad.to(device)
