"""Several processes as one: the loss of the whole batch, and its norms.

p processes, n points of this one, c channels or classes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from pctx.geometry.points import PointBatch
from pctx.nn.mlp import BatchNorm, Moments, pool_moments

_TOLD = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE")
"""What Lightning tells the processes that it starts, and leaves in its own environment."""


class SyncedBatchNorm(BatchNorm):
    """Batch normalisation by the points of all processes, forward and backward."""

    def forward(
        self,
        input: Float[Tensor, "n c"],
        valid: Bool[Tensor, "n"] | None = None,
        moments: Moments | None = None,
    ) -> Float[Tensor, "n c"]:
        """Normalise as `BatchNorm` does; moments that are given are taken as they are."""
        if not self.training or moments is not None:
            return super().forward(input, valid, moments)
        own = self.moments(input, valid)
        rows = _Gather.apply(own.rows.to(own.mean)[None])
        means, variances = _Gather.apply(torch.stack([own.mean, own.var])).unbind(1)
        pooled = pool_moments(
            [Moments(*each) for each in zip(rows[:, 0], means, variances, strict=True)]
        )
        self.track(pooled)
        return super().forward(input, valid, pooled)


@contextmanager
def own_processes() -> Iterator[None]:
    """Let the processes that Lightning starts within be forgotten, so that it can start others.

    Those that a launcher has started before stay: they train every run of a sweep together.
    """
    before = set(os.environ)
    try:
        yield
    finally:
        if "LOCAL_RANK" not in before:
            if dist.is_available() and dist.is_initialized():
                dist.destroy_process_group()
            for name in set(_TOLD) - before:
                os.environ.pop(name, None)


def sync_norms(model: nn.Module) -> None:
    """Let every batch norm of a model look at the points of all processes."""
    for part in model.modules():
        if type(part) is BatchNorm:
            part.__class__ = SyncedBatchNorm  # parameters, buffers and their names stay


def gather_points(
    logits: Float[Tensor, "n c"], points: PointBatch
) -> tuple[Float[Tensor, "m c"], PointBatch]:
    """Join the logits and the points of all processes; gradients go to the own logits alone.

    So the loss is that of the whole batch in each process. Features are left out.
    """
    assert points.label is not None
    counts = gather_rows(points.offsets.diff())
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    sizes = _sizes(len(logits), logits.device)
    parts = list(gather_rows(logits.detach()).split(sizes))
    parts[dist.get_rank()] = logits
    joined = torch.cat(parts)
    return joined, replace(
        points,
        coord=gather_rows(points.coord),
        grid_coord=gather_rows(points.grid_coord),
        feat=points.feat.new_zeros(len(joined), 0),
        offsets=offsets,
        label=gather_rows(points.label),
    )


def gather_rows(values: Tensor) -> Tensor:
    """Put the rows of all processes one after another; they may have different numbers of them."""
    sizes = _sizes(len(values), values.device)
    most = max(sizes)
    padded = F.pad(values, [0, 0] * (values.ndim - 1) + [0, most - len(values)])
    found = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(found, padded.contiguous())
    return torch.cat([part[:size] for part, size in zip(found, sizes, strict=True)])


def _sizes(own: int, device: torch.device) -> list[int]:
    size = torch.tensor([own], device=device)
    found = [torch.empty_like(size) for _ in range(dist.get_world_size())]
    dist.all_gather(found, size)
    return [int(each) for each in torch.cat(found).tolist()]


class _Gather(torch.autograd.Function):
    """Stack the values of all processes: (p, *shape); the gradients of all come back."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        found = [torch.empty_like(values) for _ in range(dist.get_world_size())]
        dist.all_gather(found, values.contiguous())
        return torch.stack(found)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        total = grads[0].contiguous().clone()
        dist.all_reduce(total)
        return total[dist.get_rank()]
