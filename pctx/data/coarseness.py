"""Whether a grid size leaves anything of a cloud.

n points.
"""

from __future__ import annotations

import numpy as np

from pctx.geometry.grid import voxelize

FEW_VOXELS, FULL_VOXEL = 1000, 50
"""A cloud of fewer voxels, with more points in each in the mean, has lost its shape."""
_MOST_VOXELIZED = 100_000
"""Points from which voxels are counted."""


def too_coarse(coord: np.ndarray, grid_size: float) -> str | None:
    """Say so where a grid leaves next to nothing of finite points (n, 3); None where all is well.

    So it is where a cloud is not in metres, or far smaller than those a model was made for.
    """
    size = np.ptp(coord, axis=0).max(initial=0) if len(coord) else 0.0
    if len(coord) <= FULL_VOXEL or size > FEW_VOXELS * grid_size:
        return None
    voxels = len(voxelize(coord[:: max(1, len(coord) // _MOST_VOXELIZED)], grid_size))
    if voxels >= FEW_VOXELS or len(coord) <= FULL_VOXEL * voxels:
        return None
    return (
        f"its {len(coord):,} points lie in {voxels:,} voxels of {grid_size:g} m, "
        f"{len(coord) / voxels:,.0f} in each; the grid is too coarse for it, or it is not in metres"
    )
