"""A toy model with random weights, and clouds for it."""

import numpy as np
import torch

from pctx.checkpoint import Checkpoint, build_model
from pctx.data.features import FeatureSpec
from pctx.data.labels import LabelSet
from pctx.geometry.points import PointCloud

LABELS = LabelSet(
    names=("ground", "tree", "house"),
    colors=((150, 100, 50), (0, 200, 0), (200, 0, 0)),
    raw=((2,), (5, 4), (6,)),
    ignore=(7,),
    unlabeled=1,
)
BACKBONE = "pctx.models.point_transformer_v3.PointTransformerV3"
ARGUMENTS = {
    "channels": [8, 16],
    "depths": [1, 1],
    "num_heads": [1, 2],
    "strides": [2],
    "decoder_channels": [8],
    "decoder_depths": [1],
    "decoder_num_heads": [1],
    "window_size": 32,
}


def toy_checkpoint(fields=("height",), seed=0):
    torch.manual_seed(seed)
    features = FeatureSpec(fields=fields)
    model = build_model(BACKBONE, ARGUMENTS, features, LABELS)
    return Checkpoint(
        backbone=BACKBONE,
        arguments=ARGUMENTS,
        labels=LABELS,
        features=features,
        grid_size=0.5,
        weights=model.state_dict(),
    )


def toy_cloud(n=3000, seed=0, extent=20.0, label=True):
    rng = np.random.default_rng(seed)
    coord = rng.uniform(0, [extent, extent, 5], size=(n, 3)).astype(np.float32)
    raw = np.where(coord[:, 2] < 1, 2, np.where(coord[:, 0] < extent / 2, 5, 6))
    return PointCloud(coord=coord, label=raw if label else None)
