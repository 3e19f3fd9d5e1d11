"""Windows: points in slots, k a window, inside which attention looks around.

n points, b clouds, w windows, k slots a window.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from pctx.geometry.packed import batch_from_offsets, offsets_from_counts


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
    slots; an empty cloud makes none. (Wu et al., Point Transformer V3, 2024, section 4.)

    Args:
        order: the points cloud by cloud, along the curve.
        offsets: the limits of the clouds.
        window_size: the largest number of slots a window, at least 1.

    Raises:
        ValueError: if window_size is below 1.
    """
    if window_size < 1:
        raise ValueError(f"window_size must be at least 1, found {window_size}")
    n, device = len(order), order.device
    if n == 0:
        empty = order.new_zeros(0)
        return Windows(index=empty.reshape(0, 1), valid=None, slot=empty)
    counts = offsets.diff()
    size = counts.amax().clamp(max=window_size)
    per_cloud = torch.div(counts + size - 1, size, rounding_mode="floor")
    short = ((counts > 0) & (counts < size)).any()
    # The one host sync: the shape of the table.
    k, w, masked = torch.stack([size, per_cloud.sum(), short.to(size.dtype)]).tolist()

    first_window = offsets_from_counts(per_cloud)
    cloud = batch_from_offsets(first_window, w)
    ordinal = torch.arange(w, device=device) - first_window[cloud]
    latest = (counts - k).clamp(min=0)  # where a full last window starts in its cloud
    start = offsets[cloud] + torch.minimum(ordinal * k, latest[cloud])
    place = start[:, None] + torch.arange(k, device=device)  # (w, k) place along the curve
    valid = None
    if masked:
        end = offsets[cloud + 1][:, None]
        valid = place < end
        place = torch.minimum(place, end - 1)

    batch = batch_from_offsets(offsets, n)
    place_in_cloud = torch.arange(n, device=device) - offsets[batch]
    ordinal = torch.div(place_in_cloud, k, rounding_mode="floor")
    inside = place_in_cloud - torch.minimum(ordinal * k, latest[batch])
    slot = torch.empty_like(order)
    slot[order] = (first_window[batch] + ordinal) * k + inside
    return Windows(index=order[place], valid=valid, slot=slot)
