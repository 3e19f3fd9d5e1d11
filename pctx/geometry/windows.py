"""Windows: points in slots, k a window, inside which attention looks around.

n points, b clouds, w windows, k slots a window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pctx.geometry.checks import check_offsets, check_whole
from pctx.geometry.curves import MAX_DEPTH
from pctx.geometry.packed import batch_from_offsets, from_corner, offsets_from_counts
from pctx.geometry.serialization import Serialization
from pctx.geometry.sorting import argsort_pairs, changes, places


@dataclass(frozen=True, kw_only=True, eq=False)
class Windows:
    """A dense table of windows over packed points.

    Attributes:
        index: the point in each slot. A masked slot names some point of the same cloud.
        valid: whether a slot holds a point; None if all do.
        slot: the flat slot, in w * k, that owns each point; its output is read there.
    """

    index: Int[Tensor, "w k"]
    valid: Bool[Tensor, "w k"] | None
    slot: Int[Tensor, "n"]

    @property
    def num_windows(self) -> int:
        """The number of windows of all clouds."""
        return self.index.shape[0]

    @property
    def window_size(self) -> int:
        """The number of slots a window."""
        return self.index.shape[1]

    def to(self, device: torch.device | str) -> Windows:
        """Copy every tensor to a device."""
        return Windows(
            index=self.index.to(device, non_blocking=True),
            valid=None if self.valid is None else self.valid.to(device, non_blocking=True),
            slot=self.slot.to(device, non_blocking=True),
        )


def serial_windows(
    order: Int[Tensor, "n"],
    offsets: Int[Tensor, "b+1"],
    window_size: int,
    *,
    shift: int = 0,
    dilation: int = 1,
) -> Windows:
    """Cut each cloud into windows of consecutive points along a curve.

    With k = min(window_size, points of the largest cloud), a cloud of n >= k points makes
    ceil(n / k) windows; the last, if short, borrows the points just before it, and each point is
    owned by the slot that did not borrow it. A cloud of n < k points is one window with masked
    slots; an empty cloud makes none. (The patches of Wu et al., Point Transformer V3, 2024.)

    Args:
        order: the points cloud by cloud, along the curve.
        offsets: the limits of the clouds.
        window_size: the largest number of slots a window, at least 1.
        shift: points, any integer; the first cut of a cloud of more than k points lies `shift`
            modulo k points from its start, and the short first window borrows the points just
            after it. Half a window lets neighbours that a cut divided meet.
        dilation: a window takes every dilation-th of window_size * dilation consecutive points,
            which are cut by the rule above. Where many of these are borrowed, some windows own no
            point.

    Raises:
        ValueError: if window_size or dilation is below 1, or shift or offsets do not fit.
    """
    order = order.long()
    layout = _lay_out(offsets, len(order), window_size, shift, dilation)
    slot = torch.empty_like(order)
    slot[order] = layout.slot
    return replace(layout, index=_gather(order, layout.index), slot=slot)


def curve_windows(
    serialization: Serialization, window_size: int, *, shift: int = 0, dilation: int = 1
) -> tuple[Windows, ...]:
    """Cut each cloud into windows along each curve; see `serial_windows`."""
    n = serialization.order.shape[1]
    layout = _lay_out(serialization.offsets, n, window_size, shift, dilation)
    return tuple(
        replace(layout, index=_gather(order, layout.index), slot=_gather(layout.slot, inverse))
        for order, inverse in zip(serialization.order, serialization.inverse, strict=True)
    )


def octree_windows(
    order: Int[Tensor, "n"],
    offsets: Int[Tensor, "b+1"],
    window_size: int,
    dilation: int = 1,
    *,
    published: bool = False,
) -> Windows:
    """Cut each cloud into windows of equal counts along a z-curve; nothing is borrowed.

    Each run of window_size * dilation points makes `dilation` windows, each of every dilation-th
    point; the slots that the last run leaves empty are masked. (The octree attention of Wang,
    OctFormer, 2023, and its dilated octree attention.)

    Args:
        order: the points cloud by cloud, along the curve.
        offsets: the limits of the clouds.
        window_size: slots a window, at least 1.
        dilation: at least 1.
        published: cut the sequence of all clouds as one, so that a cloud's first window depends on
            the clouds before it, as the released code does. Windows never hold two clouds.

    Raises:
        ValueError: if window_size or dilation is below 1, or offsets do not fit.
    """
    window_size = check_whole("window_size", window_size, 1)
    dilation = check_whole("dilation", dilation, 1)
    n, run = len(order), window_size * dilation
    order, offsets = order.long(), check_offsets(offsets, n)
    batch = batch_from_offsets(offsets, n)
    place = torch.arange(n, device=order.device)
    if not published:
        place -= offsets.index_select(0, batch)
    head = changes(torch.div(place, run, rounding_mode="floor")) | changes(batch)
    row = (torch.cumsum(head, 0) - 1) * dilation + place % dilation
    # The last run of a cloud may leave rows without a point.
    used = row.new_zeros((n // run + len(offsets)) * dilation)
    used[row] = 1
    row = (torch.cumsum(used, 0) - 1).index_select(0, row)
    return _fill(order, row, torch.div(place % run, dilation, rounding_mode="floor"))


def grid_windows(
    coord: Float[Tensor, "n 3"] | Int[Tensor, "n 3"],
    offsets: Int[Tensor, "b+1"],
    window: float,
    *,
    shift: float = 0.0,
    order: Int[Tensor, "n"] | None = None,
    slots: int | None = None,
) -> Windows:
    """Cut each cloud into cubes; k is the largest number of points of a cube, or `slots`.

    Cubes ascend by cloud, x, y, z. (Shifted by half a window: Liu et al., Swin Transformer, 2021;
    in three dimensions: Lai et al., Stratified Transformer, 2022, and Yang et al., Swin3D, 2023.)
    Cost: memory of windows times k, whatever the points: give `slots` where one cube may be much
    fuller than the others. Needs host syncs.

    Args:
        coord: voxel numbers, or metres.
        offsets: the limits of the clouds.
        window: edge of a cube, in the unit of coord, above 0; no whole number of voxels is needed.
        shift: how far before the minimum of a cloud its first cubes begin, in the unit of coord,
            modulo the window.
        order: the points cloud by cloud, along a curve; the slots of a window follow it. By default
            the rows as they come.
        slots: budget of slots a window: a cube of more points is split along the order into as few
            windows of equal size, give or take one, as fit. None holds every cube whole.

    Raises:
        ValueError: if window is not one finite number above 0, shift not one finite number, slots
            below 1, if an axis has more than 2**21 windows or a coordinate is not finite, or if a
            shape or offsets do not fit.
    """
    if not 0 < window < math.inf:
        raise ValueError(f"window must be a finite edge above 0, found {window}")
    if not math.isfinite(shift):
        raise ValueError(f"shift must be one finite number, found {shift}")
    if slots is not None:
        slots = check_whole("slots", slots, 1)
    if coord.ndim != 2 or coord.shape[1] != 3:
        raise ValueError(f"coord must be (n, 3), found {tuple(coord.shape)}")
    n, b = len(coord), len(offsets) - 1
    offsets = check_offsets(offsets, n)
    batch = batch_from_offsets(offsets, n)
    if order is None:
        order = torch.arange(n, device=coord.device)
    order = order.long()
    key, bits = _cubes(coord, offsets, batch, window, shift % window)
    rows = argsort_pairs(batch, max(b - 1, 0).bit_length(), key.index_select(0, order), bits)
    points, cloud = order.index_select(0, rows), batch.index_select(0, rows)
    head = changes(key.index_select(0, points)) | changes(cloud)
    start = places(head)
    count = torch.cat([start, start.new_full((1,), n)]).diff()
    cube = torch.cumsum(head, 0) - 1
    within = torch.arange(n, device=coord.device) - start.index_select(0, cube)
    if slots is None:
        return _fill(points, cube, within)
    parts = -(-count // slots)
    part = within * parts.index_select(0, cube) // count.index_select(0, cube)
    row = (torch.cumsum(parts, 0) - parts).index_select(0, cube) + part
    # Part i begins at the first place whose share i * count / parts it reaches.
    begin = -(-part * count.index_select(0, cube) // parts.index_select(0, cube))
    return _fill(points, row, within - begin)


def global_windows(offsets: Int[Tensor, "b+1"], n: int) -> Windows:
    """Make all points of a cloud one window: the attention of Dosovitskiy et al., ViT, 2021.

    Args:
        offsets: the limits of the clouds.
        n: the number of points of all clouds; the largest cloud decides k.
    """
    return _lay_out(offsets, n, max(n, 1))


def _lay_out(
    offsets: Tensor, n: int, window_size: int, shift: int = 0, dilation: int = 1
) -> Windows:
    """Make the windows of points that are in order already."""
    offsets = check_offsets(offsets, n)
    window_size = check_whole("window_size", window_size, 1)
    dilation = check_whole("dilation", dilation, 1)
    if shift % 1 != 0:
        raise ValueError(f"shift must be a whole number of points, found {shift}")
    shift, device = int(shift), offsets.device
    if n == 0:
        return _no_windows(offsets)
    counts = offsets.diff()
    size = torch.div(counts.amax() + dilation - 1, dilation, rounding_mode="floor") * dilation
    size = size.clamp(max=window_size * dilation)
    # How far the first window of a cloud reaches back before its start.
    lead = torch.where(counts > size, -shift % (window_size * dilation), 0)
    per_cloud = torch.div(counts + lead + size - 1, size, rounding_mode="floor")
    per_cloud = torch.where(counts > 0, per_cloud, 0)
    short = ((counts > 0) & (counts < size)).any()
    # A host sync: the shape of the table.
    k, w, masked = torch.stack([size, per_cloud.sum(), short.to(size.dtype)]).tolist()

    first_window = offsets_from_counts(per_cloud)
    cloud = batch_from_offsets(first_window, w)
    ordinal = torch.arange(w, device=device) - first_window.index_select(0, cloud)
    latest = (counts - k).clamp(min=0)  # where a full last window starts in its cloud
    own = (ordinal * k - lead.index_select(0, cloud)).clamp(min=0)  # its first place of its own
    first = offsets.index_select(0, cloud)
    start = first + torch.minimum(own, latest.index_select(0, cloud))
    index = start[:, None] + torch.arange(k, device=device)  # (w, k)
    valid = None
    if masked:
        end = (first + counts.index_select(0, cloud))[:, None]
        valid = index < end
        index = torch.minimum(index, end - 1)
    # A point's slot is its place, moved as all those of its window are.
    owned = torch.cat([first + own, offsets[-1:]]).diff()
    moved = torch.arange(w, device=device) * k - start
    slot = torch.arange(n, device=device)
    slot += torch.repeat_interleave(moved, owned, output_size=n)
    windows = Windows(index=index, valid=valid, slot=slot)
    return windows if dilation == 1 else _dilated(windows, dilation)


def _dilated(runs: Windows, dilation: int) -> Windows:
    """Deal the slots of each run out to `dilation` windows, in turns."""
    size = runs.window_size
    k = size // dilation
    within = runs.slot % size
    row = torch.div(runs.slot, size, rounding_mode="floor") * dilation + within % dilation
    within = torch.div(within, dilation, rounding_mode="floor")

    def dealt(slots: Tensor) -> Tensor:
        return slots.view(-1, k, dilation).transpose(1, 2).reshape(-1, k)

    index, valid = dealt(runs.index), None
    if runs.valid is not None:
        valid = dealt(runs.valid)
        # A cloud of fewer points than `dilation` leaves windows empty; to drop them syncs again.
        used = valid[:, 0]
        row = (torch.cumsum(used, 0) - 1).index_select(0, row)
        index, valid = index[used], valid[used]
        valid = None if bool(valid.all()) else valid
    return Windows(index=index, valid=valid, slot=row * k + within)


def _cubes(
    coord: Tensor, offsets: Tensor, batch: Tensor, window: float, shift: float
) -> tuple[Tensor, int]:
    """Number the cube of each point within its cloud, and tell how many bits that takes."""
    if len(coord) == 0:
        return batch, 0
    wide = coord.double() if coord.is_floating_point() else coord.long()
    cell = ((from_corner(wide, offsets, batch).double() + shift) / window).floor()
    # A host sync: how many windows an axis has.
    largest = cell.amax(0).tolist()
    if not all(most < 1 << MAX_DEPTH for most in largest):
        raise ValueError(
            f"coord must be finite and reach over at most 2**{MAX_DEPTH} windows an axis; found "
            f"{max(largest):g} windows of {window:g}"
        )
    x_bits, y_bits, z_bits = (int(most).bit_length() for most in largest)
    x, y, z = cell.long().unbind(1)
    return (x << (y_bits + z_bits)) | (y << z_bits) | z, x_bits + y_bits + z_bits


def _fill(points: Tensor, row: Tensor, within: Tensor) -> Windows:
    """Put each point into its slot of its row; no row is empty."""
    n = len(points)
    if n == 0:
        return _no_windows(points)
    # A host sync: the shape of the table.
    w, k = (torch.stack([row.amax(), within.amax()]) + 1).tolist()
    own = row * k + within
    index = points.new_full((w * k,), -1).scatter_(0, own, points).view(w, k)
    slot = torch.empty_like(points).scatter_(0, points, own)
    if w * k == n:
        return Windows(index=index, valid=None, slot=slot)
    valid = index >= 0
    return Windows(
        index=torch.where(valid, index, index.amax(1, keepdim=True)), valid=valid, slot=slot
    )


def _no_windows(like: Tensor) -> Windows:
    none = like.new_zeros(0)
    return Windows(index=none.reshape(0, 1), valid=None, slot=none)


def _gather(values: Tensor, index: Tensor) -> Tensor:
    return values.index_select(0, index.reshape(-1)).reshape(index.shape)
