"""Predictor: a model file and a cloud in, a class for every raw point out.

n raw points, m voxels, c classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

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
            probabilities are averaged.
        fill: values for channels the model reads and a cloud lacks.
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
    ) -> None:
        self.checkpoint = model if isinstance(model, Checkpoint) else load_checkpoint(model)
        self.device = torch.device(device)
        self.model = self.checkpoint.build().to(self.device)
        if views < 1:
            raise ValueError(f"views must be 1 or more, found {views}")
        unknown = set(fill or {}) - set(self.checkpoint.features.fields)
        if unknown:
            raise ValueError(
                f"fill names {sorted(unknown)[0]}, but the model reads "
                f"{', '.join(self.checkpoint.features.fields)}"
            )
        self.tile, self.views, self.fill = tile, views, fill
        self.overlap = OVERLAP * self.checkpoint.grid_size if overlap is None else overlap

    def __call__(self, cloud: PointCloud, progress: Progress | None = None) -> Prediction:
        """Label every point of a cloud, in its order. Labels of the cloud are never read.

        Non-finite points get class number -1; the other labels do not depend on them.

        Raises:
            ValueError: the cloud lacks a channel of the model, and no fill value was given.
        """
        num_classes = len(self.checkpoint.labels)
        finite = np.flatnonzero(cloud.finite)
        probability = np.zeros((len(cloud), num_classes), dtype=np.float32)
        if len(finite):
            for view in range(self.views):
                self._add_view(cloud, finite, 2 * np.pi * view / self.views, probability, progress)
        probability /= self.views
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
        )

    def _add_view(
        self,
        cloud: PointCloud,
        finite: np.ndarray,
        angle: float,
        probability: np.ndarray,
        progress: Progress | None,
    ) -> None:
        if angle:
            turn = rotation(angle, axis=2).T.astype(np.float32)
            normal = None if cloud.normal is None else cloud.normal @ turn
            cloud = replace(cloud, coord=cloud.coord @ turn, normal=normal)
        feat = self.checkpoint.features.extract(cloud, self.fill)
        done = 0
        for tile in self._tiles(cloud.coord[finite]):
            core, rows = finite[tile.core], finite[tile.rows]
            probability[core] += self._run(cloud.coord, feat, core, rows)
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
    ) -> np.ndarray:
        sample = prepare_rows(coord, feat, None, rows, self.checkpoint.grid_size)
        logits: Float[Tensor, "m c"] = self.model(sample.points.to(self.device))
        voxel_probability = logits.float().softmax(dim=1).cpu().numpy()
        result: np.ndarray = voxel_probability[sample.inverse.numpy()[core]]
        return result


def _entropy(probability: np.ndarray) -> np.ndarray:
    """Give (n,) float32: the entropy relative to that of equal probabilities; 0 for zero rows."""
    terms = probability * np.log(np.maximum(probability, np.finfo(np.float32).tiny))
    most = np.log(probability.shape[1])
    return (-terms.sum(axis=1) / most).clip(0, 1).astype(np.float32)
