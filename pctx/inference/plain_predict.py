"""The plain loop by which test programs label a scan, to measure the Predictor against.

n points, m voxels, c classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pctx.checkpoint import Checkpoint
from pctx.data.io.formats import read
from pctx.data.transforms.protocol import apply
from pctx.data.transforms.views import published_views
from pctx.geometry.points import PointBatch, PointCloud
from pctx.inference.predictor import Predictor
from pctx.inference.timing import Clock, Measurement
from pctx.models.segmentor import Segmentor

VIEWS = "s3dis"
"""The recipe of ten views, five scales mirrored or not, that the plain loop votes over."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PredictReport:
    """A file labelled both ways, from reading it to a class for every point.

    Attributes:
        work: the Predictor; beside it `plain`, ten views, and `single`, the loop with one.
        labels: (n,) class numbers by way, `predictor` among them.
        cloud: what was read.
    """

    work: Measurement
    labels: dict[str, np.ndarray]
    cloud: PointCloud


def measure_predict(
    checkpoint: Checkpoint,
    file: Path,
    *,
    repeats: int,
    device: str,
    tell: Callable[[str], object],
) -> PredictReport:
    """Time a Predictor as it is by default and the plain loop, in turns.

    Raises:
        ReadError, ValueError: the file cannot be read, or lacks a channel of the model.
    """
    predictor = Predictor(checkpoint, device)
    labels: dict[str, np.ndarray] = {}

    def ours() -> None:
        tell("the predictor")
        labels["predictor"] = predictor(read(file)).label

    def plain(name: str, views: int) -> Callable[[], None]:
        def run() -> None:
            tell(f"the plain loop, {views} views")
            labels[name] = plain_labels(checkpoint, predictor.model, read(file), device, views)

        return run

    cloud = read(file)
    clock = Clock(repeats=repeats, device=torch.device(device))
    work = clock.compare(
        "predict", len(cloud), ours, plain=plain("plain", 10), single=plain("single", 1)
    )
    return PredictReport(work=work, labels=labels, cloud=cloud)


@torch.inference_mode()
def plain_labels(
    checkpoint: Checkpoint, model: Segmentor, cloud: PointCloud, device: str, views: int = 10
) -> np.ndarray:
    """Label a cloud without non-finite points: (n,) class numbers.

    For each view: one point a voxel by `numpy.unique`, one pass, and each point takes the
    probabilities of the nearest of those by a k-d tree. The views' probabilities are added. With
    one view the cloud is taken as it is.
    """
    from scipy.spatial import cKDTree

    votes = np.zeros((len(cloud), len(checkpoint.labels)), dtype=np.float32)
    for steps in published_views(VIEWS)[:views] if views > 1 else ({},):
        seen = apply(steps, cloud, np.random.default_rng(0))
        cells = np.floor(seen.coord / checkpoint.grid_size).astype(np.int64)
        grid_coord, first = np.unique(cells - cells.min(axis=0), axis=0, return_index=True)
        points = PointBatch(
            coord=torch.from_numpy(seen.coord[first]),
            grid_coord=torch.from_numpy(grid_coord),
            feat=torch.from_numpy(checkpoint.features.extract(seen)[first]),
            offsets=torch.tensor([0, len(first)]),
        ).to(device)
        logits = model(points)
        probability = logits.float().softmax(dim=1).cpu().numpy()
        nearest = cKDTree(seen.coord[first]).query(seen.coord)[1]
        votes += probability[nearest]
    return votes.argmax(axis=1)
