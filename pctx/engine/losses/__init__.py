"""Losses of semantic segmentation; points whose label is -1 take no part in any of them."""

from pctx.engine.losses.class_weights import weigh_classes
from pctx.engine.losses.criterion import Criterion, PointCriterion, WeightedSum, loss_of
from pctx.engine.losses.overlap import Dice, Lovasz, lovasz_softmax
from pctx.engine.losses.pointwise import (
    BoundaryCrossEntropy,
    CrossEntropy,
    Focal,
    HardCrossEntropy,
)

__all__ = [
    "BoundaryCrossEntropy",
    "Criterion",
    "CrossEntropy",
    "Dice",
    "Focal",
    "HardCrossEntropy",
    "Lovasz",
    "PointCriterion",
    "WeightedSum",
    "loss_of",
    "lovasz_softmax",
    "weigh_classes",
]
