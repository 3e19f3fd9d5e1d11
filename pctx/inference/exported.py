"""ExportFacts: what an exported graph has to be fed, read from its file; no weights are needed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pctx import __version__
from pctx.checkpoint import build_model
from pctx.data.features import FeatureSpec
from pctx.data.labels import LabelSet
from pctx.geometry.flat import flat_inputs, settled
from pctx.geometry.points import PointBatch
from pctx.models.backbone import Backbone

FACTS = "pctx.json"
"""The name of the facts in a .pt2 file, and in the metadata of an ONNX file."""

FORMAT = "pctx-net-1"

LOGITS = "logits"
"""The name of the scores in an ONNX file."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ExportFacts:
    """How to prepare clouds for a graph, and what its scores mean.

    Attributes:
        inputs: the names of the tensors that the graph reads.
        backbone: import path of the class that plans.
        arguments: its keyword arguments, `in_channels` left out.
        features: the channels and their scales.
        labels: the classes, in the order of the scores.
        grid_size: edge of a voxel, metres.
        temperature: what scores are divided by before a softmax.
        version: of pctx, when written.
    """

    inputs: tuple[str, ...]
    backbone: str
    arguments: Mapping[str, Any]
    features: FeatureSpec
    labels: LabelSet
    grid_size: float
    temperature: float = 1.0
    version: str = __version__

    def planner(self) -> Backbone:
        """Make the backbone without weights, to plan with."""
        with torch.device("meta"):
            model = build_model(self.backbone, self.arguments, self.features, self.labels)
        return model.backbone

    def to_json(self) -> str:
        """Write the facts as one JSON object."""
        return json.dumps(
            {
                "format": FORMAT,
                "version": self.version,
                "inputs": self.inputs,
                "model": {"backbone": self.backbone, "arguments": dict(self.arguments)},
                "features": self.features.to_dict(),
                "labels": self.labels.to_dict(),
                "grid_size": self.grid_size,
                "temperature": self.temperature,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> ExportFacts:
        """Read what `to_json` writes.

        Raises:
            ValueError: it is of another format.
        """
        content = json.loads(text)
        if content.get("format") != FORMAT:
            raise ValueError(
                f"the facts of the graph are of format {content.get('format')!r}, "
                f"expected {FORMAT!r}"
            )
        return cls(
            inputs=tuple(content["inputs"]),
            backbone=content["model"]["backbone"],
            arguments=content["model"]["arguments"],
            features=FeatureSpec.from_dict(content["features"]),
            labels=LabelSet.from_dict(content["labels"]),
            grid_size=content["grid_size"],
            temperature=content["temperature"],
            version=content["version"],
        )


def read_facts(path: str | Path) -> ExportFacts:
    """Read the facts of a .pt2 or .onnx file that `pctx export` wrote.

    Raises:
        ImportError: it is an ONNX file, and onnxruntime is not here.
        ValueError: the file holds none.
    """
    path = Path(path)
    if path.suffix == ".onnx":
        text = _of_onnx(path)
    else:
        extra = {FACTS: ""}
        torch.export.load(path, extra_files=extra)
        text = extra[FACTS]
    if not text:
        raise ValueError(f"{path}: no file of pctx export, as it does not say how to feed it")
    return ExportFacts.from_json(text)


def network_inputs(
    backbone: Backbone, points: PointBatch, names: Sequence[str] | None = None
) -> dict[str, Tensor]:
    """Plan some points, and return what a graph of that backbone reads.

    Args:
        backbone: needs no weights.
        points: the packed clouds, at least one point.
        names: the inputs wanted; None for all there are.

    Raises:
        ValueError: there is no point.
    """
    if len(points) == 0:
        raise ValueError("an exported graph needs at least one point, found none")
    inputs = {"feat": points.feat, **flat_inputs(settled(backbone.plan(points)))}
    return inputs if names is None else {name: inputs[name] for name in names}


def _of_onnx(path: Path) -> str:
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError(
            "ONNX files are read by onnxruntime, which is not here; pip install 'pctx[export]'"
        ) from error
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.get_modelmeta().custom_metadata_map.get(FACTS, "")
