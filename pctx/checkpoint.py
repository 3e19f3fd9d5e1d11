"""Checkpoint: a model file that describes itself, and nothing in it that could run."""

from __future__ import annotations

import pickle
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pctx import __version__
from pctx.data.features import FeatureSpec
from pctx.data.io.atomic import replacing
from pctx.data.labels import LabelSet
from pctx.models.backbone import Backbone
from pctx.models.segmentor import Segmentor

FORMAT = "pctx-model-1"


@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """Everything that labelling a cloud needs.

    Attributes:
        backbone: import path of the backbone's class.
        arguments: its keyword arguments, `in_channels` left out: the features say it.
        labels: the classes, with raw ids and colours.
        features: the channels and their scales.
        grid_size: edge of a voxel, metres.
        weights: the state dict of the Segmentor.
        metrics: scores noted when the file was written.
        version: of pctx, when written.
    """

    backbone: str
    arguments: Mapping[str, Any]
    labels: LabelSet
    features: FeatureSpec
    grid_size: float
    weights: Mapping[str, Tensor]
    metrics: Mapping[str, float] = field(default_factory=dict)
    version: str = __version__

    def build(self) -> Segmentor:
        """Make the model with these weights, in evaluation mode.

        Raises:
            ValueError: the weights do not fit; the message says which keys, and the version.
        """
        model = build_model(self.backbone, self.arguments, self.features, self.labels)
        if difference := _difference(model.state_dict(), self.weights):
            raise ValueError(f"the weights, of pctx {self.version}, do not fit: {difference}")
        model.load_state_dict(dict(self.weights))
        return model.eval()

    def save(self, path: Path) -> None:
        """Write the file beside its name, then rename it."""
        content = {
            "format": FORMAT,
            "version": self.version,
            "model": {"backbone": self.backbone, "arguments": dict(self.arguments)},
            "labels": self.labels.to_dict(),
            "features": self.features.to_dict(),
            "grid_size": float(self.grid_size),
            "metrics": {name: float(value) for name, value in self.metrics.items()},
            "weights": {name: value.detach().cpu().clone() for name, value in self.weights.items()},
        }
        with replacing(path, overwrite=True) as beside:
            torch.save(content, beside)


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Read a model file. Only tensors and plain values are read: no code in a file is run.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a pctx model, or of a format this version does not know.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such model file")
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path}: not a pctx model file (expected a model.pt)")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, pickle.UnpicklingError) as error:
        raise ValueError(f"{path}: not a pctx model file, or a damaged one") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise ValueError(f"{path}: not a pctx model file: format {found!r}, expected {FORMAT!r}")
    try:
        return Checkpoint(
            backbone=content["model"]["backbone"],
            arguments=content["model"]["arguments"],
            labels=LabelSet.from_dict(content["labels"]),
            features=FeatureSpec.from_dict(content["features"]),
            grid_size=content["grid_size"],
            weights=content["weights"],
            metrics=content["metrics"],
            version=content["version"],
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: a damaged pctx model file ({error})") from error


def build_model(
    backbone: str, arguments: Mapping[str, Any], features: FeatureSpec, labels: LabelSet
) -> Segmentor:
    """Make a new model from a backbone's import path and arguments."""
    cls = _backbone_class(backbone)
    return Segmentor(cls(in_channels=features.width, **arguments), num_classes=len(labels))


def fine_tune(model: Segmentor, weights: Mapping[str, Tensor]) -> list[str]:
    """Copy into a model every weight that fits by name and shape; give the names of the rest.

    Raises:
        ValueError: no weight of the backbone fits.
    """
    own = model.state_dict()
    fitting = {
        name: value
        for name, value in weights.items()
        if name in own and own[name].shape == value.shape
    }
    if not any(name.startswith("backbone.") for name in fitting):
        raise ValueError("none of the weights fits the model: is it of another architecture?")
    model.load_state_dict(fitting, strict=False)
    return [name for name in own if name not in fitting]


def _backbone_class(path: str) -> type[Backbone]:
    """Find a backbone of pctx, or one of a module that is imported already."""
    module_name, _, name = path.rpartition(".")
    if module_name.startswith("pctx.models."):
        module = import_module(module_name)
    elif module_name in sys.modules:
        module = sys.modules[module_name]
    else:
        raise ValueError(f"the model is of class {path}; import {module_name or path} first")
    cls = getattr(module, name, None)
    if not (isinstance(cls, type) and issubclass(cls, Backbone)):
        raise ValueError(f"the model names {path}, which is not a backbone")
    return cls


def _difference(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> str:
    parts = []
    if missing := [name for name in own if name not in given]:
        parts.append(f"{len(missing)} missing ({missing[0]}, …)")
    if strange := [name for name in given if name not in own]:
        parts.append(f"{len(strange)} unexpected ({strange[0]}, …)")
    shapes = [name for name in own if name in given and own[name].shape != given[name].shape]
    if shapes:
        name = shapes[0]
        expected, found = tuple(own[name].shape), tuple(given[name].shape)
        parts.append(f"{len(shapes)} of another shape ({name}: {found} for {expected}, …)")
    return "; ".join(parts)
