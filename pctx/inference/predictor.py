"""Predictor: a model file and a cloud in, a class for every raw point out.

n raw points, k points of a box, m voxels, c classes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pctx.checkpoint import Checkpoint, load_checkpoint
from pctx.data.labels import IGNORE_INDEX
from pctx.data.prediction import Prediction
from pctx.data.prepare import prepare_rows
from pctx.data.ranges import unlike
from pctx.data.scenes import CloudScene, Scene
from pctx.data.tiling import Box, Limits
from pctx.geometry.points import PointBatch, PointCloud
from pctx.inference.memory import (
    available_memory,
    give_back_memory,
    is_out_of_memory,
    tile_limits,
)
from pctx.inference.views import CHANGES, View, make_views

log = logging.getLogger(__name__)

OVERLAP = 50
"""Voxels around a tile's core, where no overlap is given."""
WIDEST = 1e7  # metres of a tile or an overlap: any cloud on Earth

Progress = Callable[[int, int], None]
"""Called with (points done, points in all), at the start and after each tile."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BoxResult:
    """What the model says of the points that a box has a say in.

    Attributes:
        points: (k,) int64, their numbers in the scene.
        weight: (k,) float32 above 0, how much it has to say.
        probability: (k, c) float32, the mean over the views.
        variance: (k,) float32, over the views, summed over the classes.
        features: (k, channels) float32, the mean over the views.
        core: points that lie in the box itself.
    """

    points: np.ndarray
    weight: np.ndarray
    probability: np.ndarray
    variance: np.ndarray
    features: np.ndarray | None
    core: int


class Predictor:
    """Labels clouds with a trained model.

    Args:
        model: a model file, or one already read.
        device: `cpu`, `cuda`, …
        tile: edge in metres of the square tiles a cloud is cut into; None cuts only what is too
            large for one pass.
        overlap: metres that a tile sees around itself; by default 50 voxels. In the inner half of
            them the results of neighbours blend.
        views: forward passes a tile, the first the plain one, or a recipe: see `make_views`. Their
            probabilities are averaged, and so are features.
        vary: what differs from view to view, of `rotate`, `flip`, `scale`, `shuffle`.
        fill: values for channels the model reads and a cloud lacks.
        features: give the features of every point too, 4 bytes a channel.
        memory: bytes that a tile's work may take; by default what is free.
        vote: a point takes the mean of so many voxels nearest to it; None takes its own voxel's.
        min_confidence: below this probability of the likeliest class a point gets none.
        skip: raw ids, such as those of noise; points that have them are not shown to the model and
            keep them.

    Raises:
        ValueError: the weights do not fit, or as `check_settings` does.
    """

    def __init__(
        self,
        model: str | Path | Checkpoint,
        device: str = "cpu",
        *,
        tile: float | None = None,
        overlap: float | None = None,
        views: int | str = 1,
        vary: Collection[str] = CHANGES,
        fill: Mapping[str, float] | None = None,
        features: bool = False,
        memory: int | None = None,
        vote: int | None = None,
        min_confidence: float = 0.0,
        skip: Collection[int] = (),
    ) -> None:
        self.checkpoint = model if isinstance(model, Checkpoint) else load_checkpoint(model)
        check_settings(
            self.checkpoint,
            tile=tile,
            overlap=overlap,
            views=views,
            vary=vary,
            fill=fill,
            vote=vote,
            min_confidence=min_confidence,
        )
        self.device = torch.device(device)
        self.model = self.checkpoint.build().to(self.device)
        self.tile, self.fill, self.features, self.memory = tile, fill, features, memory
        self.vote, self.min_confidence, self.skip = vote, min_confidence, tuple(skip)
        self.views = make_views(views, vary)
        self._told: set[str] = set()
        self.overlap = OVERLAP * self.checkpoint.grid_size if overlap is None else overlap

    def __call__(self, cloud: PointCloud, progress: Progress | None = None) -> Prediction:
        """Label every point of a cloud, in its order. Its labels are read for `skip` alone.

        Non-finite and skipped points get class number -1, and so do strays (`pctx.data.strays`);
        the other labels do not depend on them.

        Raises:
            ValueError: the cloud lacks a channel of the model, and no fill value was given; or
                memory ran out with the smallest tile.
        """
        seen, kept = cloud.finite, None
        if self.skip and cloud.label is not None:
            kept = np.where(np.isin(cloud.label, self.skip), cloud.label, -1)
            seen &= kept == -1
        scene = self.scene(cloud, np.flatnonzero(seen))
        n = len(cloud)
        weight, variance = np.zeros((2, n), dtype=np.float32)
        probability = np.zeros((n, len(self.checkpoint.labels)), dtype=np.float32)
        width = self.model.backbone.out_channels
        features = np.zeros((n, width), dtype=np.float32) if self.features else None
        done = 0
        if progress is not None:
            progress(done, len(scene.rows))
        for result in self.label_boxes(scene, scene.boxes):
            at, share = result.points, result.weight
            weight[at] += share
            probability[at] += share[:, None] * result.probability
            variance[at] += share * result.variance
            if features is not None and result.features is not None:
                features[at] += share[:, None] * result.features
            done += result.core
            if progress is not None:
                progress(done, len(scene.rows))
        if features is not None:
            features /= np.maximum(weight, np.finfo(np.float32).tiny)[:, None]
        prediction = self.conclude(weight, probability, variance, features)
        return prediction if kept is None else replace(prediction, kept=kept)

    def scene(self, cloud: PointCloud, rows: np.ndarray) -> CloudScene:
        """Cut the rows of a cloud that count, finite ones, into boxes."""
        return CloudScene(
            cloud,
            rows,
            fields=self.checkpoint.features.fields,
            grid_size=self.checkpoint.grid_size,
            tile=self.tile,
            overlap=self.overlap,
            limits=self.limits,
        )

    @property
    def limits(self) -> Limits:
        """What a tile may hold, by the memory that was given or is free."""
        memory = available_memory(self.device) if self.memory is None else self.memory
        channels = self.model.backbone.out_channels
        host = None if self.device.type == "cpu" else available_memory(torch.device("cpu"))
        return tile_limits(memory, channels, self.checkpoint.grid_size, host)

    def label_boxes(self, scene: Scene, boxes: list[Box]) -> Iterator[BoxResult]:
        """Run the model on boxes in turn; one that memory does not hold is halved until it does.

        Raises:
            ValueError: as calling does.
        """
        pending = list(reversed(boxes))
        while pending:
            box = pending.pop()
            parts: tuple[Box, ...] = ()
            try:
                yield self._label_box(scene, box)
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                parts = scene.halves(box)
                if not parts:
                    raise ValueError(
                        "memory ran out with the smallest tile; give a smaller overlap "
                        f"(now {self.overlap:g} m), or another device"
                    ) from error
                log.info("memory ran out: the tile is halved")
            if parts or box.has_faces:
                give_back_memory(self.device)
            pending += reversed(parts)

    def conclude(
        self,
        weight: np.ndarray,
        probability: np.ndarray,
        variance: np.ndarray,
        features: np.ndarray | None = None,
    ) -> Prediction:
        """Turn weighted sums over boxes, which it divides in place, into a prediction.

        Args:
            weight: (k,), 0 where no box had a say.
            probability: (k, c).
            variance: (k,).
            features: (k, channels), divided already.
        """
        seen = weight > 0
        divisor = np.where(seen, weight, np.float32(1))
        probability /= divisor[:, None]
        variance /= divisor
        label = np.where(seen, probability.argmax(axis=1), IGNORE_INDEX)
        if self.min_confidence > 0:
            label[probability.max(axis=1) < self.min_confidence] = IGNORE_INDEX
        return Prediction(
            label=label,
            labels=self.checkpoint.labels,
            probability=probability,
            entropy=_entropy(probability),
            variance=variance,
            votes=seen.astype(np.int64) * len(self.views),
            features=features,
        )

    def _label_box(self, scene: Scene, box: Box) -> BoxResult:
        sight = box.widened(self.overlap)
        cloud, points = scene.load(sight.widened(self.checkpoint.features.reach))
        self._compare(cloud)
        rows = np.flatnonzero(sight.holds(cloud.coord))
        weight = box.weight(cloud.coord[rows], self.overlap / 2)
        mine, weight = rows[weight > 0], weight[weight > 0]
        shape = len(mine), len(self.checkpoint.labels)
        total, squares = np.zeros(shape, np.float32), np.zeros(len(mine), np.float32)
        features = None
        for view in self.views if len(mine) else ():
            probability, feat = self._look(view, cloud, rows, mine, scene)
            total += probability
            squares += np.square(probability).sum(axis=1)
            if self.features:
                features = feat if features is None else features + feat
        count = np.float32(len(self.views))
        total /= count
        return BoxResult(
            points=points[mine],
            weight=weight,
            probability=total,
            variance=(squares / count - np.square(total).sum(axis=1)).clip(0),
            features=None if features is None else features / count,
            core=int(box.holds(cloud.coord[mine]).sum()),
        )

    def _compare(self, cloud: PointCloud) -> None:
        """Tell of fields that are far larger or smaller than in training, of each once."""
        for name, sentence in unlike(self.checkpoint.features, cloud).items():
            if name not in self._told:
                self._told.add(name)
                log.warning("%s", sentence)

    @torch.inference_mode()
    def _look(
        self,
        view: View,
        cloud: PointCloud,
        rows: np.ndarray,
        mine: np.ndarray,
        scene: Scene,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Run one view of the rows; give probabilities and features of those that are `mine`."""
        anchor = view.moved(scene.anchor.astype(np.float32))
        middle = None if scene.middle is None else view.moved(scene.middle)
        cloud = view.apply(cloud)
        feat = self.checkpoint.features.extract(cloud, self.fill, middle)
        sample = prepare_rows(cloud.coord, feat, None, rows, self.checkpoint.grid_size, anchor)
        voxels: PointBatch = sample.points.to(self.device)
        hierarchy = self.model.backbone.plan(voxels, view.generator())
        features: Tensor = self.model.features(voxels, hierarchy)
        logits: Tensor = self.model.head(features).float() / self.checkpoint.temperature
        probability = logits.softmax(dim=1).cpu().numpy()
        voxel = sample.inverse.numpy()[mine]
        feat = features.float().cpu().numpy()[voxel] if self.features else feat[:0]
        if self.vote is None:
            return probability[voxel], feat
        return _nearest_mean(probability, sample.points.coord, cloud.coord[mine], self.vote), feat


def check_settings(
    checkpoint: Checkpoint,
    *,
    tile: float | None = None,
    overlap: float | None = None,
    views: int | str = 1,
    vary: Collection[str] = CHANGES,
    fill: Mapping[str, float] | None = None,
    vote: int | None = None,
    min_confidence: float = 0.0,
) -> None:
    """Find out whether a Predictor can be made so, before any weight is touched.

    Raises:
        ValueError: a number is out of its range, or fill names a field that the model reads not.
    """
    if tile is not None and not 0 < tile <= WIDEST:
        raise ValueError(f"tile must be above 0 metres, at most {WIDEST:g}, found {tile:g}")
    if overlap is not None and not 0 <= overlap <= WIDEST:
        raise ValueError(f"overlap must be 0 to {WIDEST:g} metres, found {overlap:g}")
    make_views(views, vary)
    if vote is not None and vote < 1:
        raise ValueError(f"vote must be 1 voxel or more, found {vote}")
    if not 0 <= min_confidence <= 1:
        raise ValueError(f"min-confidence must be from 0 to 1, found {min_confidence:g}")
    for name, value in (fill or {}).items():
        if name not in checkpoint.features.fields:
            known = ", ".join(checkpoint.features.fields)
            raise ValueError(f"fill names {name}, but the model reads {known}")
        if not np.isfinite(value):
            raise ValueError(f"fill of {name} must be a finite number, found {value}")


def _nearest_mean(values: np.ndarray, voxels: Tensor, coord: np.ndarray, k: int) -> np.ndarray:
    """Average values (m, c) over the k voxels nearest to each point: (len(coord), c)."""
    from scipy.spatial import cKDTree

    nearest = cKDTree(voxels.numpy()).query(coord, k=range(1, min(k, len(values)) + 1))[1]
    total = values[nearest[:, 0]]
    for column in nearest.T[1:]:
        total = total + values[column]
    return total / np.float32(nearest.shape[1])


def _entropy(probability: np.ndarray) -> np.ndarray:
    """Give (n,) float32: the entropy relative to that of equal probabilities; 0 for zero rows."""
    terms = np.log(np.maximum(probability, np.finfo(np.float32).tiny))
    terms *= probability
    return (-terms.sum(axis=1) / np.log(probability.shape[1])).clip(0, 1).astype(np.float32)
