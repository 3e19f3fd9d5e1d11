"""Backwards that are no function to be differentiated themselves, and say so."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.autograd.function import once_differentiable


def first_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Let a backward refuse second derivatives.

    torch's own decorator refuses them only where the upstream gradient has a graph; where it is
    constant, the result would pass for a constant.

    Raises:
        RuntimeError: in a backward with create_graph=True.
    """
    plain = once_differentiable(backward)

    @wraps(backward)
    def checked(ctx: Any, *grads: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "second derivatives (create_graph=True) are not to be had through "
                f"{type(ctx).__name__.removesuffix('Backward').lstrip('_')}; attention has them "
                "with backend='plain'"
            )
        return plain(ctx, *grads)

    return checked
