"""Random packed voxels."""

import numpy as np
import torch

from pctx.geometry.packed import offsets_from_counts


def random_voxels(counts, seed=0, extent=None):
    """Distinct voxels of a flat box for each cloud: (grid_coord (n, 3), offsets)."""
    rng = np.random.default_rng(seed)
    cells = []
    for n in counts:
        side = extent or max(4, int(np.ceil((2 * n) ** 0.5)))
        flat = rng.choice(side * side * 4, n, replace=False)
        cells.append(np.stack([flat // (4 * side), flat // 4 % side, flat % 4], axis=1))
    grid_coord = np.concatenate([np.zeros((0, 3), np.int64), *cells]).astype(np.int64)
    return torch.from_numpy(grid_coord), offsets_from_counts(torch.tensor(counts).long())
