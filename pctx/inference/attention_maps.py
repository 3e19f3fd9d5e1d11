"""Maps of attention: whom a point listens to in one layer, and through all of them.

`relevance.on_raw_points` brings them from the voxels of a batch to the points of a file.

n points (voxels) of a batch, m of a level, k slots or neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pctx.geometry.points import PointBatch
from pctx.inference.hearing import attention_of
from pctx.inference.inside import Layer, find_layer, list_layers, record
from pctx.inference.relevance import carried, pooled_into, require_row, spread
from pctx.models.segmentor import Segmentor


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionMap:
    """Whom one point listens to in one layer.

    Attributes:
        layer: the layer.
        query: the point of the layer's level that asks.
        index: the points of that level that it hears: those of its window, or its neighbours.
        weight: what each of them is to it; the sum is 1.
        point: the same on the batch: what a coarse point has, its points share evenly.
        heads: of the layer.
    """

    layer: Layer
    query: int
    index: Int[Tensor, "k"]
    weight: Float[Tensor, "k"]
    point: Float[Tensor, "n"]
    heads: int


@torch.no_grad()
def attention_map(
    model: Segmentor,
    points: PointBatch,
    layer: int | str | None,
    head: int | None,
    query: int,
) -> AttentionMap:
    """Show whom a point listens to in a layer; only the weights of its own window are computed.

    Args:
        model: in evaluation mode.
        points: packed voxels.
        layer: number in the order of execution, or name; None is the last of the finest level.
        head: number; None is the mean of all.
        query: one of the points; on a coarser level, the one that it was pooled into asks.

    Raises:
        ValueError: there is no such point, layer or head, or no attention in the model.
    """
    require_row(points, query)
    number = find_layer(list_layers(model), layer).number
    run = record(model, points, keep=(number,))
    chosen = run.layers[number]
    row = pooled_into(query, run.levels, chosen.level)
    (heard,) = attention_of(chosen, points.offsets.new_tensor([row]))
    heads = heard.weights.shape[1]
    if head is not None and not 0 <= head < heads:
        raise ValueError(f"layer {number} has heads 0 to {heads - 1}, found {head}")
    weight = heard.weights[0].mean(0) if head is None else heard.weights[0, head]
    index = heard.index[0]
    if heard.valid is not None:
        index, weight = index[heard.valid[0]], weight[heard.valid[0]]
    level = weight.new_zeros(run.levels[chosen.level].num_points).index_add_(0, index, weight)
    return AttentionMap(
        layer=chosen,
        query=row,
        index=index,
        weight=weight,
        point=spread(level, run.levels, chosen.level),
        heads=heads,
    )


@torch.no_grad()
def attention_rollout(model: Segmentor, points: PointBatch, query: int) -> Float[Tensor, "n"]:
    """Show which points a point's result draws on, through all attention layers; the sum is 1.

    From the last layer to the first r <- r (A + I) / 2, with A the mean of the heads, and r at
    first 1 at the query (Abnar and Zuidema, Quantifying Attention Flow in Transformers, 2020). It
    is a row vector that is carried, window by window; where two ways join, as in a U-Net, each
    gets half. See `relevance.carried`.

    Args:
        model: in evaluation mode.
        points: packed voxels.
        query: one of them.

    Raises:
        ValueError: there is no such point, or no attention in the model.
    """
    require_row(points, query)
    run = record(model, points)
    start = torch.zeros(len(points), dtype=torch.float64, device=points.feat.device)
    start[query] = 1
    return carried(run, start, _mixed, joined=0.5).float()


def _mixed(layer: Layer, relevance: Float[Tensor, "m"]) -> Float[Tensor, "m"]:
    """Return r (A + I) / 2; a point that hears nothing keeps what it has."""
    given = torch.zeros_like(relevance)
    for heard in attention_of(layer, relevance.nonzero()[:, 0]):
        paid = heard.weights.mean(1).to(relevance.dtype)
        asked = relevance[heard.rows]
        given.index_add_(0, heard.index.flatten(), (asked[:, None] * paid).flatten())
        given.index_add_(0, heard.rows, asked * (1 - paid.sum(1)))
    return (relevance + given) / 2
