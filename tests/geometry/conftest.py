"""Packed random voxels, for the laws of this floor."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import settings
from torch import Tensor

from pctx.geometry.packed import offsets_from_counts

# The first example pays for the tables, and the machine may be busy.
settings.register_profile("patient", deadline=None, max_examples=40)
settings.load_profile("patient")


@pytest.fixture(scope="session")
def packed() -> Callable[..., tuple[Tensor, Tensor]]:
    """Return a maker of (grid_coord, offsets): distinct voxels of a cube, clouds of `counts`."""

    def pack(counts: Sequence[int], seed: int, extent: int = 8) -> tuple[Tensor, Tensor]:
        rng = np.random.default_rng(seed)
        cells = [rng.choice(extent**3, n, replace=False) for n in counts]
        flat = np.concatenate([np.zeros(0, np.int64), *cells])
        grid_coord = np.stack([flat // extent**2, flat // extent % extent, flat % extent], axis=1)
        offsets = offsets_from_counts(torch.tensor(list(counts), dtype=torch.int64))
        return torch.from_numpy(grid_coord), offsets

    return pack
