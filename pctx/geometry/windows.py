"""Windows: points in slots, k a window, inside which attention looks around.

n points, b clouds, w windows, k slots a window.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from pctx.geometry.packed import batch_from_offsets, offsets_from_counts
from pctx.geometry.serialization import Serialization


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
    order: Int[Tensor, "n"], offsets: Int[Tensor, "b+1"], window_size: int
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

    Raises:
        ValueError: if window_size is below 1.
    """
    layout = _lay_out(offsets, len(order), window_size)
    slot = torch.empty_like(order)
    slot[order] = layout.slot
    return replace(layout, index=_gather(order, layout.index), slot=slot)


def curve_windows(serialization: Serialization, window_size: int) -> tuple[Windows, ...]:
    """Cut each cloud into windows along each curve; see `serial_windows`."""
    layout = _lay_out(serialization.offsets, serialization.order.shape[1], window_size)
    return tuple(
        replace(layout, index=_gather(order, layout.index), slot=_gather(layout.slot, inverse))
        for order, inverse in zip(serialization.order, serialization.inverse, strict=True)
    )


def _lay_out(offsets: Tensor, n: int, window_size: int) -> Windows:
    """Make the windows of points that are in order already."""
    if window_size < 1:
        raise ValueError(f"window_size must be at least 1, found {window_size}")
    device = offsets.device
    if n == 0:
        none = offsets.new_zeros(0)
        return Windows(index=none.reshape(0, 1), valid=None, slot=none)
    counts = offsets.diff()
    size = counts.amax().clamp(max=window_size)
    per_cloud = torch.div(counts + size - 1, size, rounding_mode="floor")
    short = ((counts > 0) & (counts < size)).any()
    # The one host sync: the shape of the table.
    k, w, masked = torch.stack([size, per_cloud.sum(), short.to(size.dtype)]).tolist()

    first_window = offsets_from_counts(per_cloud)
    latest = (counts - k).clamp(min=0)  # where a full last window starts in its cloud
    cloud = batch_from_offsets(first_window, w)
    ordinal = torch.arange(w, device=device) - first_window[cloud]
    start = offsets[cloud] + torch.minimum(ordinal * k, latest[cloud])
    index = start[:, None] + torch.arange(k, device=device)  # (w, k)
    valid = None
    if masked:
        end = offsets[cloud + 1][:, None]
        valid = index < end
        index = torch.minimum(index, end - 1)

    # A point's own window is the one its place in the cloud falls into before any borrowing.
    batch = batch_from_offsets(offsets, n)
    place = torch.arange(n, device=device) - offsets[batch]
    own = first_window[batch] + torch.div(place, k, rounding_mode="floor")
    slot = own * k + torch.arange(n, device=device) - start[own]
    return Windows(index=index, valid=valid, slot=slot)


def _gather(values: Tensor, index: Tensor) -> Tensor:
    return values.index_select(0, index.reshape(-1)).reshape(index.shape)
