"""Calibration: whether a model is right as often as it says, and the temperature that helps.

n points, c classes, t temperatures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torchmetrics import Metric

from pctx.data.labels import IGNORE_INDEX

BINS = 15
"""Bins of confidence, of equal width, as in Guo et al."""

TEMPERATURES = tuple(2 ** (step / 4) for step in range(-8, 17))
"""From 1/4 to 16, each a fifth above the one before."""

MAX_POINTS = 65536
"""Points of a scan that are looked at; of more so many, evenly spread."""

_ONE = TEMPERATURES.index(1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """What labelled points say of the probabilities at every temperature; sums of several add up.

    (Guo et al., On calibration of modern neural networks, ICML 2017.)

    Attributes:
        points: (t, bins) int64, by the confidence (the largest probability).
        confidence: (t, bins) float64, the sum of the confidences.
        hits: (t, bins) int64, points whose class was right.
        loss: (t,) float64, the sum of the negative log likelihoods.
    """

    points: np.ndarray
    confidence: np.ndarray
    hits: np.ndarray
    loss: np.ndarray

    def __add__(self, other: Calibration) -> Calibration:
        return Calibration(
            points=self.points + other.points,
            confidence=self.confidence + other.confidence,
            hits=self.hits + other.hits,
            loss=self.loss + other.loss,
        )

    @property
    def num_points(self) -> int:
        """How many points were looked at."""
        return int(self.points[_ONE].sum())

    @property
    def temperature(self) -> float:
        """The number that logits are divided by for the least negative log likelihood.

        It is the lowest point of a parabola through the three best of `TEMPERATURES` in the
        logarithm; 1 where there are no points, or their logits are no numbers.
        """
        if not self.num_points or not np.isfinite(self.loss).all():
            return 1.0
        best = int(self.loss.argmin())
        if best in (0, len(TEMPERATURES) - 1):
            return TEMPERATURES[best]
        left, low, right = self.loss[best - 1 : best + 2].tolist()
        bend = left - 2 * low + right
        shift = (left - right) / (2 * bend) if bend > 0 else 0.0
        step = TEMPERATURES[1] / TEMPERATURES[0]
        return float(TEMPERATURES[best] * step**shift)

    def ece(self, temperature: float = 1.0) -> float:
        """Give the expected calibration error at the nearest of `TEMPERATURES`; NaN of no points.

        The mean over points of |share right - mean confidence| of their bin.
        """
        row = _nearest(temperature)
        gaps = np.abs(self.hits[row] - self.confidence[row]).sum()
        return float(gaps / self.num_points) if self.num_points else math.nan

    def nll(self, temperature: float = 1.0) -> float:
        """Give the mean negative log likelihood at the nearest of `TEMPERATURES`."""
        return (
            float(self.loss[_nearest(temperature)] / self.num_points)
            if self.num_points
            else math.nan
        )

    def reliability(self, temperature: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Give mean confidence, share right and points of each bin; NaN in an empty one."""
        row = _nearest(temperature)
        points = self.points[row]
        some = np.where(points > 0, points, np.nan)
        return self.confidence[row] / some, self.hits[row] / some, points

    def bins(self) -> list[dict[str, float]]:
        """Give the reliability as rows of a table, without the empty bins."""
        rows = zip(*(column.tolist() for column in self.reliability()), strict=True)
        return [
            {"confidence": confidence, "accuracy": share, "points": points}
            for confidence, share, points in rows
            if points
        ]


class CalibrationMetric(Metric):
    """A Calibration summed over steps and processes."""

    counts: Tensor
    sums: Tensor
    loss: Tensor

    def __init__(self) -> None:
        super().__init__()
        empty = no_calibration()
        counts = np.stack([empty.points, empty.hits])
        self.add_state("counts", torch.from_numpy(counts), dist_reduce_fx="sum")
        self.add_state("sums", torch.from_numpy(empty.confidence), dist_reduce_fx="sum")
        self.add_state("loss", torch.from_numpy(empty.loss), dist_reduce_fx="sum")

    def update(self, logits: Float[Tensor, "n c"], label: Int[Tensor, "n"]) -> None:
        """Add some points."""
        seen = calibrate(logits, label)
        self.counts += torch.from_numpy(np.stack([seen.points, seen.hits])).to(self.counts.device)
        self.sums += torch.from_numpy(seen.confidence).to(self.sums.device)
        self.loss += torch.from_numpy(seen.loss).to(self.loss.device)

    def compute(self) -> dict[str, np.ndarray]:
        """Give what a Calibration is made of."""
        points, hits = self.counts.cpu().numpy()
        confidence, loss = self.sums.cpu().numpy(), self.loss.cpu().numpy()
        return {"points": points, "hits": hits, "confidence": confidence, "loss": loss}


def no_calibration() -> Calibration:
    """Give the sum of nothing."""
    shape = (len(TEMPERATURES), BINS)
    return Calibration(
        points=np.zeros(shape, np.int64),
        confidence=np.zeros(shape),
        hits=np.zeros(shape, np.int64),
        loss=np.zeros(len(TEMPERATURES)),
    )


@torch.no_grad()
def calibrate(logits: Float[Tensor, "n c"], label: Int[Tensor, "n"]) -> Calibration:
    """Look at up to `MAX_POINTS` points, evenly spread; those of label -1 are left out.

    Log probabilities are logits too.
    """
    keep = (label != IGNORE_INDEX).nonzero()[:, 0]
    keep = keep[:: max(math.ceil(len(keep) / MAX_POINTS), 1)]
    logits, label = logits[keep].float(), label[keep]
    top, predicted = logits.max(dim=1)
    right = (predicted == label).double()
    true = logits.gather(1, label[:, None])[:, 0] - top  # (n,) at most 0
    below = logits - top[:, None]
    rows = [_at(below, true, right, temperature) for temperature in TEMPERATURES]
    points, confidence, hits, loss = (np.stack(column) for column in zip(*rows, strict=True))
    return Calibration(
        points=points.astype(np.int64),
        confidence=confidence,
        hits=hits.astype(np.int64),
        loss=loss,
    )


def _at(
    below: Float[Tensor, "n c"], true: Float[Tensor, "n"], right: Tensor, temperature: float
) -> tuple[np.ndarray, ...]:
    """Give points, confidences and hits by bin, and the loss, of logits less their largest."""
    total = (below / temperature).exp().sum(dim=1).double()
    confidence = 1 / total  # the largest logit is 0
    place = (confidence * BINS).ceil().long().clamp(1, BINS) - 1  # bins are open below
    sums = [
        torch.zeros(BINS, dtype=torch.float64, device=below.device).index_add_(0, place, values)
        for values in (torch.ones_like(confidence), confidence, right)
    ]
    loss = (total.log() - true.double() / temperature).sum()
    return (*(values.cpu().numpy() for values in sums), loss.cpu().numpy())


def _nearest(temperature: float) -> int:
    return int(np.abs(np.log(TEMPERATURES) - math.log(temperature)).argmin())
