"""Sparse convolution over a table of taps: the twin of `tap_convolution`, for exported graphs.

Every shape hangs on numbers of rows alone, and nothing is added by index. It multiplies the taps
that meet nobody too: in driving scans 4 times the products.

n rows read, m rows written, t taps, i input channels, o output channels.
"""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from pctx.geometry.tap_table import TapTable

GATHERED = 512
"""Numbers a row that are gathered at once: few enough for memory, enough for fast products."""


def convolve_by_table(
    feat: Float[Tensor, "n i"], weight: Float[Tensor, "o k k k i"], table: TapTable
) -> Float[Tensor, "m o"]:
    """Sum weight[tap] @ feat[source] over the taps of each target.

    Args:
        feat: a row for each source.
        weight: i is 1 in a depthwise convolution, whose o are the channels of `feat`.
        table: of k taps an axis.
    """
    taps = weight.flatten(1, 3)  # (o, t, i)
    channels = feat.shape[1]
    depthwise = weight.shape[-1] != channels
    rows = F.pad(feat, (0, 0, 1, 0))  # row 0 is that of nobody
    step = max(1, GATHERED // channels)
    out: Tensor | None = None
    for some, beside in zip(table.source.split(step, 1), taps.split(step, 1), strict=True):
        m, t = some.shape
        met = rows.index_select(0, some.reshape(-1))
        if depthwise:
            part = (met.view(m, t, channels) * beside.squeeze(2).t()).sum(1)
        else:
            part = met.view(m, t * channels) @ beside.flatten(1).t()
        out = part if out is None else out + part
    assert out is not None
    return out
