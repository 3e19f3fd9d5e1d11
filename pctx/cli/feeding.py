"""What train, evaluate and prepare share: the dataset and the pipeline of a configuration."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pctx.data.cache import CachedDataset
    from pctx.data.dataset import ScanDataset
    from pctx.data.pipeline import Pipeline

log = logging.getLogger(__name__)

_PLACES = ("root", "card", "splits", "cache")
"""Keys of a dataset that say where things lie, not what is read of them."""


def make_dataset(data: Any) -> ScanDataset:
    """Make the dataset of a configuration; it reads from `data.cache` what lies there.

    Raises:
        ValueError: there is no such cache.
    """
    from hydra.utils import instantiate

    dataset: ScanDataset = instantiate(data.dataset)
    if data.get("cache") is None:
        return dataset
    folder = Path(data.cache).expanduser()
    if not folder.is_dir():
        raise ValueError(f"data.cache={folder}: no such folder; `pctx prepare` makes one")
    return cached(dataset, data, folder)


def cached(dataset: ScanDataset, data: Any, folder: Path) -> CachedDataset:
    """Let a dataset read from a cache what lies there."""
    from omegaconf import OmegaConf

    from pctx.data.cache import CachedDataset

    settings = OmegaConf.to_container(data.dataset, resolve=True)
    assert isinstance(settings, Mapping)
    kept = {str(key): value for key, value in settings.items() if key not in _PLACES}
    return CachedDataset(dataset, folder, kept)


def make_pipeline(config: Any) -> Pipeline:
    """Make the pipeline of a training configuration."""
    from hydra.utils import instantiate

    from pctx.data.pipeline import Pipeline

    data = config.data
    return Pipeline(
        dataset=make_dataset(data),
        grid_size=data.grid_size,
        features=instantiate(data.features, _convert_="all"),
        augment=instantiate(config.augment, _convert_="all"),
        max_points=data.max_points,
        voxel_points=data.voxel_points,
        crop_centers=data.crop_centers,
        fill=dict(data.fill or {}),
    )
