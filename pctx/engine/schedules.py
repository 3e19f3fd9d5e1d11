"""Learning-rate schedules over the steps of the optimiser.

Each takes an optimiser and the number of steps in all, and multiplies each group's own rate by a
shape of the share of steps done, t in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR

WARM_UP_START = 1e-6
"""The share of the rate at the first step of a warm-up, as in the published recipes."""


class ShapedLR(LambdaLR):
    """The rate of every group times shape(steps done / total_steps); the last value stays."""

    def __init__(
        self, optimizer: Optimizer, shape: Callable[[float], float], total_steps: int
    ) -> None:
        self.total_steps = max(total_steps, 1)
        super().__init__(optimizer, lambda step: shape(min(step / self.total_steps, 1.0)))


def one_cycle(
    optimizer: Optimizer,
    *,
    total_steps: int,
    warm_up: float = 0.05,
    div_factor: float = 10.0,
    final_div_factor: float = 1000.0,
    momentum: Sequence[float] | None = None,
) -> OneCycleLR:
    """Rise to each group's rate over the share `warm_up` of the steps, then fall by a cosine.

    (Smith and Topin, 2018.)

    Args:
        optimizer: its groups' rates are the highest of the cycle.
        total_steps: optimiser steps of the run.
        warm_up: in (0, 1).
        div_factor: the highest rate over the first.
        final_div_factor: the first rate over the last.
        momentum: the momentum (of AdamW the first beta) at the highest and at the lowest rate; the
            published recipes have [0.85, 0.95]. None leaves it alone.
    """
    _check_share("warm_up", warm_up)
    low, high = (0.85, 0.95) if momentum is None else momentum
    total = max(total_steps, 3)
    # Torch divides by the steps of the rise, warm_up * total - 1, and by those of the fall.
    rise = min(max(warm_up, 1.5 / total), 1 - 0.5 / total)
    return OneCycleLR(
        optimizer,
        max_lr=[group["lr"] for group in optimizer.param_groups],
        total_steps=total,
        pct_start=rise,
        div_factor=div_factor,
        final_div_factor=final_div_factor,
        cycle_momentum=momentum is not None,
        base_momentum=low,
        max_momentum=high,
    )


def cosine(
    optimizer: Optimizer, *, total_steps: int, warm_up: float = 0.0, final: float = 0.0
) -> ShapedLR:
    """Warm up, then fall to the share `final` by half a cosine (Loshchilov and Hutter, 2017)."""
    _check_share("warm_up", warm_up)

    def shape(t: float) -> float:
        done = max(t - warm_up, 0.0) / (1 - warm_up)
        return final + (1 - final) * (1 + math.cos(math.pi * done)) / 2

    return ShapedLR(optimizer, _warmed(shape, warm_up), total_steps)


def multi_step(
    optimizer: Optimizer,
    *,
    total_steps: int,
    milestones: Sequence[float] = (0.6, 0.8),
    gamma: float = 0.1,
    warm_up: float = 0.0,
) -> ShapedLR:
    """Multiply the rate by `gamma` at each milestone, a share of the steps."""
    _check_share("warm_up", warm_up)
    for milestone in milestones:
        _check_share("milestones", milestone)
    return ShapedLR(
        optimizer,
        _warmed(lambda t: gamma ** sum(t >= milestone for milestone in milestones), warm_up),
        total_steps,
    )


def poly(
    optimizer: Optimizer, *, total_steps: int, power: float = 0.9, warm_up: float = 0.0
) -> ShapedLR:
    """Fall as (1 - t) ** power."""
    _check_share("warm_up", warm_up)
    return ShapedLR(optimizer, _warmed(lambda t: (1 - t) ** power, warm_up), total_steps)


def exponential(
    optimizer: Optimizer, *, total_steps: int, final: float = 0.01, warm_up: float = 0.0
) -> ShapedLR:
    """Fall to the share `final` by equal factors: final ** t.

    A factor f an epoch over e epochs is a final share of f ** e.
    """
    _check_share("warm_up", warm_up)
    if not final > 0:
        raise ValueError(f"optim.scheduler.final must be above 0, found {final}")
    return ShapedLR(optimizer, _warmed(lambda t: final**t, warm_up), total_steps)


def constant(optimizer: Optimizer, *, total_steps: int, warm_up: float = 0.0) -> ShapedLR:
    """Keep the rate."""
    _check_share("warm_up", warm_up)
    return ShapedLR(optimizer, _warmed(lambda t: 1.0, warm_up), total_steps)


def _warmed(shape: Callable[[float], float], warm_up: float) -> Callable[[float], float]:
    """Multiply a shape by a straight rise from almost 0 to 1 over the share `warm_up`."""

    def warmed(t: float) -> float:
        rise = WARM_UP_START + (1 - WARM_UP_START) * t / warm_up if t < warm_up else 1.0
        return rise * shape(t)

    return warmed


def _check_share(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(f"optim.scheduler.{name} must be in [0, 1), found {value}")
