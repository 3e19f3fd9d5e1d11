"""Muon, an optimiser that makes the steps of weight matrices orthogonal.

m by n: a weight as a matrix, its outputs in rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic of Jordan et al.; it brings singular values to within 0.3 of 1 in five steps."""

SIZE = 0.2
"""The mean size of an entry of AdamW's steps, in rates (Liu et al., Muon is scalable, 2025)."""


class Muon(Optimizer):
    """Muon for the weights inside blocks, AdamW for all others, at the same rates.

    A weight of two or more dimensions in a group that is `hidden` (all are, if the group does not
    say) moves along its momentum made orthogonal, scaled so that entries are as large as AdamW's
    would be (Jordan et al., 2024; Liu et al., 2025). Kernels of convolutions are matrices of one
    row an output. Decay is decoupled from the gradient in both.

    Args:
        params: parameters, or groups of them.
        lr: learning rate, above 0.
        weight_decay: at least 0.
        momentum: of the matrices, in [0, 1); taken with a look ahead (Nesterov).
        betas: of the AdamW part.
        eps: added to the AdamW part's denominator.

    Raises:
        ValueError: a number is out of range.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.003,
        weight_decay: float = 0.01,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-8,
    ) -> None:
        for name, value in (("momentum", momentum), ("betas", betas[0]), ("betas", betas[1])):
            if not 0 <= value < 1:
                raise ValueError(f"{name} must be in [0, 1), found {value}")
        if lr < 0 or weight_decay < 0:
            raise ValueError(f"lr and weight_decay must be 0 or more, found {lr}, {weight_decay}")
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "betas": tuple(betas),
            "eps": eps,
            "hidden": True,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                grad = parameter.grad
                if grad is None:
                    continue
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                if group["hidden"] and parameter.ndim > 1:
                    self._turn(parameter, grad, group)
                else:
                    self._adam(parameter, grad, group)
        return loss

    def _turn(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        state["momentum"].lerp_(grad, 1 - group["momentum"])
        ahead = grad.lerp(state["momentum"], group["momentum"])
        matrix = ahead.flatten(1)  # (m, n)
        scale = SIZE * max(matrix.shape) ** 0.5
        parameter.sub_(group["lr"] * scale * orthogonal(matrix).view_as(parameter))

    def _adam(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state, (first, second) = self.state[parameter], group["betas"]
        if not state:
            state["step"] = 0
            state["mean"] = torch.zeros_like(parameter)
            state["square"] = torch.zeros_like(parameter)
        state["step"] += 1
        state["mean"].lerp_(grad, 1 - first)
        state["square"].lerp_(grad.square(), 1 - second)
        mean = state["mean"] / (1 - first ** state["step"])
        square = state["square"] / (1 - second ** state["step"])
        parameter.sub_(group["lr"] * mean / (square.sqrt() + group["eps"]))


def orthogonal(matrix: Float[Tensor, "m n"], steps: int = 5) -> Float[Tensor, "m n"]:
    """Bring a matrix near to the closest orthogonal one: its singular values near to 1.

    Newton and Schulz's iteration with the coefficients of Jordan et al., in float32 or wider.
    """
    a, b, c = COEFFICIENTS
    wide = matrix.float() if matrix.dtype in (torch.float16, torch.bfloat16) else matrix
    tall = wide.shape[0] > wide.shape[1]
    x = wide.T if tall else wide
    x = x / x.norm().clamp_min(torch.finfo(x.dtype).tiny)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.T if tall else x).to(matrix.dtype)
