"""Inside: the attention layers of a model, and what they were given and gave as they ran.

n points of a layer, c channels.
"""

from __future__ import annotations

import inspect
from collections.abc import Container
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pctx.geometry.hierarchy import Hierarchy, Level
from pctx.geometry.points import PointBatch
from pctx.models.segmentor import Segmentor
from pctx.models.unet import UNet
from pctx.nn.attentive import Attentive


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """An attention layer as it ran.

    Attributes:
        number: its place in the order of execution, from 0.
        name: of its module in the model.
        level: the level whose points it mixes.
        decoder: whether it lies on a U-Net's way back, its bottom included.
        module: itself.
        inputs: of its forward; empty where they were not asked for.
        output: of its forward.
    """

    number: int
    name: str
    level: int
    decoder: bool
    module: Attentive
    inputs: tuple[Any, ...]
    output: Float[Tensor, "n c"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """A forward pass that was listened to.

    Attributes:
        levels: those of its plan.
        layers: its attention layers, in the order of execution.
        joins: the levels where what the way down gave is added on the way back.
        logits: of the model.
    """

    levels: tuple[Level, ...]
    layers: tuple[Layer, ...]
    joins: tuple[int, ...]
    logits: Float[Tensor, "n classes"]


def record(model: Segmentor, points: PointBatch, keep: Container[int] | None = None) -> Run:
    """Run a model and note what its attention layers were given and gave.

    Every `Attentive` module is a layer, unless it is part of another. Beside the forward's own,
    memory holds the inputs of the layers: rows of features and, where a model adds a bias to the
    scores, that of every window.

    Args:
        model: in evaluation mode.
        points: packed voxels.
        keep: numbers of the layers whose inputs are kept; None keeps all.

    Raises:
        ValueError: the model is in training mode, or has no attention to look into.
    """
    require_evaluation(model)
    hierarchy = model.backbone.plan(points)
    layers, logits = listen(model, points, hierarchy, keep)
    if not layers:
        raise ValueError(f"{type(model.backbone).__name__} has no attention layers to look into")
    joins = model.backbone.joins
    return Run(
        levels=hierarchy.levels,
        layers=layers,
        joins=tuple(range(len(hierarchy.levels) - 1)) if joins is None else joins,
        logits=logits,
    )


def listen(
    model: Segmentor, points: PointBatch, hierarchy: Hierarchy, keep: Container[int] | None = None
) -> tuple[tuple[Layer, ...], Float[Tensor, "n classes"]]:
    """Run a model along a plan; give its attention layers, if any, and its logits; see `record`."""
    layers: list[Layer] = []

    def note(name: str, module: nn.Module, args: Any, options: Any, output: Tensor) -> None:
        assert isinstance(module, Attentive)
        bound = inspect.signature(module.forward).bind(*args, **options)
        assert not bound.kwargs, f"{name} has inputs by keyword only"
        norm = bound.arguments.pop("norm", None)  # what the features go through first
        level, decoder = place(model, module, name, hierarchy, len(output), bound.args)
        kept: tuple[Any, ...] = ()
        if keep is None or len(layers) in keep:
            if norm is not None:
                with torch.no_grad():
                    bound.arguments["feat"] = norm(bound.arguments["feat"])
            kept = tuple(each.detach() if isinstance(each, Tensor) else each for each in bound.args)
        layers.append(
            Layer(
                number=len(layers),
                name=name,
                level=level,
                decoder=decoder,
                module=module,
                inputs=kept,
                output=output,
            )
        )

    with ExitStack() as hooks:
        for name, module in _attentive(model).items():
            hook = lambda module, *seen, name=name: note(name, module, *seen)  # noqa: E731
            hooks.enter_context(module.register_forward_hook(hook, with_kwargs=True))
        logits = model(points, hierarchy)
    return tuple(layers), logits


def list_layers(model: Segmentor) -> tuple[Layer, ...]:
    """Give the attention layers of a model in evaluation mode, as they run on a single point.

    Raises:
        ValueError: as `record`.
    """
    with torch.no_grad():
        return record(model, single_point(model)).layers


def single_point(model: Segmentor) -> PointBatch:
    """Make a cloud of one point that the model can read, to try a question out on."""
    device = next(model.parameters()).device
    return PointBatch(
        coord=torch.zeros(1, 3, device=device),
        grid_coord=torch.zeros(1, 3, device=device, dtype=torch.int64),
        feat=torch.zeros(1, model.backbone.in_channels, device=device),
        offsets=torch.tensor([0, 1], device=device),
    )


def find_layer(layers: tuple[Layer, ...], wanted: int | str | None) -> Layer:
    """Choose a layer by number or name; None is the last one of the finest level that has any.

    Raises:
        ValueError: there is no such layer.
    """
    if wanted is None:
        finest = min(layer.level for layer in layers)
        return next(layer for layer in reversed(layers) if layer.level == finest)
    for layer in layers:
        if wanted in (layer.number, layer.name):
            return layer
    raise ValueError(
        f"there is no attention layer {wanted}; in the order of execution they are "
        f"{describe_layers(layers)}"
    )


def feature_module(model: Segmentor, wanted: int | str | None) -> tuple[str, nn.Module]:
    """Choose a module whose features are looked at, with its name.

    Args:
        model: in evaluation mode.
        wanted: its name; or the number of an attention layer, for the block that holds it; None is
            the coarsest stage of a U-Net, else the block of the last attention layer.

    Raises:
        ValueError: there is no such module.
    """
    unet, name = _unet(model), wanted
    if unet is not None and wanted is None:
        stage = unet.encoder[-1]
        name = next(each for each, module in model.named_modules() if module is stage)
    elif not isinstance(wanted, str):
        layers = list_layers(model)
        layer = layers[-1] if wanted is None else find_layer(layers, wanted)
        name = layer.name.rpartition(".")[0]
    try:
        return str(name), model.get_submodule(str(name))
    except AttributeError as error:
        raise ValueError(f"the model has no module {name}") from error


def describe_layers(layers: tuple[Layer, ...]) -> str:
    """Say on which levels the layers are, in a line: "0 on level 0, 1 to 2 on level 1, …"."""
    parts = []
    for (level, decoder), run in groupby(layers, lambda layer: (layer.level, layer.decoder)):
        numbers = [layer.number for layer in run]
        span = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
        parts.append(f"{span} on level {level}{' of the decoder' if decoder else ''}")
    return ", ".join(parts)


def place(
    model: Segmentor,
    module: nn.Module,
    name: str,
    hierarchy: Hierarchy,
    rows: int,
    inputs: tuple[Any, ...] = (),
) -> tuple[int, bool]:
    """Say on which level a module works, and whether on a U-Net's way back.

    In a U-Net the stage says so, elsewhere the windows or neighbours among the inputs if they are
    a level's, else the number of rows.

    Args:
        model: that the module is part of.
        module: any.
        name: its own.
        hierarchy: the plan it ran along.
        rows: that it gave.
        inputs: that it was given.

    Raises:
        ValueError: no level has so many points.
    """
    unet = _unet(model)
    if unet is not None:
        last = len(unet.encoder) - 1
        stages = [(level, False, stage) for level, stage in enumerate(unet.encoder)]
        stages += [(level, True, stage) for level, stage in enumerate(unet.decoder)]
        stages += [(last, True, unet.bottom)] if unet.bottom is not None else []
        for level, decoder, stage in stages:
            if any(module is part for part in stage.modules()):
                return level, decoder
    for level, each in enumerate(hierarchy.levels):
        if any(given is own for given in inputs for own in (*each.windows, each.neighbors) if own):
            return level, False
    for level, each in enumerate(hierarchy.levels):
        if each.num_points == rows:
            return level, False
    raise ValueError(f"{name} gives {rows} rows, as many points as no level has")


def require_evaluation(model: Segmentor) -> None:
    """Refuse a model in training mode: its norms and dropped paths are not those of its use."""
    if model.training:
        raise ValueError("the model is in training mode; call model.eval() first")


def _attentive(model: Segmentor) -> dict[str, nn.Module]:
    """Find the attention layers by name; one inside another is not told apart from it."""
    found: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        attentive = isinstance(module, Attentive)
        if attentive and not any(name.startswith(f"{outer}.") for outer in found):
            found[name] = module
    return found


def _unet(model: Segmentor) -> UNet | None:
    return next((module for module in model.modules() if isinstance(module, UNet)), None)
