"""Where two points are to one another: bias by voxel offset or by coordinate MLP, rotary encoding.

Each is called as `encode(position, windows, …)`, the position being one row a point, and none reads
more of it than offsets inside a window. `contextual.py` holds the encodings that also read what
query and key are.

n points, w windows, k slots a window, h heads, d channels a head, r rows of a table.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pctx.geometry.windows import Windows
from pctx.nn.derivative import first_only
from pctx.nn.mlp import widen
from pctx.nn.position import TABLE_STD, CoordinateMLP

ROTARY_BASE = 100.0
"""As published with LitePT (2026): with heads of 18 channels, periods of 6, 29 and 136 voxels."""


class RelativePositionBias(nn.Module):
    """A learned number for each voxel offset between query and key, one table an axis and head.

    Offsets are clamped to the bound; the three axes' numbers are added. (Wu et al., Point
    Transformer V3, 2024; tables after Lai et al., Stratified Transformer, 2022. With
    `octformer_bound` it is that of Wang, OctFormer, 2023, over the nodes of one octree depth.)

    Attributes:
        table: (3 * (2 * bound + 1), heads): x offsets from -bound to bound, then y, then z.
    """

    def __init__(self, num_heads: int, bound: int):
        super().__init__()
        self.bound = bound
        self.table = nn.Parameter(torch.empty(3 * (2 * bound + 1), num_heads))
        nn.init.trunc_normal_(self.table, std=TABLE_STD)

    @staticmethod
    def bound_for(window_size: int) -> int:
        """Return PTv3's bound for a window: twice the edge of a cube of four times its points."""
        return int((4 * window_size) ** (1 / 3) * 2)

    @staticmethod
    def octformer_bound(window_size: int, dilation: int = 1) -> int:
        """Return OctFormer's bound for a window of every `dilation`-th node along the z-curve."""
        return int(0.8 * window_size * dilation**0.5)

    def forward(self, grid_coord: Int[Tensor, "n 3"], windows: Windows) -> Float[Tensor, "w h k k"]:
        """Look up the bias of every query (row) and key (column) of every window.

        Memory: the result and one head of it; what backward needs grows with n only.

        Args:
            grid_coord: voxel numbers of the points.
            windows: a partition of the points.
        """
        cells = _in_windows(grid_coord, windows)
        # Counted from the window's first point, so that 32 bits hold any survey's voxels.
        cells = (cells - cells[:, :1]).int()
        bias: Tensor = _TableLookUp.apply(self.table, cells, self.bound)
        return bias

    def extra_repr(self) -> str:
        """Show the bound."""
        return f"bound={self.bound}"


class CoordinateBias(nn.Module):
    """A number for each offset in metres between query and key, from a coordinate MLP.

    Nothing is quantised or clamped, at the price of hidden_channels numbers a pair: for windows of
    tens of points.
    """

    def __init__(self, num_heads: int, hidden_channels: int = 8):
        super().__init__()
        self.mlp = CoordinateMLP(num_heads, hidden_channels)

    def forward(self, coord: Float[Tensor, "n 3"], windows: Windows) -> Float[Tensor, "w h k k"]:
        """Compute the bias of every query (row) and key (column) of every window."""
        places = _in_windows(coord, windows)
        offset = places[:, :, None] - places[:, None, :]  # (w, k, k, 3)
        offset = offset.to(self.mlp.fc1.weight.dtype)
        valid = windows.valid
        pairs = None if valid is None else valid[:, :, None] & valid[:, None, :]
        return self.mlp(offset, pairs).permute(0, 3, 1, 2)


class RotaryEncoding(nn.Module):
    """Queries and keys turned in proportion to voxel numbers: their products know offsets alone.

    A head is cut into thirds for x, y and z; with D = d / 3, the channels i and i + D / 2 of a
    third are turned as a plane by coordinate * base**(-2 i / D). So d is a multiple of 6 (18 in all
    published models). (PointROPE of LitePT, 2026; after Su et al., RoFormer, 2021, section 3.2.)

    Args:
        head_channels: d.
        base: of the frequencies, which fall from 1 to base**(2 / D - 1) radians a voxel.
    """

    def __init__(self, head_channels: int, base: float = ROTARY_BASE):
        super().__init__()
        if head_channels < 6 or head_channels % 6:
            raise ValueError(
                f"rotary encoding needs head_channels to be a multiple of 6, found {head_channels};"
                " choose channels / num_heads so, 18 for instance"
            )
        self.head_channels = head_channels
        self.base = base

    def forward(
        self,
        grid_coord: Int[Tensor, "n 3"],
        windows: Windows,
        query: Float[Tensor, "w h k d"],
        key: Float[Tensor, "w h k d"],
    ) -> tuple[Float[Tensor, "w h k d"], Float[Tensor, "w h k d"]]:
        """Turn queries and keys; pass both to any attention.

        Angles are counted from each window's first point, which changes no product of a query with
        a key and keeps them exact in float32 far from the origin.
        """
        cells = _in_windows(grid_coord, windows)
        cells = (cells - cells[:, :1]).to(torch.promote_types(query.dtype, torch.float32))
        half = self.head_channels // 6
        rate = self.base ** (-torch.arange(half, device=cells.device, dtype=cells.dtype) / half)
        angle = (cells[..., None] * rate)[:, None]  # (w, 1, k, 3, D / 2)
        cos, sin = angle.cos(), angle.sin()
        return _turn(query, cos, sin), _turn(key, cos, sin)

    def extra_repr(self) -> str:
        """Show the size."""
        return f"{self.head_channels}, base={self.base}"


def _in_windows(position: Tensor, windows: Windows) -> Tensor:
    """Gather a row for each slot, (w, k, c)."""
    w, k = windows.index.shape
    return position.index_select(0, windows.index.reshape(-1)).view(w, k, position.shape[1])


def _turn(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each plane of (w, h, k, d) by its angle, (w, 1, k, 3, D / 2)."""
    w, h, k, d = heads.shape
    first, second = heads.reshape(w, h, k, 3, 2, d // 6).unbind(-2)  # each (w, h, k, 3, D / 2)
    turned = torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-2)
    return turned.reshape(w, h, k, d).to(heads.dtype)


class _TableLookUp(torch.autograd.Function):
    """Sum the rows of three tables by clamped offset, (r, h) to (w, h, k, k).

    Backward finds the rows anew: they would outweigh the bias of a few heads.
    """

    @staticmethod
    def forward(ctx: Any, table: Tensor, cells: Tensor, bound: int) -> Tensor:
        ctx.save_for_backward(cells)
        ctx.bound = bound
        w, k, _ = cells.shape
        h, side = table.shape[1], 2 * bound + 1
        x, y, z = table.t().reshape(h, 3, side).unbind(1)
        # Two look-ups instead of three.
        xy = (x[:, :, None] + y[:, None, :]).reshape(h, side * side)
        row_xy, row_z = _rows(cells, bound)
        bias = table.new_empty(h, w * k * k)
        for head in range(h):
            torch.index_select(xy[head], 0, row_xy, out=bias[head])
            bias[head].add_(z[head].index_select(0, row_z))
        return bias.view(h, w, k, k).transpose(0, 1)

    @staticmethod
    @first_only
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (cells,) = grads, ctx.saved_tensors
        h, side = grad.shape[1], 2 * ctx.bound + 1
        row_xy, row_z = _rows(cells, ctx.bound)
        xy = widen(grad).new_zeros(h, side * side)
        z = xy.new_zeros(h, side)
        for head in range(h):
            pairs = widen(grad[:, head].reshape(-1))
            xy[head].index_add_(0, row_xy, pairs)
            z[head].index_add_(0, row_z, pairs)
        xy = xy.view(h, side, side)
        axes = torch.stack([xy.sum(2), xy.sum(1), z], dim=1)  # (h, 3, side)
        return axes.view(h, 3 * side).t().to(grad.dtype), None, None


def _rows(cells: Tensor, bound: int) -> tuple[Tensor, Tensor]:
    """Return each pair's row in the joint table of x and y, and in that of z, (w * k * k,) both."""
    x, y, z = (
        (along[:, :, None] - along[:, None, :]).clamp_(-bound, bound).add_(bound)
        for along in cells.unbind(-1)
    )
    return x.mul_(2 * bound + 1).add_(y).view(-1), z.view(-1)
