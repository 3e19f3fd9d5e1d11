"""PTv3 as it was released, without flash attention: what the benchmark compares the model with.

Each step is the released one: curves bit by bit, orders by argsort at every level, clusters by
`torch.unique`, patches padded, scores kept. It reads the weights of our modules.

n points, m coarse points, b clouds, c channels, o curves, w patches, k points a patch, h heads, d
channels a head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from pctx.geometry.kernel_map import KernelMap, kernel_map
from pctx.geometry.packed import batch_from_offsets, offsets_from_counts
from pctx.geometry.points import PointBatch
from pctx.inference.baseline import encode_plainly, hilbert_by_bits, order_together
from pctx.models.point_transformer_v3 import ENCODING_KERNEL, Block, PointTransformerV3
from pctx.nn.mlp import BatchNorm, LinearNorm
from pctx.nn.sparse_conv import SubmanifoldConv3d
from pctx.nn.spconv_engine import convolve_by_spconv, spconv_is_installed
from pctx.nn.stem import STEM_KERNEL

Convolve = Callable[[SubmanifoldConv3d, Tensor, KernelMap], Tensor]


def run_plainly(model: PointTransformerV3, points: PointBatch) -> Float[Tensor, "n c"]:
    """Plan and compute as the released code does, with the weights and the mode of a model.

    Convolutions are spconv's where it is installed, else ours; kernel maps, two parts in a hundred
    of the time, are ours. In training, running statistics stay as they are and no path is dropped.

    Args:
        model: with pre-norm, a decoder, and `published`.
        points: one cloud, or clouds none of which is smaller than a patch at any level.
    """
    convolve = _by_spconv if spconv_is_installed() else _by_torch
    level = _serialize(points, model)
    stem = model.stem
    feat = convolve(stem.conv, points.feat, level.maps(STEM_KERNEL))
    feat = F.gelu(_normalize(stem.norm, feat))
    skips: list[tuple[Tensor, _Level, Tensor]] = []
    # Any: what a module list holds has no type.
    encoder: list[Any] = list(model.unet.encoder)
    down: list[Any] = list(model.unet.down)
    decoder: list[Any] = list(model.unet.decoder)
    for i, stage in enumerate(encoder):
        if i > 0:
            step, fine, rows = down[i - 1], level, feat
            projected = F.linear(rows, step.linear.weight, step.linear.bias)
            feat, level, cluster = _pool(projected, fine, model.strides[i - 1])
            feat = F.gelu(_normalize(step.norm, feat))
            skips.append((rows, fine, cluster))
        for block in stage.blocks:
            feat = _block(block, feat, feat, level, model.window_sizes[i], convolve)
    for i, stage in reversed(list(enumerate(decoder))):
        skip, level, cluster = skips.pop()
        beside = _branch(stage.join.skip, skip)
        feat = beside + _branch(stage.join.up, feat)[cluster]
        for j, block in enumerate(stage.blocks):
            source = feat if j else beside
            feat = _block(block, feat, source, level, model.window_sizes[i], convolve)
    return feat


@dataclass(frozen=True, kw_only=True, eq=False)
class _Level:
    """Points of a level, ordered along each curve, and the patches cut so far."""

    grid_coord: Int[Tensor, "n 3"]
    batch: Int[Tensor, "n"]
    codes: Int[Tensor, "o n"]
    order: Int[Tensor, "o n"]
    inverse: Int[Tensor, "o n"]
    depth: int
    counts: Int[Tensor, "b"]
    made: dict[int, KernelMap]

    def maps(self, size: int) -> KernelMap:
        """Find the pairs of a kernel, once."""
        if size not in self.made:
            self.made[size] = kernel_map(self.grid_coord, offsets_from_counts(self.counts), size)
        return self.made[size]


def _serialize(points: PointBatch, model: PointTransformerV3) -> _Level:
    batch = batch_from_offsets(points.offsets, len(points))
    lowest = torch.stack([points.grid_coord[batch == i].amin(0) for i in range(points.num_clouds)])
    grid_coord = points.grid_coord - lowest[batch]
    depth = int(grid_coord.amax() + 1).bit_length()
    codes = encode_plainly(grid_coord, depth, model.curves, hilbert_by_bits) | batch << 3 * depth
    order, inverse = order_together(codes)
    return _Level(
        grid_coord=grid_coord,
        batch=batch,
        codes=codes,
        order=order,
        inverse=inverse,
        depth=depth,
        counts=points.offsets.diff(),
        made={},
    )


def _pool(feat: Tensor, fine: _Level, stride: int) -> tuple[Tensor, _Level, Tensor]:
    """Take maxima over cells; order the coarse points anew."""
    levels = stride.bit_length() - 1
    codes = fine.codes >> 3 * levels
    _, cluster, counts = torch.unique(codes[0], return_inverse=True, return_counts=True)
    rows = torch.argsort(cluster, stable=True)
    starts = offsets_from_counts(counts)
    feat = torch.segment_reduce(feat[rows], "max", offsets=starts)
    first = rows[starts[:-1]]
    codes = codes[:, first]
    order, inverse = order_together(codes)
    coarse = _Level(
        grid_coord=fine.grid_coord[first] >> levels,
        batch=fine.batch[first],
        codes=codes,
        order=order,
        inverse=inverse,
        depth=fine.depth - levels,
        counts=torch.bincount(fine.batch[first], minlength=len(fine.counts)),
        made={},
    )
    return feat, coarse, cluster


def _block(
    block: Block, feat: Tensor, source: Tensor, level: _Level, window_size: int, convolve: Convolve
) -> Tensor:
    encoding, mlp = block.encoding, block.mlp
    encoded = convolve(encoding.conv, source, level.maps(ENCODING_KERNEL))
    encoded = F.linear(encoded, encoding.linear.weight, encoding.linear.bias)
    feat = feat + encoding.norm(encoded)
    feat = feat + _attend(block, block.norm1(feat), level, window_size)
    hidden = F.gelu(F.linear(block.norm2(feat), mlp.fc1.weight, mlp.fc1.bias))
    return feat + F.linear(hidden, mlp.fc2.weight, mlp.fc2.bias)


def _attend(block: Block, feat: Tensor, level: _Level, window_size: int) -> Tensor:
    """Attend in patches, scores and all; a short last patch is filled from the one before."""
    attention, along = block.attention, block.curve % len(level.order)
    k, c, h = min(window_size, int(level.counts.min())), feat.shape[1], attention.num_heads
    padded, own = _patches(level.counts, k)
    qkv = F.linear(feat, attention.qkv.weight, attention.qkv.bias)[level.order[along][padded]]
    query, key, value = qkv.reshape(-1, k, 3, h, c // h).permute(2, 0, 3, 1, 4)  # (w, h, k, d)
    scores = (query * (c // h) ** -0.5) @ key.transpose(-2, -1)
    attended = (scores.softmax(-1) @ value).transpose(1, 2).reshape(-1, c)
    rows = attended[own[level.inverse[along]]]
    return F.linear(rows, attention.proj.weight, attention.proj.bias)


def _patches(counts: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the rank in each slot, and the slot of each rank."""
    padded, own, rank, slots = [], [], 0, 0
    for count in counts.tolist():
        places = torch.arange(-(-count // k) * k)
        short = len(places) - count
        if short and count > k:
            # The places that are missing at the end of the last patch, in the patch before it.
            places[count:] = places[count - k : len(places) - k]
        padded.append(places + rank)
        own.append(torch.arange(count) + slots)
        rank, slots = rank + count, slots + len(places)
    device = counts.device
    return torch.cat(padded).to(device), torch.cat(own).to(device)


def _branch(branch: LinearNorm, feat: Tensor) -> Tensor:
    projected = F.linear(feat, branch.linear.weight, branch.linear.bias)
    return F.gelu(_normalize(branch.norm, projected))


def _normalize(norm: BatchNorm, feat: Tensor) -> Tensor:
    known = (None, None) if norm.training else (norm.running_mean, norm.running_var)
    return F.batch_norm(feat, *known, norm.weight, norm.bias, norm.training, 0.0, norm.eps)


def _by_spconv(conv: SubmanifoldConv3d, feat: Tensor, pairs: KernelMap) -> Tensor:
    rows = convolve_by_spconv(feat, conv.weight, pairs)
    return rows if conv.bias is None else rows + conv.bias


def _by_torch(conv: nn.Module, feat: Tensor, pairs: KernelMap) -> Tensor:
    rows: Tensor = conv(feat, pairs)
    return rows
