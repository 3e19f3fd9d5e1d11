"""Random packed clouds."""

import itertools

import torch

from pctx.geometry.points import PointBatch
from tests.nn.clouds import random_voxels

VOXEL = 0.125
"""Metres; a power of two, so that positions are exact wherever a cloud lies."""


def random_batch(counts, channels=4, seed=0, dtype=torch.float32):
    """Voxelised clouds with random channels and labels out of 0, 1, 2."""
    grid_coord, offsets = random_voxels(counts, seed)
    generator = torch.Generator().manual_seed(seed)
    n = len(grid_coord)
    return PointBatch(
        coord=(grid_coord + 0.5) * VOXEL,
        grid_coord=grid_coord,
        feat=torch.randn(n, channels, generator=generator).to(dtype),
        offsets=offsets,
        label=torch.randint(0, 3, (n,), generator=generator),
    )


def single_clouds(batch):
    """Each cloud of a batch by itself."""
    limits = batch.offsets.tolist()
    return [
        PointBatch(
            coord=batch.coord[start:stop],
            grid_coord=batch.grid_coord[start:stop],
            feat=batch.feat[start:stop],
            offsets=torch.tensor([0, stop - start]),
            label=batch.label[start:stop],
        )
        for start, stop in itertools.pairwise(limits)
    ]
