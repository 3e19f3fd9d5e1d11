"""Checkpoint: a model file that describes itself, and nothing in it that could run."""

from __future__ import annotations

import errno
import re
import shutil
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
from pctx.models.weights import Difference, compare

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
        temperature: what logits are divided by, above 0; 1 where nothing was calibrated.
        version: of pctx, when written.
    """

    backbone: str
    arguments: Mapping[str, Any]
    labels: LabelSet
    features: FeatureSpec
    grid_size: float
    weights: Mapping[str, Tensor]
    metrics: Mapping[str, float] = field(default_factory=dict)
    temperature: float = 1.0
    version: str = __version__

    def build(self) -> Segmentor:
        """Make the model with these weights, in evaluation mode.

        Raises:
            ValueError: the weights do not fit; the message says which keys, and the version.
        """
        try:
            model = build_model(self.backbone, self.arguments, self.features, self.labels)
        except TypeError as error:
            raise ValueError(
                f"the model's arguments are not those of its class: {error}"
            ) from error
        if difference := compare(model.state_dict(), self.weights):
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
            "temperature": float(self.temperature),
            "weights": {name: value.detach().cpu().clone() for name, value in self.weights.items()},
        }
        with replacing(path, overwrite=True) as beside:
            save_content(content, beside)


def save_content(content: Any, path: Path) -> None:
    """Write with torch, whose errors do not say what the system's are.

    Raises:
        OSError: the disk is full, or the file cannot be written.
    """
    try:
        torch.save(content, path)
    except RuntimeError as error:
        free = shutil.disk_usage(path.parent).free
        why = f"No space left on device, or it cannot be written to ({free:,} bytes are free)"
        raise OSError(errno.ENOSPC, why, str(path.parent)) from error


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Read a model file. Only tensors and plain values are read: no code in a file is run.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a pctx model, or of a format this version does not know.
    """
    path = Path(path)
    if not path.is_file():
        where = (
            f"give {path / 'model.pt'}" if path.is_dir() else "a run leaves model.pt in its folder"
        )
        raise FileNotFoundError(f"{path}: no such model file; {where}")
    if not zipfile.is_zipfile(path):
        raise ValueError(
            f"{path}: not a pctx model file, such as model.pt; `pctx convert` makes one of "
            "published weights"
        )
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of damaged bytes, the unpickler raises whatever it comes upon
        raise ValueError(f"{path}: not a pctx model file, or a damaged one") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{path}: not a pctx model file{_what_else(content)}")
    try:
        return Checkpoint(
            backbone=content["model"]["backbone"],
            arguments={str(k): v for k, v in content["model"]["arguments"].items()},
            labels=LabelSet.from_dict(content["labels"]),
            features=FeatureSpec.from_dict(content["features"]),
            grid_size=float(content["grid_size"]),
            weights=_tensors(content["weights"]),
            metrics=content["metrics"],
            temperature=content.get("temperature", 1.0),  # older versions know none
            version=content["version"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path}: a damaged pctx model file ({error})") from error


def _what_else(content: Any) -> str:
    """Say what an archive of torch holds instead of a model, and what to do with it."""
    if isinstance(content, dict) and "format" in content:
        return f": its format is {content['format']!r}, this version reads {FORMAT!r}"
    if isinstance(content, dict) and "pytorch-lightning_version" in content:
        return " but the state of a run, which `resume=` goes on from; the model is its model.pt"
    return "; `pctx convert` makes one of published weights"


def _tensors(weights: Mapping[str, Any]) -> dict[str, Tensor]:
    """Check that a state dict is one."""
    strange = [name for name, value in weights.items() if not isinstance(value, Tensor)]
    if strange:
        raise TypeError(f"{strange[0]!r} of its weights is no tensor")
    return dict(weights)


def build_model(
    backbone: str, arguments: Mapping[str, Any], features: FeatureSpec, labels: LabelSet
) -> Segmentor:
    """Make a new model from a backbone's import path and arguments."""
    cls = backbone_class(backbone)
    return Segmentor(cls(in_channels=features.width, **arguments), num_classes=len(labels))


def fine_tune(model: Segmentor, source: Checkpoint) -> Difference:
    """Copy into a model every weight of a model file that fits by name and shape.

    Returns:
        What did not fit: other classes need a new head, other channels a new stem.

    Raises:
        ValueError: the file has another backbone, or most of the backbone's weights do not fit.
    """
    found, wanted = backbone_class(source.backbone), type(model.backbone)
    if found is not wanted:
        raise ValueError(
            f"the weights are of {found.__name__}, the model is {wanted.__name__}; choose the "
            "model of the file, or leave init_from out"
        )
    own = model.state_dict()
    difference = compare(own, source.weights)
    new = {*difference.missing, *difference.reshaped}
    inside = [name for name in own if name.startswith("backbone.")]
    fitting = [name for name in inside if name not in new]
    if 2 * len(fitting) < len(inside):
        raise ValueError(
            f"only {len(fitting)} of the backbone's {len(inside)} weights fit: {difference}; give "
            "the model the widths and depths of the file's"
        )
    kept = {name: source.weights[name] for name in own if name not in new}
    model.load_state_dict(kept, strict=False)
    return difference


def backbone_class(path: str) -> type[Backbone]:
    """Find a backbone of pctx, or one of a module that is imported already.

    Raises:
        ValueError: there is none of that path.
    """
    module_name, _, name = str(path).rpartition(".")
    if re.fullmatch(r"pctx\.models\.\w+", module_name):
        try:
            module = import_module(module_name)
        except ModuleNotFoundError as error:
            raise ValueError(f"the model names {path}, and there is no such module") from error
    elif module_name in sys.modules:
        module = sys.modules[module_name]
    else:
        raise ValueError(f"the model is of class {path}; import {module_name or path} first")
    cls = getattr(module, name, None)
    if not (isinstance(cls, type) and issubclass(cls, Backbone)):
        raise ValueError(f"the model names {path}, which is not a backbone")
    return cls
