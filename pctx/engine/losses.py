"""Losses of semantic segmentation: cross entropy, Lovasz-softmax, and their sum.

n points, c classes. Points whose label is -1 take no part.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from pctx.data.labels import IGNORE_INDEX


class CrossEntropyLovasz(nn.Module):
    """Weighted sum of cross entropy and Lovasz-softmax, as PTv3 is trained.

    Args:
        cross_entropy_weight: factor of the cross entropy.
        lovasz_weight: factor of the Lovasz-softmax loss; 0 leaves it out.
        class_weights: one factor a class in the cross entropy.
        label_smoothing: in [0, 1).
    """

    def __init__(
        self,
        cross_entropy_weight: float = 1.0,
        lovasz_weight: float = 1.0,
        class_weights: Sequence[float] | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.cross_entropy_weight, self.lovasz_weight = cross_entropy_weight, lovasz_weight
        self.label_smoothing = label_smoothing
        weights = None if class_weights is None else torch.tensor(list(class_weights))
        self.register_buffer("class_weights", weights, persistent=False)

    def forward(self, logits: Float[Tensor, "n c"], label: Int[Tensor, "n"]) -> Tensor:
        """Give the loss, a scalar; 0 with gradient where no point has a label.

        Raises:
            ValueError: the class weights are not one a class.
        """
        weights = self.class_weights
        if isinstance(weights, Tensor) and len(weights) != logits.shape[1]:
            raise ValueError(f"{len(weights)} class weights for {logits.shape[1]} classes")
        keep = label != IGNORE_INDEX
        logits, label = logits[keep].float(), label[keep]
        if not len(label):
            return logits.sum()
        loss = self.cross_entropy_weight * F.cross_entropy(
            logits,
            label,
            weight=weights if isinstance(weights, Tensor) else None,
            label_smoothing=self.label_smoothing,
        )
        if self.lovasz_weight:
            loss = loss + self.lovasz_weight * lovasz_softmax(logits.softmax(dim=1), label)
        return loss


def lovasz_softmax(probability: Float[Tensor, "n c"], label: Int[Tensor, "n"]) -> Tensor:
    """Give the Lovasz-softmax loss, the mean over the classes present.

    For class c the errors e_i = |[y_i = c] - p_i(c)|, sorted to descend, are weighted by the
    steps of the Jaccard loss of the sorted points (Berman et al., CVPR 2018, equations 9 and 11).
    """
    present = torch.bincount(label, minlength=probability.shape[1]) > 0
    target = F.one_hot(label, probability.shape[1]).to(probability.dtype)[:, present]  # (n, p)
    error = (target - probability[:, present]).abs()
    error, order = error.sort(dim=0, descending=True, stable=True)
    return (error * _jaccard_steps(target.gather(0, order))).sum(dim=0).mean()


def _jaccard_steps(target: Float[Tensor, "n p"]) -> Float[Tensor, "n p"]:
    positives = target.sum(dim=0)
    intersection = positives - target.cumsum(dim=0)
    union = positives + (1 - target).cumsum(dim=0)
    jaccard = 1 - intersection / union
    return torch.cat([jaccard[:1], jaccard.diff(dim=0)])
