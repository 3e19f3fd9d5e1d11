"""Losses that measure how predicted and true sets overlap: Dice and Lovasz-softmax.

n points, c classes, p classes present.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from pctx.engine.losses.criterion import Criterion


class Dice(Criterion):
    """One minus the Dice overlap, the mean over all classes, absent ones included.

    Of a class with probabilities p and targets t: 1 - (2 sum(p t) + smooth) / (sum(p^e + t^e) +
    smooth), all sums over the points (Milletari et al., 3DV 2016, where e = 2).

    Args:
        smooth: added to both sides of the ratio, above 0.
        exponent: e, at least 1.
    """

    def __init__(self, smooth: float = 1.0, exponent: float = 2.0) -> None:
        super().__init__()
        if not smooth > 0 or exponent < 1:
            raise ValueError(f"dice takes smooth > 0 and exponent >= 1, found {smooth}, {exponent}")
        self.smooth, self.exponent = smooth, exponent

    def of_labelled(self, logits: Float[Tensor, "n c"], label: Int[Tensor, "n"]) -> Tensor:
        """Sum over points first, then take the mean over classes."""
        probability = logits.softmax(dim=1)
        target = F.one_hot(label, logits.shape[1]).to(logits.dtype)
        overlap = 2 * (probability * target).sum(dim=0) + self.smooth
        both = (probability**self.exponent + target).sum(dim=0) + self.smooth
        return (1 - overlap / both).mean()


class Lovasz(Criterion):
    """The Lovasz-softmax loss, the mean over the classes present."""

    def __init__(self) -> None:
        super().__init__()

    def of_labelled(self, logits: Float[Tensor, "n c"], label: Int[Tensor, "n"]) -> Tensor:
        """Compute it of the softmax."""
        return lovasz_softmax(logits.softmax(dim=1), label)


def lovasz_softmax(probability: Float[Tensor, "n c"], label: Int[Tensor, "n"]) -> Tensor:
    """Give the Lovasz-softmax loss, the mean over the classes present.

    For class c the errors e_i = |[y_i = c] - p_i(c)|, sorted to descend, are weighted by the
    steps of the Jaccard loss of the sorted points (Berman et al., CVPR 2018, equations 9 and 11).
    All classes are sorted in one go, each as one row.
    """
    present = torch.bincount(label, minlength=probability.shape[1]).nonzero()  # (p, 1)
    target = label == present  # (p, n)
    share = probability.T[present[:, 0]]  # (p, n)
    error = torch.where(target, 1 - share, share)
    error, order = error.sort(dim=1, descending=True, stable=True)
    return (error * _jaccard_steps(target.gather(1, order), error.dtype)).sum(dim=1).mean()


def _jaccard_steps(target: Tensor, dtype: torch.dtype) -> Float[Tensor, "p n"]:
    """Give what each point adds to 1 - intersection / union; targets are (p, n) bool."""
    found = target.cumsum(dim=1)  # whole numbers, exact at any size
    positives = found[:, -1:]
    rank = torch.arange(1, target.shape[1] + 1, device=target.device)
    jaccard = 1 - (positives - found).to(dtype) / (positives + rank - found).to(dtype)
    return torch.cat([jaccard[:, :1], jaccard.diff(dim=1)], dim=1)
