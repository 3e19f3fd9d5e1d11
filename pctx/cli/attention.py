"""What `pctx view --color attention` shows: whom a point listens to, what speaks for a class."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pctx.cli.config import UsageError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from pctx.geometry.points import PointBatch, PointCloud
    from pctx.models.segmentor import Segmentor
    from pctx.vis.exhibit import Focus
    from pctx.vis.scene import Inside, Scene

MAPS = ("attention", "rollout", "class", "gradcam")
"""What --map takes."""

NEAREST = 150_000
"""Points that are looked at, those nearest to the query: up to 10 GB with `ptv3_base`, and less the
more of them share voxels."""

MAX_CELLS = 2**20
"""Voxels along an axis: half of what the curves can number."""

_ABOUT_CLASSES = ("class", "gradcam")


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of a model.

    Attributes:
        map: one of `MAPS`.
        query: a point's number or place; None for the one nearest to the cloud's middle.
        layer: number or name; None for the map's own choice.
        head: number; None for the mean of all.
        class_name: None for the one predicted at the query.
    """

    map: str
    query: int | tuple[float, ...] | None
    layer: int | str | None
    head: int | None
    class_name: str | None


class _Answer(NamedTuple):
    """A map.

    Attributes:
        values: of the voxels.
        subject: what they are.
        ends: what the least and the largest mean.
        everywhere: whether the query plays no part.
        inside: where in the model it looks.
    """

    values: Tensor
    subject: str
    ends: tuple[str, str]
    everywhere: bool = False
    inside: Inside | None = None


def read_question(flags: Mapping[str, str | int | float | None]) -> Question:
    """Check the flags --map, --query, --layer, --head and --class, None where not given.

    Raises:
        UsageError: a value cannot be used, or says nothing about the map.
    """
    kind = str(flags["--map"] or "attention")
    if kind not in MAPS:
        raise UsageError(f"--map must be one of {', '.join(MAPS)}; found {kind!r}")
    for flag, useful in {
        "--layer": ("attention", *_ABOUT_CLASSES),
        "--head": ("attention",),
        "--class": _ABOUT_CLASSES,
    }.items():
        if flags[flag] is not None and kind not in useful:
            raise UsageError(f"{flag} goes with --map {' or '.join(useful)}; leave it out")
    head, name = flags["--head"], flags["--class"]
    layer = None if flags["--layer"] is None else str(flags["--layer"])
    return Question(
        map=kind,
        query=None if flags["--query"] is None else _query(str(flags["--query"])),
        layer=int(layer) if layer is not None and layer.isdecimal() else layer,
        head=None if head is None else int(head),
        class_name=None if name is None else str(name),
    )


def attention_scenes(
    question: Question, path: Path
) -> Callable[[PointCloud, str, Focus], list[Scene]]:
    """Give what makes the scene of a cloud with a title; a focus takes the question's place.

    Raises:
        FileNotFoundError: there is no such model file.
        ValueError: it is no model file.
        UsageError: the model has no such layer, head or class, or no attention.
    """
    from pctx.checkpoint import load_checkpoint
    from pctx.data.prepare import prepare_rows
    from pctx.inference.inside import single_point
    from pctx.inference.relevance import on_raw_points
    from pctx.vis.attention import relevance_scene

    checkpoint = load_checkpoint(path)
    model, names = checkpoint.build(), checkpoint.labels.names
    if question.class_name not in (None, *names):
        raise UsageError(
            f"{path} has no class {question.class_name!r}; its classes are {', '.join(names)}"
        )
    try:
        _answer(replace(question, query=0), model, single_point(model), 0, names)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error

    def scenes(cloud: PointCloud, title: str, focus: Focus) -> list[Scene]:
        asked = replace(
            question,
            query=question.query if focus.row is None else focus.row,
            layer=question.layer if focus.depth is None else focus.depth,
            head=question.head if focus.head is None else focus.head,
        )
        row = _row(asked.query, cloud)
        rows = _around(cloud, row, MAX_CELLS * checkpoint.grid_size / 2)
        feat = checkpoint.features.extract(cloud)
        sample = prepare_rows(cloud.coord, feat, None, rows, checkpoint.grid_size)
        answer = _answer(asked, model, sample.points, int(sample.inverse[row]), names)
        subject = answer.subject
        if not answer.everywhere:
            x, y, z = cloud.coord[row] + cloud.origin
            subject += f"; ring: point {row} at {x:.2f}, {y:.2f}, {z:.2f}"
        far = int(cloud.finite.sum()) - len(rows)
        scene = relevance_scene(
            cloud,
            on_raw_points(answer.values, sample),
            query=None if answer.everywhere else row,
            ends=answer.ends,
            title=title,
            subject=subject,
            note=f"{far:,} points, too far off, not looked at" if far else "",
        )
        return [replace(scene, inside=answer.inside)]

    return scenes


def _answer(
    question: Question, model: Segmentor, points: PointBatch, voxel: int, names: tuple[str, ...]
) -> _Answer:
    """Make the map of a batch of one cloud, in which the query is in a voxel."""
    import torch

    from pctx.inference.attention_maps import attention_map, attention_rollout
    from pctx.inference.class_maps import class_map, grad_cam
    from pctx.inference.inside import list_layers
    from pctx.vis.scene import Inside

    if question.map == "attention":
        found = attention_map(model, points, question.layer, question.head, voxel)
        level = f"level {found.layer.level}{' of the decoder' if found.layer.decoder else ''}"
        heads = "mean of all heads" if question.head is None else f"head {question.head}"
        subject = f"attention in layer {found.layer.number}, {level}, {heads}"
        inside = Inside(found.layer.number, len(list_layers(model)), found.heads)
        return _Answer(found.point, subject, ("not heard", "heard most"), inside=inside)
    if question.map == "rollout":
        values = attention_rollout(model, points, voxel)
        return _Answer(values, "attention rollout", ("no share", "largest share"))
    with torch.no_grad():
        label = model(points).argmax(1)
    name = question.class_name or names[label[voxel]]
    rows, score = [voxel], f"{name} at the ring"
    everywhere = question.query is None and question.class_name is not None
    if everywhere:
        rows = (label == names.index(name)).nonzero()[:, 0].tolist()
        score = f"all points predicted as {name}"
        if not rows:
            raise ValueError(f"no point is predicted as {name}; choose another class or a query")
    make, what = (class_map, "what is heard in favour of")
    if question.map == "gradcam":
        make, what = grad_cam, "Grad-CAM of"
    values = make(model, points, names.index(name), rows, question.layer)
    layer = "" if question.layer is None else f", layer {question.layer}"
    ends = ("nothing", f"most for {name}")
    return _Answer(values, f"{what} {score}{layer}", ends, everywhere)


def _query(text: str) -> int | tuple[float, ...]:
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        place = tuple(float(part) for part in text.split(","))
    except ValueError:
        place = ()
    if len(place) != 3 or not all(map(math.isfinite, place)):
        raise UsageError(f"--query takes X,Y,Z or the number of a point, found {text!r}")
    return place


def _row(query: int | tuple[float, ...] | None, cloud: PointCloud) -> int:
    """Find the point that is meant."""
    import numpy as np

    finite = np.flatnonzero(cloud.finite)
    if len(finite) == 0:
        raise ValueError("there are no points to ask")
    if isinstance(query, int):
        if query >= len(cloud):
            raise ValueError(f"--query: there are points 0 to {len(cloud) - 1}, found {query}")
        if not cloud.finite[query]:
            raise ValueError(f"--query: point {query} has no position")
        return query
    coord = cloud.coord[finite].astype(np.float64)
    place = np.median(coord, axis=0) if query is None else np.array(query) - cloud.origin
    return int(finite[np.square(coord - place).sum(axis=1).argmin()])


def _around(cloud: PointCloud, row: int, reach: float) -> np.ndarray:
    """Choose the points to look at: those nearest to the query in x and y, in the file's order."""
    import numpy as np

    rows = np.flatnonzero(cloud.finite)
    apart = np.abs(cloud.coord[rows] - cloud.coord[row])
    rows, apart = rows[(apart < reach).all(axis=1)], apart[(apart < reach).all(axis=1)]
    if len(rows) <= NEAREST:
        return rows
    return np.sort(rows[apart[:, :2].max(axis=1).argpartition(NEAREST)[:NEAREST]])
