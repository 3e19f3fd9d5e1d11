"""Class weights by how many points of each class the training set has.

c classes.
"""

from __future__ import annotations

import logging

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from pctx.data.dataset import ScanDataset
from pctx.data.labels import IGNORE_INDEX
from pctx.engine.losses.pointwise import WeighsClasses

log = logging.getLogger(__name__)

MAX_SCANS = 200
"""Scans whose points are counted; of a larger set so many, evenly spread over it."""

SOFTENING = 1.02
"""c of Paszke et al.; it bounds the weights to 1.4 for every point and 50 for none."""


def weigh_classes(criterion: nn.Module, dataset: ScanDataset) -> None:
    """Set the weights of each loss that says `auto`, and check the number of those given.

    Raises:
        ValueError: given weights are not one a class, or there is no labelled point to count.
    """
    losses = [part for part in criterion.modules() if isinstance(part, WeighsClasses)]
    if any(loss.waits for loss in losses):
        counts = training_histogram(dataset)
        weights = balanced_weights(counts)
        words = zip(dataset.card.labels.names, weights.tolist(), strict=True)
        log.info("class weights: %s", ", ".join(f"{name} {w:.2f}" for name, w in words))
        for loss in losses:
            if loss.waits:
                loss.set_class_weights(weights)
    for loss in losses:
        loss.check_classes(len(dataset.card.labels))


def balanced_weights(counts: np.ndarray) -> Float[Tensor, "c"]:
    """Give 1 / ln(1.02 + share of the points) of each class (Paszke et al., ENet, 2016).

    Raises:
        ValueError: there is no point.
    """
    total = counts.sum()
    if total == 0:
        raise ValueError("class_weights=auto: the training scans have no labelled point")
    return torch.from_numpy(1 / np.log(SOFTENING + counts / total)).float()


def training_histogram(dataset: ScanDataset) -> np.ndarray:
    """Count the labelled points of each class (c,) int64 in up to `MAX_SCANS` training scans.

    Raises:
        ValueError: a scan has no labels, or raw ids that the card does not know.
    """
    labels = dataset.card.labels
    scans = dataset.scans("train")
    counts = np.zeros(len(labels), dtype=np.int64)
    for place in np.unique(np.linspace(0, len(scans) - 1, min(len(scans), MAX_SCANS), dtype=int)):
        raw = dataset.read(scans[place]).label
        if raw is None:
            raise ValueError(f"{scans[place]}: no labels, which class_weights=auto counts")
        label = labels.encode(raw)
        counts += np.bincount(label[label != IGNORE_INDEX], minlength=len(labels))
    return counts
