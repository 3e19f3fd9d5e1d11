"""Parameter groups and learning-rate schedules."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import OneCycleLR


def parameter_groups(
    model: nn.Module, *, weight_decay: float, lr: float, block_factor: float = 1.0
) -> list[dict[str, Any]]:
    """Split the parameters: norms and biases do not decay; blocks learn at `block_factor` x lr.

    PTv3 is published with a tenth of the rate for its blocks (`block_factor=0.1`).
    """
    if not lr > 0:
        raise ValueError(f"optim.lr must be above 0, found {lr}")
    groups: dict[tuple[bool, bool], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        decays, in_block = parameter.ndim > 1, ".blocks." in name
        group = {
            "params": [],
            "weight_decay": weight_decay if decays else 0.0,
            "lr": lr * (block_factor if in_block else 1.0),
        }
        groups.setdefault((decays, in_block), group)["params"].append(parameter)
    return list(groups.values())


def one_cycle(
    optimizer: Optimizer,
    *,
    total_steps: int,
    warm_up: float = 0.05,
    div_factor: float = 10.0,
    final_div_factor: float = 1000.0,
) -> OneCycleLR:
    """Rise to each group's rate over the share `warm_up` of the steps, then fall by a cosine."""
    return OneCycleLR(
        optimizer,
        max_lr=[group["lr"] for group in optimizer.param_groups],
        total_steps=max(total_steps, 2),
        pct_start=warm_up,
        div_factor=div_factor,
        final_div_factor=final_div_factor,
        cycle_momentum=False,
    )
