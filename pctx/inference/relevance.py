"""Relevance: a number for each point, carried from a model's result back through its layers.

n points (voxels) of a batch, m points of a level.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from pctx.data.prepare import Sample
from pctx.geometry.hierarchy import Level
from pctx.geometry.points import PointBatch
from pctx.inference.inside import Layer, Run

Step = Callable[[Layer, Tensor], Tensor]
"""Takes the relevance (m,) of what a layer gave to that of what it was given."""


def carried(
    run: Run, relevance: Float[Tensor, "n"], step: Step, *, joined: float
) -> Float[Tensor, "n"]:
    """Carry the relevance of the result, point by point, back to the model's input.

    Attention layers are walked from the last to the first. Between levels, a coarse point has the
    sum of what its points have on the way up, and on the way down they share evenly what it has.
    Whatever else a model does counts as the identity.

    Args:
        run: the forward pass.
        relevance: of the result.
        step: through a layer.
        joined: what each of the two ways gets that meet where the features of a level are added on
            the way back; 0.5 keeps the sum.
    """
    top = len(run.levels) - 1
    skips: list[Tensor] = []
    for level in range(top + 1):
        for layer in _stage(run, level, decoder=True):
            relevance = step(layer, relevance)
        if level < top:
            skips.append(relevance * (joined if level in run.joins else 0))
            relevance = relevance * (joined if level in run.joins else 1)
            relevance = _collected(relevance, run.levels, level)
    for level in range(top, -1, -1):
        for layer in _stage(run, level, decoder=False):
            relevance = step(layer, relevance)
        if level:
            relevance = _shared(relevance, run.levels, level - 1) + skips[level - 1]
    return relevance


def spread(values: Float[Tensor, "m"], levels: Sequence[Level], level: int) -> Float[Tensor, "n"]:
    """Share the values of a level evenly among the points of each of its points; the sum stays."""
    for finer in range(level - 1, -1, -1):
        values = _shared(values, levels, finer)
    return values


def copied(values: Float[Tensor, "m"], levels: Sequence[Level], level: int) -> Float[Tensor, "n"]:
    """Give every point the value of the point of a level that it was pooled into."""
    for finer in range(level - 1, -1, -1):
        values = values[parents(levels, finer)]
    return values


def pooled_into(row: int, levels: Sequence[Level], level: int) -> int:
    """Give the point of a level that a point of the batch was pooled into."""
    for finer in range(level):
        row = int(parents(levels, finer)[row])
    return row


def on_raw_points(values: Float[Tensor, "n"], sample: Sample) -> np.ndarray:
    """Give every raw point the value of its voxel, float32; not a number where it is in none."""
    padded = torch.cat([values.detach().float().cpu(), torch.tensor([torch.nan])])
    result: np.ndarray = padded[sample.inverse.cpu()].numpy()
    return result


def require_row(points: PointBatch, row: int) -> None:
    """Refuse a number that no point of the batch has."""
    if not 0 <= row < len(points):
        raise ValueError(f"the batch has points 0 to {len(points) - 1}, found {row}")


def parents(levels: Sequence[Level], level: int) -> Int[Tensor, "m"]:
    """Give for each point of a level the point of the next that stands for it.

    It is the one that it was pooled into; where the next level is sampled, the nearest.

    Raises:
        ValueError: the plan knows neither.
    """
    fine = levels[level]
    if fine.pooling is not None:
        return fine.pooling.cluster
    if fine.nearest_coarse is not None:
        return fine.nearest_coarse.index[:, 0]
    raise ValueError(f"the plan does not say how level {level} is pooled into the next")


def _stage(run: Run, level: int, *, decoder: bool) -> list[Layer]:
    """Give the layers of a stage, the last first."""
    return [each for each in run.layers[::-1] if (each.level, each.decoder) == (level, decoder)]


def _collected(values: Tensor, levels: Sequence[Level], level: int) -> Tensor:
    """Sum the values of a level into the next."""
    coarse = values.new_zeros(levels[level + 1].num_points)
    return coarse.index_add_(0, parents(levels, level), values)


def _shared(values: Tensor, levels: Sequence[Level], level: int) -> Tensor:
    """Share the values of the next level among the points of a level."""
    parent = parents(levels, level)
    return (values / parent.bincount(minlength=len(values)))[parent]
