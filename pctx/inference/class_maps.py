"""Maps of a class: which points speak for it, by attention and its gradient, or by features.

The score s is the class's logit, summed over some points. `relevance.on_raw_points` brings a map
from the voxels of a batch to the points of a file.

n points (voxels) of a batch, m of a level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from pctx.geometry.points import PointBatch
from pctx.inference.hearing import gain_of
from pctx.inference.inside import (
    Layer,
    feature_module,
    find_layer,
    list_layers,
    listen,
    place,
    record,
    require_evaluation,
)
from pctx.inference.relevance import carried, copied, require_row, spread
from pctx.models.segmentor import Segmentor


def class_map(
    model: Segmentor,
    points: PointBatch,
    class_number: int,
    rows: Sequence[int] | None = None,
    layer: int | str | None = None,
) -> Float[Tensor, "n"]:
    """Show the points to which listening speaks for a class.

    In a layer it is E = mean over heads of relu(A * ds / dA), and the map of one layer is the sum
    of its rows: who was listened to, by whomever. Through all layers, from the last to the first,
    r <- r + r E, with r at first 1 at the points of the score; the map is what r gains (Chefer et
    al., Generic Attention-model Explainability, 2021, equations 5 and 6). See `relevance.carried`;
    each way into a join gets all. The forward takes as much memory as in training; the
    gradients by attention are computed a few windows at a time.

    Args:
        model: in evaluation mode.
        points: packed voxels.
        class_number: the class.
        rows: the points of the score; None takes all that are predicted as the class.
        layer: number or name of one layer; None takes all.

    Raises:
        ValueError: there is no such class, point or layer, no attention in the model, no row is
            given, or no point is predicted as the class.
    """
    only = None if layer is None else find_layer(list_layers(model), layer).number
    with torch.enable_grad():
        run = record(model, _differentiable(points), None if only is None else (only,))
        asked = _asked(points, run.logits, class_number, rows)
        layers = run.layers if only is None else run.layers[only : only + 1]
        slopes = torch.autograd.grad(
            run.logits[asked, class_number].sum(),
            [each.output for each in layers],
            allow_unused=True,
            materialize_grads=True,
        )
    gain = partial(_gain, {each.number: slope for each, slope in zip(layers, slopes, strict=True)})
    if only is not None:
        every = torch.ones_like(slopes[0][:, 0], dtype=torch.float64)
        return spread(gain(layers[0], every), run.levels, layers[0].level).float()
    start = torch.zeros(len(points), dtype=torch.float64, device=points.feat.device)
    start[asked] = 1
    heard = carried(run, start, lambda each, r: r + gain(each, r), joined=1)
    unheard = carried(run, start, lambda _, r: r, joined=1)
    return (heard - unheard).float()


def grad_cam(
    model: Segmentor,
    points: PointBatch,
    class_number: int,
    rows: Sequence[int] | None = None,
    layer: int | str | None = None,
) -> Float[Tensor, "n"]:
    """Show where the features of a layer speak for a class, from 0 to 1.

    relu(sum over channels of w_c f_c) over its largest value, w_c being the mean over the points
    of ds / df_c (Selvaraju et al., Grad-CAM, 2017, equations 1 and 2). Every point has the value of
    the coarse point that it was pooled into.

    Args:
        model: in evaluation mode.
        points: packed voxels.
        class_number: the class.
        rows: the points of the score; None takes all that are predicted as the class.
        layer: name of a module that gives a row a point; or number of an attention layer, for the
            block that holds it; None is the coarsest stage of a U-Net, else the last such block.

    Raises:
        ValueError: there is no such class, point or layer, the layer gives no rows of features, no
            row is given, or no point is predicted as the class.
    """
    require_evaluation(model)
    name, module = feature_module(model, layer)
    hierarchy = model.backbone.plan(points)
    outputs: list[Tensor] = []
    hook = module.register_forward_hook(lambda _module, _inputs, output: outputs.append(output))
    try:
        with torch.enable_grad():
            layers, logits = listen(model, _differentiable(points), hierarchy, keep=())
    finally:
        hook.remove()
    asked = _asked(points, logits, class_number, rows)
    if not outputs or not isinstance(outputs[-1], Tensor) or outputs[-1].ndim != 2:
        raise ValueError(f"{name} gives no rows of features, one a point")
    feat = outputs[-1]
    level, _ = place(model, module, name, hierarchy, len(feat))
    for each in layers:  # levels may have as many points: what attends inside knows its own
        if each.name.startswith(f"{name}.") and len(each.output) == len(feat):
            level = each.level
    (slope,) = torch.autograd.grad(logits[asked, class_number].sum(), feat)
    value = (feat.detach() @ slope.mean(0)).relu()
    value = value / value.max().clamp_min(torch.finfo(value.dtype).tiny)
    return copied(value, hierarchy.levels, level)


def _gain(
    slopes: dict[int, Tensor], layer: Layer, relevance: Float[Tensor, "m"]
) -> Float[Tensor, "m"]:
    """Return r E."""
    given = torch.zeros_like(relevance)
    for heard in gain_of(layer, relevance.nonzero()[:, 0], slopes[layer.number]):
        gain = heard.weights.relu().mean(1).to(relevance.dtype)
        asked = relevance[heard.rows]
        given.index_add_(0, heard.index.flatten(), (asked[:, None] * gain).flatten())
    return given


def _differentiable(points: PointBatch) -> PointBatch:
    return replace(points, feat=points.feat.detach().requires_grad_())


def _asked(
    points: PointBatch, logits: Tensor, class_number: int, rows: Sequence[int] | None
) -> Int[Tensor, "q"]:
    """Give the points whose logits make the score."""
    classes = logits.shape[1]
    if not 0 <= class_number < classes:
        raise ValueError(f"the model has classes 0 to {classes - 1}, found {class_number}")
    if rows is None:
        asked = (logits.argmax(1) == class_number).nonzero()[:, 0]
        if len(asked) == 0:
            raise ValueError(f"no point is predicted as class {class_number}")
        return asked
    if not len(rows):
        raise ValueError("rows must name a point of the score, found []; None takes all predicted")
    for row in rows:
        require_row(points, row)
    return points.offsets.new_tensor(rows)
