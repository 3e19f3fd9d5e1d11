"""Gradient checkpointing: less memory for more time.

(Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def recompute(module: nn.Module, function: Callable[..., Any], *inputs: Any) -> Any:
    """Compute function(*inputs), a part of `module`, and keep nothing of it but the inputs.

    The backward computes it again, with the same random numbers; running statistics are as if it
    had been computed once. Results and gradients are those of a plain call.

    Args:
        module: whose buffers the function may change.
        function: of tensors and of anything else; it returns tensors.
        inputs: its arguments.
    """
    if not torch.is_grad_enabled():
        return function(*inputs)
    return checkpoint(
        function,
        *inputs,
        use_reentrant=False,
        context_fn=lambda: (nullcontext(), _buffers_kept(module)),
    )


@contextmanager
def _buffers_kept(module: nn.Module) -> Iterator[None]:
    """Undo what is done to the buffers."""
    before = [(buffer, buffer.clone()) for buffer in module.buffers()]
    try:
        yield
    finally:
        for buffer, value in before:
            buffer.data.copy_(value)  # `data`: the backward of other layers holds the buffer
