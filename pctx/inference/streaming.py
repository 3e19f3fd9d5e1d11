"""label_las(): label a LAS or LAZ file of any size in little memory, going on where a run stopped.

n points, c classes. In a work folder beside the output lie the points sorted by cell, the result of
each, what boxes have to say of points near their faces, and which boxes are done.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pctx.data.io import las_points
from pctx.data.io.atomic import replacing
from pctx.data.io.formats import check_output
from pctx.data.io.las import copy_las
from pctx.data.io.las_file import LasFile
from pctx.data.io.unchanged import unchanged
from pctx.data.labels import LabelSet
from pctx.data.las_scene import LasScene, Placer, sort_las, sorted_las
from pctx.data.prediction import Prediction
from pctx.data.tiling import Box
from pctx.inference.blending import Core, Totals, load_shared, part_of, read_run, save_shared
from pctx.inference.manifest import describe
from pctx.inference.memory import give_back_memory
from pctx.inference.predictor import BoxResult, Predictor, Progress

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """What is written of each point beside its class.

    Attributes:
        probabilities: that of each class.
        measures: of `entropy`, `confidence`, `margin`, `variance`.
    """

    probabilities: bool = False
    measures: tuple[str, ...] = ()

    def dtype(self, classes: int) -> np.dtype:
        """Give the form of a result: `label` counts from 1, as 0 is no class."""
        fields: list[Any] = [("label", "<u2"), *((name, "<f4") for name in self.measures)]
        if self.probabilities:
            fields.append(("probability", "<f4", (classes,)))
        return np.dtype(fields)

    def rows(self, prediction: Prediction, dtype: np.dtype) -> np.ndarray:
        """Give the results (k,) of a prediction."""
        rows = np.zeros(len(prediction), dtype)
        rows["label"] = prediction.label + 1
        for name in self.measures:
            rows[name] = prediction.column(name)
        if self.probabilities:
            rows["probability"] = prediction.probability
        return rows


def label_las(
    predictor: Predictor,
    source: Path,
    target: Path,
    *,
    columns: Columns = Columns(),
    only: Collection[int] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> int:
    """Write a copy of a LAS or LAZ file with predicted classes.

    Args:
        predictor: its `features` are not written.
        source: of any size.
        target: .las or .laz; the work folder `.NAME.work` beside it is as large as the points.
        columns: written as extra dimensions.
        only: class numbers; points predicted as another keep their code.
        overwrite: replace the target.
        progress: called with points done and points in all.

    Returns:
        The number of points.

    Raises:
        ValueError, OSError: as `write` and the predictor do.
    """
    check_output(target, predictor.checkpoint.labels, source=source, overwrite=overwrite)
    work = target.with_name(f".{target.name}.work")
    with _alone_in(work):
        with replacing(target, overwrite=overwrite) as beside, unchanged(source):
            scene = _scene(predictor, source, work, columns)
            run = _Run(predictor, scene, work, columns)
            run.label(progress)
            run.join()
            log.info("%s: written", target)
            num_points = run.copy(source, beside, only)
        shutil.rmtree(work)
    return num_points


@contextmanager
def _alone_in(work: Path) -> Iterator[None]:
    """Keep other processes out of a folder, which is made; a kill lets them in again.

    Raises:
        FileExistsError: another run is in it.
    """
    work.mkdir(parents=True, exist_ok=True)
    held = os.open(work, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise FileExistsError(f"{work}: another run works in it; wait for it to end") from error
    finally:
        os.close(held)


class _Run:
    """The boxes of a scene in turn, each noted when it is done."""

    def __init__(self, predictor: Predictor, scene: LasScene, work: Path, columns: Columns) -> None:
        self.predictor, self.work, self.columns = predictor, work, columns
        self.boxes = _boxes(predictor, scene, work)
        self.scene = replace(scene, parts=len(self.boxes) > 1)
        self.dtype = columns.dtype(len(predictor.checkpoint.labels))
        self.results = work / "results.bin"
        if not self.results.exists():
            with self.results.open("wb") as stream:
                stream.truncate(int(scene.cells.points.sum()) * self.dtype.itemsize)
        self.blend = predictor.overlap / 2

    def label(self, progress: Progress | None) -> None:
        """Run the model on each box: results away from its faces are final, others noted."""
        cells = self.scene.local
        cores = [int(cells.points[cells.inside(box)].sum()) for box in self.boxes]
        finished = self._noted("labelled")
        done = sum(cores[number] for number in finished)
        if finished:
            log.info("going on after %s of %s tiles", len(finished), len(cores))
        if progress is not None:
            progress(done, sum(cores))
        for number, box in enumerate(self.boxes):
            if number in finished:
                continue
            self._label_box(number, box)
            give_back_memory(self.predictor.device)
            self._note("labelled", number)
            done += cores[number]
            if progress is not None:
                progress(done, sum(cores))

    def join(self) -> None:
        """Blend, box by box, what its neighbours and it have to say of points near its faces."""
        finished = self._noted("joined")
        for number, box in enumerate(self.boxes):
            if number in finished:
                continue
            self._join_box(box)
            give_back_memory(self.predictor.device)
            self._note("joined", number)

    def copy(self, source: Path, target: Path, only: Collection[int] | None) -> int:
        """Write the source with the results, in the source's order."""
        labels, names = self.predictor.checkpoint.labels, self._names()
        placer = Placer(self.scene.cells, self.predictor.skip)
        num_points = 0
        with self.results.open("rb") as stream:

            def change(block: LasFile, start: int) -> LasFile:
                nonlocal num_points
                rows = np.zeros(len(block.points), self.dtype)
                placed = placer(block)
                parts = [read_run(stream, run, self.dtype) for run in placed.runs]
                if parts:
                    rows[placed.rows] = np.concatenate(parts)
                num_points += len(rows)
                give_back_memory(self.predictor.device)
                raw = _raw(rows, block, labels, only, self.predictor.skip)
                block = las_points.with_classes(block, raw)
                added = {name: rows[name] for name in self.columns.measures}
                if self.columns.probabilities:
                    added |= dict(zip(names, rows["probability"].T, strict=True))
                return las_points.with_extra(block, added) if added else block

            copy_las(source, target, change)
        return num_points

    def _label_box(self, number: int, box: Box) -> None:
        # What it holds is gone before the next box is looked at.
        core = self._core(box)
        rows = np.zeros(core.size, self.dtype)
        shared = []
        for result in self.predictor.label_boxes(self.scene, [box]):
            sure = result.weight == 1
            at, here = core.places(result.points)
            rows[at[sure & here]] = self._rows(part_of(result, sure & here))
            if not sure.all():
                shared.append(part_of(result, ~sure))
        core.write(self.results, rows)
        save_shared(self._shared(number), shared)

    def _join_box(self, box: Box) -> None:
        core = self._core(box)
        totals = Totals(core.size, len(self.predictor.checkpoint.labels))
        near = box.widened(self.blend)
        for other, neighbour in enumerate(self.boxes):
            meet = (neighbour.low <= near.high) & (neighbour.high >= near.low)
            if meet.all():
                totals.add(core, load_shared(self._shared(other)))
        rows = core.read(self.results, self.dtype)
        at = np.flatnonzero(totals.weight > 0)
        rows[at] = self._rows(totals.part(at))
        core.write(self.results, rows)

    def _core(self, box: Box) -> Core:
        cells = self.scene.local
        return Core(cells.runs(cells.inside(box)))

    def _names(self) -> list[str]:
        return [f"probability_{name}" for name in self.predictor.checkpoint.labels.names]

    def _rows(self, result: BoxResult) -> np.ndarray:
        weight = result.weight
        prediction = self.predictor.conclude(
            weight, result.probability * weight[:, None], result.variance * weight
        )
        return self.columns.rows(prediction, self.dtype)

    def _shared(self, number: int) -> Path:
        return self.work / f"shared-{number}.npz"

    def _noted(self, what: str) -> set[int]:
        path = self.work / what
        if not path.exists():
            return set()
        text = path.read_text()
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # a kill cut the last line short
            path.write_text(whole)
        return {int(line) for line in whole.split()}

    def _note(self, what: str, number: int) -> None:
        with (self.work / what).open("a") as stream:
            stream.write(f"{number}\n")


def _scene(predictor: Predictor, source: Path, work: Path, columns: Columns) -> LasScene:
    """Find the sorted points of an earlier run of the same kind, or sort them."""
    described = describe(
        predictor, source, [*columns.measures, *(["probability"] * columns.probabilities)]
    )
    manifest = work / "manifest.json"
    fields = predictor.checkpoint.features.fields
    if manifest.exists() and manifest.read_text() == described:
        try:
            return sorted_las(source, work, fields)
        except (FileNotFoundError, KeyError, ValueError):
            log.info("%s: its points are not sorted to the end", work)
    for path in work.iterdir():
        path.unlink()
    manifest.write_text(described)

    log.info("%s: sorting its points by place", source)
    return sort_las(
        source,
        work,
        grid_size=predictor.checkpoint.grid_size,
        tile=predictor.tile,
        fields=fields,
        skip=predictor.skip,
    )


def _boxes(predictor: Predictor, scene: LasScene, work: Path) -> list[Box]:
    """Cut as an earlier run did, or anew: what memory is free may have changed between."""
    path = work / "boxes.npy"
    if not path.exists():
        boxes = scene.boxes(predictor.tile, predictor.limits, predictor.overlap)
        faces = np.array([(box.low, box.high) for box in boxes]).reshape(-1, 2, 3)
        with replacing(path, overwrite=True) as beside:
            np.save(beside, faces)
    return [Box(low=low, high=high) for low, high in np.load(path)]


def _raw(
    rows: np.ndarray,
    block: LasFile,
    labels: LabelSet,
    only: Collection[int] | None,
    skip: Collection[int],
) -> np.ndarray:
    """Give the codes to write; those of points that are to keep theirs come from the block."""
    label = rows["label"].astype(np.int64) - 1
    raw, before = labels.decode(label), las_points.classes(block)
    kept = np.isin(before, list(skip))
    if only is not None:
        kept |= ~np.isin(label, list(only))
    return np.where(kept, before, raw)
