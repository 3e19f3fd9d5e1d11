"""Criterion, a loss of the labelled points; PointCriterion, one of their places too; their sum.

n points, c classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pctx.data.labels import IGNORE_INDEX
from pctx.geometry.points import PointBatch


class Criterion(nn.Module, ABC):
    """A loss that sees labelled points only, in float32 or wider whatever the logits are.

    So that ignored points have a gradient of exactly 0, final classes say what the loss is of the
    points that are left, of which there is at least one.
    """

    @abstractmethod
    def of_labelled(self, logits: Float[Tensor, "n c"], label: Int[Tensor, "n"]) -> Tensor:
        """Give the loss, a scalar, of points that all have a class."""

    def forward(self, logits: Float[Tensor, "n c"], label: Int[Tensor, "n"]) -> Tensor:
        """Give the loss, a scalar; 0, with gradients of 0, where no point has a label.

        Raises:
            ValueError: a setting does not fit the number of classes.
        """
        keep = label != IGNORE_INDEX
        logits, label = wide(logits[keep]), label[keep]
        return self.of_labelled(logits, label) if len(label) else logits.sum()


class PointCriterion(nn.Module, ABC):
    """A loss that can also ask where points lie, or passes that on to its terms."""

    @abstractmethod
    def forward(
        self,
        logits: Float[Tensor, "n c"],
        label: Int[Tensor, "n"],
        points: PointBatch | None = None,
    ) -> Tensor:
        """Give the loss, a scalar."""


class WeightedSum(PointCriterion):
    """A sum of named losses, each with its factor.

    Args:
        terms: losses by name; one that is None is left out.
        weights: factors by name; a term without one counts once.

    Raises:
        ValueError: there is no term, or a weight is of none.
    """

    def __init__(
        self,
        terms: Mapping[str, nn.Module | None],
        weights: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__()
        if strange := sorted(set(weights or {}) - set(terms)):
            raise ValueError(
                f"criterion.weights names {strange[0]}, and the terms are {', '.join(terms)}"
            )
        self.terms = nn.ModuleDict({name: t for name, t in terms.items() if t is not None})
        if not self.terms:
            raise ValueError("criterion.terms is empty; give at least one loss")
        self.weights = {name: float((weights or {}).get(name, 1.0)) for name in self.terms}

    def forward(
        self,
        logits: Float[Tensor, "n c"],
        label: Int[Tensor, "n"],
        points: PointBatch | None = None,
    ) -> Tensor:
        """Give the sum; a term of weight 0 is not computed."""
        parts = [
            self.weights[name] * loss_of(term, logits, label, points)
            for name, term in self.terms.items()
            if self.weights[name]
        ]
        return torch.stack(parts).sum() if parts else 0 * wide(logits[:0]).sum()


def loss_of(
    criterion: nn.Module,
    logits: Float[Tensor, "n c"],
    label: Int[Tensor, "n"],
    points: PointBatch | None,
) -> Tensor:
    """Call any criterion with what it takes: a PointCriterion takes the points too."""
    if isinstance(criterion, PointCriterion):
        loss: Tensor = criterion(logits, label, points)
    else:
        loss = criterion(logits, label)
    return loss


def wide(values: Tensor) -> Tensor:
    """Give values of half precision in float32, others as they are."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
