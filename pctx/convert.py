"""Published weights: the training checkpoints of Pointcept, in and out."""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pctx.checkpoint import Checkpoint, backbone_class, build_model, save_content
from pctx.data.features import FeatureSpec
from pctx.data.io.atomic import replacing
from pctx.data.labels import LabelSet
from pctx.models.backbone import Backbone
from pctx.models.factory import look_up
from pctx.models.families import family_of
from pctx.models.point_transformer_v1 import PointTransformerV1
from pctx.models.point_transformer_v2 import PointTransformerV2
from pctx.models.weights import Difference, compare

WRAPPER = "module."
"""Before every name where the model was trained on several devices."""

COLOR_MIDDLE = 127.5
"""Colours 0 to 255 less this, over this, are -1 to 1."""


class Input(NamedTuple):
    """What a published model reads."""

    features: FeatureSpec
    grid_size: float


class MisfitError(ValueError):
    """The weights of a file are not those of the model named; `difference` has published names."""

    def __init__(self, message: str, difference: Difference):
        super().__init__(message)
        self.difference = difference


def read_published(path: str | Path) -> dict[str, Tensor]:
    """Read the weights of a training checkpoint, or a bare state dict, by their published names.

    Tensors, plain values and NumPy's numbers are read; anything else is refused, and no code in the
    file is run.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it holds something else, or no weights.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file of weights")
    try:
        with torch.serialization.safe_globals(_numpy_scalars()):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL (\S+)", str(error))
        what = f"it holds {found[1]}, which could run code" if found else "it is no torch file"
        raise ValueError(f"{path}: not read, as {what}; weights are tensors and numbers") from error
    except Exception as error:  # of damaged bytes, the unpickler raises whatever it comes upon
        raise ValueError(f"{path}: not a file of weights, or a damaged one") from error
    weights = content.get("state_dict", content) if isinstance(content, dict) else None
    if not isinstance(weights, dict) or not weights:
        raise ValueError(f"{path}: no weights in it (expected a training checkpoint, a state dict)")
    strange = [name for name, value in weights.items() if not isinstance(value, Tensor)]
    if strange:
        raise ValueError(f"{path}: no state dict, as {strange[0]!r} in it is no tensor")
    return {str(name).removeprefix(WRAPPER): value for name, value in weights.items()}


def import_published(
    weights: Mapping[str, Tensor],
    *,
    model: str,
    labels: LabelSet,
    features: FeatureSpec | None = None,
    grid_size: float | None = None,
    overrides: Mapping[str, Any] = MappingProxyType({}),
) -> Checkpoint:
    """Make a model file's content of published weights. Every name and shape must fit.

    The backbone does as the released code does where it can do otherwise (`published`).

    Args:
        weights: by published name, from `read_published`.
        model: one of `list_models()`, of a family in `FAMILIES`.
        labels: the classes, in the order they were trained in.
        features: the channels, in their order; None takes those that `published_input` tells.
        grid_size: edge of a voxel, metres; None likewise.
        overrides: arguments of the backbone in place of the named model's.

    Raises:
        MisfitError: names are missing or unexpected, or shapes differ.
        ValueError: there is no such model or argument, its family was not published, or what it
            reads must be told.
    """
    row = look_up(model, overrides)
    family = family_of(row.backbone)
    if features is None or grid_size is None:
        stem = weights.get(family.name(family.stem))
        # A file without the stem is refused below, whatever it is taken for.
        channels = 4 if stem is None else family.from_axes(family.stem, stem).shape[-1]
        usual = published_input(row.backbone, channels)
        features, grid_size = features or usual.features, grid_size or usual.grid_size
    parameters = inspect.signature(row.backbone).parameters
    arguments = {
        name: p.default
        for name, p in parameters.items()
        if p.default is not inspect.Parameter.empty
    }
    as_released = {"published": True, "grid_size": grid_size}
    arguments |= row.arguments
    arguments |= {name: value for name, value in as_released.items() if name in parameters}
    arguments |= overrides
    backbone = f"{row.backbone.__module__}.{row.backbone.__qualname__}"
    fresh = build_model(backbone, arguments, features, labels).state_dict()
    ours = {family.name(own): own for own in fresh}
    expected = {name: family.to_axes(own, fresh[own]) for name, own in ours.items()}
    if difference := compare(expected, weights):
        raise MisfitError(
            f"the weights do not fit {model} with {features.width} channels and {len(labels)} "
            "classes",
            difference,
        )
    return Checkpoint(
        backbone=backbone,
        arguments=arguments,
        labels=labels,
        features=features,
        grid_size=grid_size,
        weights={own: family.from_axes(own, weights[name]) for name, own in ours.items()},
    )


def export_published(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Give the weights of a model their published names and axes, for Pointcept's loader.

    Raises:
        ValueError: the model's family was not published, or it has weights that none there has.
    """
    family = family_of(backbone_class(checkpoint.backbone))
    return {
        WRAPPER + family.name(own): family.to_axes(own, weight).contiguous()
        for own, weight in checkpoint.weights.items()
    }


def write_published(path: Path, checkpoint: Checkpoint) -> None:
    """Write `export_published` as a training checkpoint, beside its name, then rename it."""
    content = {"state_dict": export_published(checkpoint)}
    with replacing(path, overwrite=True) as beside:
        save_content(content, beside)


def published_input(backbone: type[Backbone], channels: int) -> Input:
    """Tell what the published models of a class with so many channels read.

    4: a driving scan. 6 and 9: rooms, by colour and normal and, in 9 and in Point Transformer V1
    and V2, by coordinates.

    Raises:
        ValueError: none with so many channels was published, or it reads what no field holds.
    """
    early = backbone in (PointTransformerV1, PointTransformerV2)
    usual = {
        4: Input(published_features("sensor_coord", "intensity"), 0.05),
        6: Input(published_features("color", "normal"), 0.02),
        9: Input(published_features("coord", "color", "normal"), 0.02),
    }
    if early:
        usual[6] = Input(published_features("coord", "color"), 0.04)
    if channels not in usual:
        raise ValueError(
            f"the weights read {channels} channels, and nothing says which; name the fields "
            "(--features) and the grid size (--grid)"
        )
    return usual[channels]


def published_features(*fields: str) -> FeatureSpec:
    """Scale fields as the published models read them: colours from -1 to 1, all else as it is."""
    color = {"color": COLOR_MIDDLE} if "color" in fields else {}
    return FeatureSpec(fields=fields, scales=color, centers=color)


def _numpy_scalars() -> list[Any]:
    """List what NumPy needs to bring back a number, by the names of its first and second version.

    No other type of NumPy is among them: arrays, objects and records stay refused.
    """
    make = np.float64(0).__reduce__()[0]
    names = [f"{home}.multiarray.scalar" for home in ("numpy.core", "numpy._core")]
    types = [type(np.dtype(code)) for code in _NUMBERS]
    return [np.dtype, *types, *((make, name) for name in names)]


_NUMBERS = "?bhilqBHILQefd"
