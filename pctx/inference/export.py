"""The network half of a model as one graph, for torch.export and for ONNX.

Its inputs are the channels of the points and the tensors of their plan, by name; what it gives is a
score for every class at every point. Numbers of points, clouds and windows are free.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.overrides import TorchFunctionMode

from pctx.checkpoint import Checkpoint
from pctx.data.io.atomic import replacing
from pctx.geometry.flat import dynamic_axes, from_flat, named_tensors, names_needed, settled
from pctx.geometry.hierarchy import Hierarchy
from pctx.geometry.points import PointBatch
from pctx.inference.exported import FACTS, LOGITS, ExportFacts, network_inputs
from pctx.models.segmentor import Segmentor

EXAMPLE = (1800, 700)
"""Points of the clouds that a graph is traced with."""

OTHERS = ((90,), (500, 30, 260))
"""Points of the clouds that it is checked with."""

EDGE = 80
"""Voxels an axis of those clouds: enough for two points on levels 32 times as coarse, crowded
enough for two in a cube of 5."""

CLOSE = 1e-4
"""By how much logits of a graph may differ from the model's: other sums of the same numbers."""

OPSET = 18
"""The first of ONNX whose scatters know maxima."""


class Network(nn.Module):
    """The network half of a model: from flat inputs to class scores.

    Args:
        model: in evaluation mode.
        like: a settled plan of its backbone.
    """

    def __init__(self, model: Segmentor, like: Hierarchy):
        super().__init__()
        self.backbone, self.head = model.backbone, model.head
        self.like = like

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        """Score every class at every point.

        Args:
            inputs: of `network_inputs`.
        """
        return self.head(self.backbone(inputs["feat"], from_flat(self.like, inputs)))


def export_network(model: Segmentor) -> tuple[ExportedProgram, tuple[str, ...]]:
    """Trace the network half of a model with free numbers of points, and check it at other sizes.

    Returns:
        The graph, called with a dict, and the names of that dict: the tensors of a plan that the
        network reads, and `feat`.

    Raises:
        ValueError: the graph's numbers are not the model's.
    """
    model = model.eval()
    backbone = model.backbone
    points = example(backbone.in_channels, EXAMPLE)
    network = Network(model, settled(backbone.plan(points)))
    with torch.no_grad():
        names = tuple(sorted(_read_by(network, points.feat)))
        inputs = network_inputs(backbone, points, names)
        _require_two(inputs)
        axes = {
            name: dict.fromkeys(dynamic_axes(name, tensor), Dim.DYNAMIC)
            for name, tensor in inputs.items()
        }
        program = torch.export.export(
            network, (inputs,), dynamic_shapes={"inputs": axes}, strict=False
        )
        run = program.module()
        for counts in OTHERS:
            points = example(backbone.in_channels, counts)
            logits = run(network_inputs(backbone, points, names))
            _require_close(logits, model(points))
    return program, names


def write_program(path: Path, program: ExportedProgram, facts: ExportFacts) -> None:
    """Write a graph for `torch.export.load`, and beside it in the file how to feed it."""
    # By way of memory, as torch ends the interpreter where a disk is full.
    content = io.BytesIO()
    torch.export.save(program, content, extra_files={FACTS: facts.to_json()})
    with replacing(path, overwrite=True) as beside:
        beside.write_bytes(content.getbuffer())


def write_onnx(path: Path, program: ExportedProgram, facts: ExportFacts) -> None:
    """Write a graph as ONNX, its metadata telling how to feed it.

    Raises:
        ImportError: the libraries that this needs are not here.
    """
    require_onnx()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what torch itself calls
        onnx = torch.onnx.export(
            program,
            dynamo=True,
            input_names=list(facts.inputs),
            output_names=[LOGITS],
            opset_version=OPSET,
            verbose=False,
            optimize=False,  # it takes the 1e-8 that keeps distances from 0 for 0: 1 / 0 is left
        )
    assert onnx is not None
    onnx.model.metadata_props[FACTS] = facts.to_json()
    with replacing(path, overwrite=True) as beside:
        onnx.save(beside, external_data=False)


def facts_of(checkpoint: Checkpoint, names: tuple[str, ...]) -> ExportFacts:
    """Gather what a user of a graph has to know."""
    return ExportFacts(
        inputs=names,
        backbone=checkpoint.backbone,
        arguments=checkpoint.arguments,
        features=checkpoint.features,
        labels=checkpoint.labels,
        grid_size=checkpoint.grid_size,
        temperature=checkpoint.temperature,
    )


def require_onnx() -> None:
    """Raise an ImportError that names the extra, if the libraries of ONNX are not here."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"ONNX files need {error.name}, which is not here; pip install 'pctx[export]'"
        ) from error


def example(channels: int, counts: tuple[int, ...]) -> PointBatch:
    """Make clouds of random voxels."""
    generator = torch.Generator().manual_seed(0)
    cells = torch.cat([torch.randperm(EDGE**3, generator=generator)[:n] for n in counts])
    place = [cells // EDGE**2, cells // EDGE % EDGE, cells % EDGE]
    grid_coord = torch.stack(place, 1)
    return PointBatch(
        coord=(grid_coord + torch.rand(len(cells), 3, generator=generator)) * 0.1,
        grid_coord=grid_coord,
        feat=torch.randn(len(cells), channels, generator=generator),
        offsets=torch.tensor([0, *counts]).cumsum(0),
    )


class _Readings(TorchFunctionMode):
    """Notes which tensors are handed to torch, by identity."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[int] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = [*args, *(kwargs or {}).values()]
        for value in given:
            several = value if isinstance(value, list | tuple) else [value]
            self.seen |= {id(each) for each in several if isinstance(each, Tensor)}
        return func(*args, **(kwargs or {}))


def _require_two(inputs: Mapping[str, Tensor]) -> None:
    """Find out whether the example shows what varies: what is one there would be one for ever."""
    for name, tensor in inputs.items():
        if any(tensor.shape[axis] < 2 for axis in dynamic_axes(name, tensor)):
            raise ValueError(
                f"the graph cannot be traced: {name} is {tuple(tensor.shape)} for {EDGE} voxels an "
                "axis; the model merges too many voxels into one of its coarsest level"
            )


def _require_close(logits: Tensor, expected: Tensor) -> None:
    apart = float((logits - expected).abs().max())
    if not apart <= CLOSE:
        raise ValueError(
            f"the graph's logits are up to {apart:.2g} from the model's, more than {CLOSE:g}; "
            "please report it, with the model's name"
        )


def _read_by(network: Network, feat: Tensor) -> set[str]:
    """Run a network along the plan it has, and name the inputs that it reads."""
    with _Readings() as readings:
        network.backbone(feat, network.like)
    tensors = named_tensors(network.like)
    read = (name for name, tensor in tensors.items() if id(tensor) in readings.seen)
    return {"feat", *names_needed(read)}
