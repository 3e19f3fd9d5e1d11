"""Augmentations that move every point by noise of its own, or of its place.

m finite points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from scipy.special import ndtri
from torch.nn.functional import grid_sample

from pctx.data.transforms.arguments import (
    are_numbers,
    check_least,
    check_share,
    is_list,
)
from pctx.data.transforms.geometric import moved
from pctx.geometry.points import PointCloud

MAX_NODES = 2**18
"""Nodes of an elastic grid, 3 MB; a larger extent is folded onto so many."""


@dataclass(frozen=True, kw_only=True)
class Jitter:
    """Add normal noise of `sigma` metres to each coordinate, cut at ± `clip` metres."""

    sigma: float = 0.005
    clip: float = 0.02

    def __post_init__(self) -> None:
        check_least(self, sigma=self.sigma, clip=self.clip)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Move every point by its own noise."""
        table = _noise_table(self.sigma, self.clip)
        words = rng.integers(
            2**64 - 1, size=cloud.coord.size // 4 + 1, dtype=np.uint64, endpoint=True
        )
        drawn = words.view(np.uint16)[: cloud.coord.size]
        noise = table.take(drawn, mode="clip")  # the other mode copies twice
        noise += cloud.coord.reshape(-1)
        return moved(cloud, noise.reshape(cloud.coord.shape))


@lru_cache(maxsize=16)
def _noise_table(sigma: float, clip: float) -> np.ndarray:
    """Give numbers (65536,) of which each, equally likely, makes a normal distribution, cut.

    Two random bytes a number, looked up, take a fifth of the time of a normal generator.
    """
    quantiles = ndtri((np.arange(1 << 16) + 0.5) / (1 << 16))
    return (quantiles * sigma).clip(-clip, clip).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class Elastic:
    """Bend space: smooth noise moves neighbours alike (Choy et al., 4D Spatio-Temporal ConvNets).

    One step after another lays a grid over the points, draws normal noise at its nodes, blurs it
    twice along each axis by the mean of three, and moves points by what lies between the nodes,
    linearly. An extent of more than `MAX_NODES` nodes is folded: the noise repeats, mirrored.

    Attributes:
        steps: pairs of metres: the grid's spacing, and the factor on the noise. What remains of
            the noise after the blur has a standard deviation of 0.11 at the nodes.
        probability: of bending at all.
    """

    steps: Sequence[Sequence[float]] = ((0.2, 0.4), (0.8, 1.6))
    probability: float = 0.95

    def __post_init__(self) -> None:
        check_share(self, probability=self.probability)
        pairs = is_list(self.steps) and all(is_list(p, 2) and are_numbers(p) for p in self.steps)
        if not pairs or not all(spacing > 0 <= factor for spacing, factor in self.steps):
            raise ValueError(
                f"Elastic: steps must be pairs of a spacing above 0 and a factor of 0 or more, "
                f"metres, found {self.steps!r}"
            )

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Move points; normals stay, as published."""
        if rng.random() >= self.probability or not len(cloud):
            return cloud
        whole = bool(np.isfinite(cloud.coord).all())
        coord = cloud.coord if whole else cloud.coord[cloud.finite]
        for spacing, factor in self.steps:
            if len(coord):
                coord = coord + np.float32(factor) * smooth_noise(coord, spacing, rng)
        if whole:
            return replace(cloud, coord=coord)
        every = cloud.coord.copy()
        every[cloud.finite] = coord
        return replace(cloud, coord=every)


def smooth_noise(coord: np.ndarray, spacing: float, rng: np.random.Generator) -> np.ndarray:
    """Give (m, 3) float32: blurred noise on a grid of `spacing` metres, linear between nodes."""
    columns = [(axis.astype(np.float64) - axis.min()) / spacing for axis in coord.T]
    # One node before the first point, and one after the last.
    wanted = [np.floor(column.max()) + 3 for column in columns]
    counts = _few_enough(wanted)
    noise = rng.standard_normal((3, *counts), dtype=np.float32)
    for axis in (1, 2, 3):
        noise = _blur(_blur(noise, axis), axis)
    places = []
    for column, count, all_nodes in zip(columns, counts, wanted, strict=True):
        if count < all_nodes:
            reach = count - 3
            column = reach - np.abs(column % (2 * reach) - reach)
        places.append(((column + 1) * (2 / (count - 1)) - 1).astype(np.float32))
    # torch asks for the last axis first.
    grid = torch.from_numpy(np.stack(places[::-1], axis=-1))[None, None, None]
    values = grid_sample(torch.from_numpy(noise)[None], grid, align_corners=True)
    return values.view(3, -1).T.numpy()


def _few_enough(wanted: Sequence[float]) -> list[int]:
    """Halve the longest axis until there are at most `MAX_NODES` nodes."""
    counts = [min(count, 2.0**40) for count in wanted]
    while np.prod(counts) > MAX_NODES:
        longest = int(np.argmax(counts))
        counts[longest] = np.ceil(counts[longest] / 2)
    return [int(count) for count in counts]


def _blur(noise: np.ndarray, axis: int) -> np.ndarray:
    """Take the mean of each node and its two neighbours; beyond the border lies 0."""
    blurred = noise.copy()
    source, target = np.moveaxis(noise, axis, 0), np.moveaxis(blurred, axis, 0)
    target[1:] += source[:-1]
    target[:-1] += source[1:]
    blurred *= np.float32(1 / 3)
    return blurred
