"""Losses that are a mean over points: cross entropy and its variants, focal loss.

n points, c classes.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from pctx.data.labels import IGNORE_INDEX
from pctx.engine.losses.criterion import Criterion, PointCriterion, wide
from pctx.geometry.neighbors import knn
from pctx.geometry.points import PointBatch


class WeighsClasses(nn.Module, ABC):
    """What the cross entropies share: a weight a class, and smoothed targets.

    Args:
        class_weights: one factor a class; None for all alike; `auto` for those that the training
            set asks for, which `weigh_classes` sets before training.
        label_smoothing: the share of the target that goes to all classes alike, in [0, 1).
    """

    class_weights: Tensor | None

    def __init__(
        self,
        class_weights: Sequence[float] | Literal["auto"] | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must be in [0, 1), found {label_smoothing}")
        if isinstance(class_weights, str) and class_weights != "auto":
            raise ValueError(
                f"class_weights must be null, auto or a list of numbers, found {class_weights!r}"
            )
        self.waits = class_weights == "auto"
        self.label_smoothing = label_smoothing
        given = None if class_weights is None or self.waits else class_weights
        values = None if given is None else torch.tensor([float(w) for w in given])
        if values is not None and not (values.isfinite() & (values >= 0)).all():
            raise ValueError(f"class_weights must be 0 or more, found {values.tolist()}")
        self.register_buffer("class_weights", values, persistent=False)

    def set_class_weights(self, weights: Tensor) -> None:
        """Set the weights (c,) that `auto` waits for."""
        self.class_weights = weights.float()
        self.waits = False

    def check_classes(self, num_classes: int) -> None:
        """Find out whether the weights are one a class.

        Raises:
            ValueError: they are not, or were never set.
        """
        if self.waits:
            raise ValueError(
                "class_weights=auto needs the training histogram; call weigh_classes first"
            )
        if self.class_weights is not None and len(self.class_weights) != num_classes:
            raise ValueError(f"{len(self.class_weights)} class weights for {num_classes} classes")

    def of_points(
        self, logits: Float[Tensor, "n c"], label: Int[Tensor, "n"]
    ) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
        """Give each point's weighted cross entropy, and its weight in a mean."""
        self.check_classes(logits.shape[1])
        weights = self.class_weights
        factors = None if weights is None else weights.to(logits.dtype)
        loss = F.cross_entropy(
            logits, label, factors, reduction="none", label_smoothing=self.label_smoothing
        )
        return loss, torch.ones_like(loss) if factors is None else factors[label]


class CrossEntropy(WeighsClasses, Criterion):
    """Mean cross entropy, weighted by class."""

    def of_labelled(self, logits: Float[Tensor, "n c"], label: Int[Tensor, "n"]) -> Tensor:
        """Divide the sum by that of the weights."""
        return _mean(*self.of_points(logits, label))


class HardCrossEntropy(WeighsClasses, Criterion):
    """Mean cross entropy of the points that are hard: online hard example mining.

    (Shrivastava et al., CVPR 2016, with the threshold of its use in segmentation.)

    Args:
        threshold: points whose true class has a lower probability are hard, in (0, 1].
        least_share: the share of the points that is taken as hard at least, in (0, 1].
        class_weights: as in `CrossEntropy`.
        label_smoothing: as in `CrossEntropy`.
    """

    def __init__(
        self,
        threshold: float = 0.7,
        least_share: float = 0.1,
        class_weights: Sequence[float] | Literal["auto"] | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(class_weights, label_smoothing)
        for name, value in (("threshold", threshold), ("least_share", least_share)):
            if not 0 < value <= 1:
                raise ValueError(f"{name} must be above 0 and at most 1, found {value}")
        self.threshold, self.least_share = threshold, least_share

    def of_labelled(self, logits: Float[Tensor, "n c"], label: Int[Tensor, "n"]) -> Tensor:
        """Take the points below the threshold, or more if they are too few."""
        loss, weight = self.of_points(logits, label)
        with torch.no_grad():
            true = logits.log_softmax(dim=1).gather(1, label[:, None])[:, 0]
            least = math.ceil(self.least_share * len(label))
            count = max(least, int((true < math.log(self.threshold)).sum()))
            hard = true.topk(count, largest=False, sorted=False).indices
        return _mean(loss[hard], weight[hard])


class BoundaryCrossEntropy(WeighsClasses, PointCriterion):
    """Mean cross entropy in which points beside another class weigh more.

    Args:
        factor: the weight of such points, 1 or more; others weigh 1.
        neighbors: how many nearest points, the point itself included, are looked at.
        class_weights: as in `CrossEntropy`.
        label_smoothing: as in `CrossEntropy`.
    """

    def __init__(
        self,
        factor: float = 3.0,
        neighbors: int = 9,
        class_weights: Sequence[float] | Literal["auto"] | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(class_weights, label_smoothing)
        if not factor >= 1:
            raise ValueError(f"factor must be 1 or more, found {factor}")
        if neighbors < 2:
            raise ValueError(f"neighbors must be 2 or more, found {neighbors}")
        self.factor, self.neighbors = factor, neighbors

    def forward(
        self,
        logits: Float[Tensor, "n c"],
        label: Int[Tensor, "n"],
        points: PointBatch | None = None,
    ) -> Tensor:
        """Give the loss, a scalar; 0, with gradients of 0, where no point has a label.

        Raises:
            ValueError: the points are not given, or the class weights are not one a class.
        """
        if points is None:
            raise ValueError("a boundary loss needs the points; give them after the labels")
        keep = label != IGNORE_INDEX
        if not keep.any():
            return wide(logits[keep]).sum()
        beside = beside_other_class(points, label, self.neighbors)[keep]
        loss, weight = self.of_points(wide(logits[keep]), label[keep])
        nearness = torch.where(beside, self.factor, 1.0).to(loss.dtype)
        return _mean(loss * nearness, weight * nearness)


class Focal(Criterion):
    """Focal loss of one sigmoid a class, the mean over points and classes.

    With p the sigmoid of a logit and t its target, 0 or 1: (alpha t + (1 - alpha)(1 - t)) times
    (t (1 - p) + (1 - t) p) ** gamma times the binary cross entropy (Lin et al., ICCV 2017,
    equation 5).

    Args:
        gamma: how little easy points count; at least 0.
        alpha: the weight of a point's own class, in [0, 1]; the others weigh 1 - alpha.
    """

    def __init__(self, gamma: float = 2.0, alpha: float = 0.5) -> None:
        super().__init__()
        if gamma < 0 or not 0 <= alpha <= 1:
            raise ValueError(
                f"focal loss takes gamma >= 0 and alpha in [0, 1], found {gamma}, {alpha}"
            )
        self.gamma, self.alpha = gamma, alpha

    def of_labelled(self, logits: Float[Tensor, "n c"], label: Int[Tensor, "n"]) -> Tensor:
        """Compute equation 5 with every class of every point as a case of its own."""
        target = F.one_hot(label, logits.shape[1]).to(logits.dtype)
        # The logit of what is wrong with p: -z where the target is 1, z where it is 0.
        miss = torch.where(target > 0, -logits, logits)
        weight = self.alpha * target + (1 - self.alpha) * (1 - target)
        # The binary cross entropy is softplus(miss); (1 - p_t) ** gamma = exp(gamma logsigmoid).
        return (weight * (self.gamma * F.logsigmoid(miss)).exp() * F.softplus(miss)).mean()


@torch.no_grad()
def beside_other_class(
    points: PointBatch, label: Int[Tensor, "n"], neighbors: int
) -> Bool[Tensor, "n"]:
    """Tell which points have a point of another class among their nearest; ignored ones never."""
    near = knn(points.coord, points.offsets, neighbors)
    other = label[near.index]  # (n, neighbors); in a small cloud, some name its first point again
    differs = (other != label[:, None]) & (other != IGNORE_INDEX)
    return differs.any(dim=1) & (label != IGNORE_INDEX)


def _mean(loss: Tensor, weight: Tensor) -> Tensor:
    """Divide the sum by that of the weights; 0 where all weights are."""
    return loss.sum() / weight.sum().clamp_min(torch.finfo(loss.dtype).tiny)
