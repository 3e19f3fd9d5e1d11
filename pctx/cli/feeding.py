"""What train, evaluate and prepare share: the dataset and the pipeline of a configuration."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pctx.cli.config import UsageError

if TYPE_CHECKING:
    from pctx.data.cache import CachedDataset
    from pctx.data.dataset import ScanDataset
    from pctx.data.pipeline import Pipeline

log = logging.getLogger(__name__)

_PLACES = ("root", "card", "splits", "cache")
"""Keys of a dataset that say where things lie, not what is read of them."""


_LEAST = {
    "num_workers": 0,
    "batch_size": 1,
    "batch_points": 1,
    "max_points": 1,
    "samples_per_epoch": 1,
}
"""Whole numbers of `data`, and the smallest of each; null where there need be none."""


def check_numbers(data: Any) -> None:
    """Find out whether the numbers of `data` are some.

    Raises:
        UsageError: one is not, or is out of its range.
    """
    size = data.grid_size
    if not isinstance(size, int | float) or not 0 < size < math.inf:
        raise UsageError(f"data.grid_size must be a number above 0 (metres), found {size}")
    for name, least in _LEAST.items():
        value = data.get(name)
        if value is not None and not (isinstance(value, int) and value >= least):
            raise UsageError(f"data.{name} must be a whole number from {least} on, found {value}")
    if data.get("batch_size", 1) is None and data.get("batch_points") is None:
        raise UsageError("data.batch_size or data.batch_points must be a number, both are null")


def data_of(file: Path) -> Any:
    """Read what the configuration of a run says of its data.

    Raises:
        ValueError: the file is no such configuration.
    """
    import yaml
    from omegaconf import OmegaConf

    try:
        found: Any = OmegaConf.load(file)
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{file}: not the configuration of a run ({reason})") from error
    data = found.get("data") if OmegaConf.is_dict(found) else None
    if data is None or not OmegaConf.is_dict(data) or "dataset" not in data:
        raise ValueError(f"{file}: not the configuration of a run (it has no data.dataset)")
    return data


def make_dataset(data: Any) -> ScanDataset:
    """Make the dataset of a configuration; it reads from `data.cache` what lies there.

    Raises:
        ValueError: there is no such cache.
    """
    from hydra.utils import instantiate

    dataset: ScanDataset = instantiate(data.dataset)
    if data.get("cache") is None:
        return dataset
    if not isinstance(data.cache, str):
        raise ValueError(f"data.cache must be a folder, or null, found {data.cache}")
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
    check_numbers(data)
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
