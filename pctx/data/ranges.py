"""Ranges: how large the values of fields are in training, and which clouds differ from that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pctx.data.dataset import ScanDataset
from pctx.data.features import FeatureSpec
from pctx.geometry.points import PointCloud

SCANS = 16
"""Training scans that are looked at."""
FACTOR = 4.0
"""How many times larger or smaller values are before that is told; sensors differ by less."""

_QUANTILE = 0.95
_FEWEST = 100
"""Values below which a cloud says nothing about its scale."""
_VALUES = 50_000
"""Values of a cloud that are looked at, at most."""
_GEOMETRY = frozenset({"coord", "sensor_coord", "height", "range", "normal", "shape", "returns"})
"""Fields whose units are known, or that are counts."""


def measured_fields(features: FeatureSpec) -> list[str]:
    """Name the fields whose scale is that of the file: colour, intensity and extra columns."""
    return [name for name in features.fields if name not in _GEOMETRY]


def measure_ranges(features: FeatureSpec, dataset: ScanDataset) -> FeatureSpec:
    """Note in a spec, by field, what 95 % of the absolute values in training scans lie below.

    Of at most 16 scans, as far apart as can be; those that lack a field are left out.
    """
    seen: dict[str, list[np.ndarray]] = {name: [] for name in measured_fields(features)}
    if not seen:
        return features
    scans = dataset.scans("train")
    count = min(SCANS, len(scans))
    for cloud in (dataset.read(scans[i * len(scans) // count]) for i in range(count)):
        for name, found in seen.items():
            if len(values := _values(features, cloud, name)):
                found.append(values)
    ranges = {name: _high(np.concatenate(found)) for name, found in seen.items() if found}
    return replace(features, ranges=ranges)


def unlike(features: FeatureSpec, cloud: PointCloud) -> dict[str, str]:
    """Say, by field, where a cloud's values are far larger or smaller than those of training."""
    found = {}
    for name, usual in features.ranges.items():
        values = _values(features, cloud, name)
        if len(values) < _FEWEST:
            continue
        here = _high(values)
        if usual > 0 and not usual / FACTOR <= here <= usual * FACTOR:
            are = "are all 0" if not values.any() else f"reach {here:.4g}"
            found[name] = (
                f"{name}: its values {are}, those of training {usual:.4g} (the 95 % quantile); "
                "where the scale is another one, predictions are poor: bring it to that of training"
            )
    return found


def _values(features: FeatureSpec, cloud: PointCloud, name: str) -> np.ndarray:
    """Give some of the absolute values of a field, one after another; none where it is missing."""
    values = features.read(cloud, name)
    if values is None:
        return np.zeros(0)
    flat = np.abs(values[:: max(1, len(values) // _VALUES)].astype(np.float64).reshape(-1))
    return flat[np.isfinite(flat)]


def _high(values: np.ndarray) -> float:
    return float(np.quantile(values, _QUANTILE))
