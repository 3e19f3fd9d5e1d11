"""Predictor: a model file and a cloud in, a class for every raw point out.

n raw points, m voxels, c classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pctx.checkpoint import Checkpoint, load_checkpoint
from pctx.data.prediction import Prediction
from pctx.data.prepare import prepare_rows
from pctx.data.tiling import Tile, balanced_tiles, grid_tiles
from pctx.data.transforms.geometric import rotation
from pctx.geometry.points import PointCloud

MAX_POINTS = 500_000
"""Core points of a tile where no tile size is given: about 2 GB with `ptv3_base`."""
MAX_CELLS = 2**20
"""Voxels along an axis of a tile: half of what the curves can number."""
OVERLAP = 50
"""Voxels around a tile's core, where no overlap is given."""

Progress = Callable[[int, int], None]
"""Called with (points done, points in all)."""


class Predictor:
    """Labels clouds with a trained model.

    Args:
        model: a model file, or one already read.
        device: `cpu`, `cuda`, …
        tile: edge in metres of the square tiles a cloud is cut into; None cuts only what is too
            large for one pass.
        overlap: metres that a tile sees around itself; by default 50 voxels.
        views: forward passes a tile, each turned by 1 / views of a full turn; their
            probabilities are averaged, and so are features.
        fill: values for channels the model reads and a cloud lacks.
        features: give the features of every point too, 4 bytes a channel.

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
        views: int = 1,
        fill: Mapping[str, float] | None = None,
        features: bool = False,
    ) -> None:
        self.checkpoint = model if isinstance(model, Checkpoint) else load_checkpoint(model)
        check_settings(self.checkpoint, tile=tile, overlap=overlap, views=views, fill=fill)
        self.device = torch.device(device)
        self.model = self.checkpoint.build().to(self.device)
        self.tile, self.views, self.fill, self.features = tile, views, fill, features
        self.overlap = OVERLAP * self.checkpoint.grid_size if overlap is None else overlap

    def __call__(self, cloud: PointCloud, progress: Progress | None = None) -> Prediction:
        """Label every point of a cloud, in its order. Labels of the cloud are never read.

        Non-finite points get class number -1; the other labels do not depend on them.

        Raises:
            ValueError: the cloud lacks a channel of the model, and no fill value was given.
        """
        finite = np.flatnonzero(cloud.finite)
        probability = np.zeros((len(cloud), len(self.checkpoint.labels)), dtype=np.float32)
        features = None
        if self.features:
            width = self.model.backbone.out_channels
            features = np.zeros((len(cloud), width), dtype=np.float32)
        for view in range(self.views if len(finite) else 0):
            angle = 2 * np.pi * view / self.views
            for core, result in self._passes(cloud, finite, angle, progress):
                probability[core] += result.probability
                if features is not None and result.features is not None:
                    features[core] += result.features
        probability /= self.views
        if features is not None:
            features /= self.views
        label = np.full(len(cloud), -1, dtype=np.int64)
        label[finite] = probability[finite].argmax(axis=1)
        votes = np.zeros(len(cloud), dtype=np.int64)
        votes[finite] = self.views
        return Prediction(
            label=label,
            labels=self.checkpoint.labels,
            probability=probability,
            entropy=_entropy(probability),
            votes=votes,
            features=features,
        )

    def _passes(
        self, cloud: PointCloud, finite: np.ndarray, angle: float, progress: Progress | None
    ) -> Iterator[tuple[np.ndarray, _Result]]:
        """Run the tiles of a view; give the rows of each core, and what was computed of them."""
        if angle:
            turn = rotation(angle, axis=2).T.astype(np.float32)
            normal = None if cloud.normal is None else cloud.normal @ turn
            cloud = replace(cloud, coord=cloud.coord @ turn, normal=normal)
        feat = self.checkpoint.features.extract(cloud, self.fill)
        done = 0
        for tile in self._tiles(cloud.coord[finite]):
            core, rows = finite[tile.core], finite[tile.rows]
            yield core, self._run(cloud.coord, feat, core, rows)
            done += len(core)
            if progress is not None:
                progress(done, len(finite))

    def _tiles(self, coord: np.ndarray) -> Iterator[Tile]:
        if self.tile is not None:
            return grid_tiles(coord, self.tile, self.overlap)
        extent = MAX_CELLS * self.checkpoint.grid_size
        return balanced_tiles(coord, MAX_POINTS, extent, self.overlap)

    @torch.inference_mode()
    def _run(
        self, coord: np.ndarray, feat: np.ndarray, core: np.ndarray, rows: np.ndarray
    ) -> _Result:
        sample = prepare_rows(coord, feat, None, rows, self.checkpoint.grid_size)
        features = self.model.features(sample.points.to(self.device))
        logits: Float[Tensor, "m c"] = self.model.head(features)
        voxel = sample.inverse.numpy()[core]
        return _Result(
            probability=logits.float().softmax(dim=1).cpu().numpy()[voxel],
            features=features.float().cpu().numpy()[voxel] if self.features else None,
        )


class _Result(NamedTuple):
    """Rows of some raw points."""

    probability: np.ndarray
    features: np.ndarray | None


def check_settings(
    checkpoint: Checkpoint,
    *,
    tile: float | None = None,
    overlap: float | None = None,
    views: int = 1,
    fill: Mapping[str, float] | None = None,
) -> None:
    """Find out whether a Predictor can be made so, before any weight is touched.

    Raises:
        ValueError: a number is out of its range, or fill names a field that the model reads not.
    """
    if tile is not None and not tile > 0:
        raise ValueError(f"tile must be above 0 metres, found {tile:g}")
    if overlap is not None and not overlap >= 0:
        raise ValueError(f"overlap must be 0 metres or more, found {overlap:g}")
    if views < 1:
        raise ValueError(f"views must be 1 or more, found {views}")
    for name, value in (fill or {}).items():
        if name not in checkpoint.features.fields:
            known = ", ".join(checkpoint.features.fields)
            raise ValueError(f"fill names {name}, but the model reads {known}")
        if not np.isfinite(value):
            raise ValueError(f"fill of {name} must be a finite number, found {value}")


def _entropy(probability: np.ndarray) -> np.ndarray:
    """Give (n,) float32: the entropy relative to that of equal probabilities; 0 for zero rows."""
    terms = probability * np.log(np.maximum(probability, np.finfo(np.float32).tiny))
    most = np.log(probability.shape[1])
    return (-terms.sum(axis=1) / most).clip(0, 1).astype(np.float32)
