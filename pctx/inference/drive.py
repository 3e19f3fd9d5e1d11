"""Voxels of a drive between two facades: any number, at one density, to measure with.

n voxels, m points.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from pctx.data.simulator.sensor import SENSORS, fire
from pctx.geometry.grid import voxelize

GRID_SIZE = 0.05
"""Metres; the edge of a voxel."""

_SENSOR = "hdl32"
_SEED = 0
_STEP = 15.0
"""Metres from one turn of the sensor to the next: near voxels as sparse as those of real scans."""

_WALLS = (9.0, -7.0)
"""Metres to the facades left and right."""

_ROOF = 10.0
"""Metres above the sensor where the facades end."""

_REACH = 60.0
"""Metres that the sensor sees."""

_VOXELS_A_TURN = 25_000
"""Fewer than a turn adds."""


def drive_voxels(n: int) -> Int[Tensor, "n 3"]:
    """Return the middle n voxels of a simulated drive, sorted by x, then y, then z.

    Three to four voxels lie under a kernel of 3 x 3 x 3 taps, the centre included, whatever n. The
    same n gives the same voxels.
    """
    rng = np.random.default_rng(_SEED)
    turns = [_turn(rng, _STEP * i) for i in range(n // _VOXELS_A_TURN + 2)]
    return slab(torch.from_numpy(voxelize(np.concatenate(turns), GRID_SIZE).grid_coord), n)


def slab(grid_coord: Int[Tensor, "m 3"], n: int) -> Int[Tensor, "n 3"]:
    """Cut the middle n of voxels that are sorted by x; there are that many."""
    assert n <= len(grid_coord)
    return grid_coord[(len(grid_coord) - n) // 2 :][:n]


def _turn(rng: np.random.Generator, ahead: float) -> np.ndarray:
    """Return what one turn of the sensor meets, `ahead` metres on: (m, 3) float64."""
    sensor = SENSORS[_SENSOR]
    direction = fire(sensor, rng).direction.astype(np.float64)
    aside, up = direction[:, 1], direction[:, 2]
    with np.errstate(divide="ignore"):
        ground = np.where(up < 0, -sensor.height / up, np.inf)
        facade = np.where(aside > 0, *_WALLS) / aside
    depth = np.minimum(ground, facade)
    met = (depth < _REACH) & (depth * up < _ROOF)
    noise = rng.normal(0, sensor.range_noise, len(depth))
    return (direction * (depth + noise)[:, None])[met] + np.array([ahead, 0.0, 0.0])
