"""planner_of: a backbone without its weights, which still plans, in another process for one."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from pctx.geometry.hierarchy import Hierarchy
from pctx.geometry.points import PointBatch
from pctx.models.backbone import Backbone


def planner_of(
    backbone: Backbone,
) -> Callable[[PointBatch, torch.Generator | None], Hierarchy]:
    """Give the `plan` of a copy of a backbone whose weights take no memory.

    A plan hangs on a backbone's settings alone, so this one plans the same; pickled, it takes some
    kilobytes.
    """
    weights: list[Tensor] = [*backbone.parameters(), *backbone.buffers()]
    bare = copy.deepcopy(backbone, {id(tensor): _without_memory(tensor) for tensor in weights})
    return bare.plan


def _without_memory(tensor: Tensor) -> Tensor:
    empty = torch.empty_like(tensor, device="meta")
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty
