"""Grid sampling, augmentation and collation as they are commonly written, to be measured against.

A scan is a mapping of numpy arrays. Steps change it one after another; voxels are found by a hash
of their numbers, an argsort and np.unique, one random point stands for each, and every array is cut
by itself. n points.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from pctx.geometry.points import PointCloud

Arrays = dict[str, np.ndarray]

_BASIS, _PRIME = 14695981039346656037, 1099511628211
"""Of the 64-bit hash of Fowler, Noll and Vo."""


class CommonSet(Dataset[dict[str, Tensor]]):
    """Augmented voxels of scans held in memory, each a mapping of tensors."""

    def __init__(self, clouds: Sequence[PointCloud], grid_size: float) -> None:
        self.scans = [arrays(cloud) for cloud in clouds]
        self.grid_size = grid_size

    def __len__(self) -> int:
        return len(self.scans)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        rng = np.random.default_rng()
        scan = {name: array.copy() for name, array in self.scans[index].items()}
        return collect(sample_grid(augment(scan, rng), self.grid_size, rng))


def arrays(cloud: PointCloud) -> Arrays:
    """Take apart a scan with intensity and labels."""
    assert cloud.intensity is not None and cloud.label is not None
    return {"coord": cloud.coord, "strength": cloud.intensity[:, None], "segment": cloud.label}


def augment(scan: Arrays, rng: np.random.Generator) -> Arrays:
    """Turn about the vertical axis, scale, flip and jitter."""
    angle = rng.uniform(-np.pi, np.pi)
    cosine, sine = np.cos(angle), np.sin(angle)
    turn = np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]])
    coord = np.dot(scan["coord"], turn.T)
    coord *= rng.uniform(0.9, 1.1)
    for axis in (0, 1):
        if rng.random() < 0.5:
            coord[:, axis] = -coord[:, axis]
    noise = np.clip(0.005 * rng.standard_normal(coord.shape), -0.02, 0.02)
    return scan | {"coord": coord + noise}


def sample_grid(scan: Arrays, grid_size: float, rng: np.random.Generator) -> Arrays:
    """Keep a random point of each voxel."""
    grid_coord = np.floor(scan["coord"] / grid_size).astype(np.int64)
    grid_coord -= grid_coord.min(axis=0)
    key = hash_rows(grid_coord)
    order = np.argsort(key)
    _, _, count = np.unique(key[order], return_inverse=True, return_counts=True)
    start = np.cumsum(np.insert(count, 0, 0))[:-1]
    picked = order[start + rng.integers(0, count.max(), count.size) % count]
    kept = {name: array[picked] for name, array in scan.items()}
    return kept | {"grid_coord": grid_coord[picked]}


def hash_rows(rows: np.ndarray) -> np.ndarray:
    """Hash (n, 3) whole numbers: (n,) uint64."""
    key = np.full(len(rows), _BASIS, dtype=np.uint64)
    for axis in range(rows.shape[1]):
        key *= np.uint64(_PRIME)
        key = np.bitwise_xor(key, rows[:, axis].astype(np.uint64))
    return key


def collect(scan: Arrays) -> dict[str, Tensor]:
    """Turn arrays into tensors, and put together what a model reads."""
    tensors = {name: torch.from_numpy(array) for name, array in scan.items()}
    coord, strength = tensors["coord"].float(), tensors["strength"].float()
    return tensors | {
        "coord": coord,
        "strength": strength,
        "feat": torch.cat([coord, strength], dim=1),
        "offset": torch.tensor([len(coord)]),
    }


def collate(scans: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Put the tensors of scans one after another, name by name."""
    batch = {name: torch.cat([scan[name] for scan in scans]) for name in scans[0]}
    return batch | {"offset": batch["offset"].cumsum(0)}
