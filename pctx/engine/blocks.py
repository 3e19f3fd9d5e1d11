"""recompute_blocks: gradient checkpointing for any model."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from pctx.nn.recompute import recompute

_BLOCK = re.compile(r"\bblocks\.\d+$")


def recompute_blocks(model: nn.Module) -> None:
    """Let the blocks of a model keep nothing for the backward but what they were given.

    Raises:
        ValueError: the model has no blocks.
    """
    blocks = [part for name, part in model.named_modules() if _BLOCK.search(name)]
    if not blocks:
        raise ValueError("recompute=true is for models of blocks, and this one has none")
    for block in blocks:
        # On the instance: names of weights stay.
        block.forward = partial(_again, block, block.forward)


def _again(block: nn.Module, forward: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
    if not block.training:
        return forward(*inputs, **named)
    return recompute(block, partial(forward, **named), *inputs)
