"""Augmentations that change what a sensor measures beside position and colour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from pctx.data.transforms.arguments import are_numbers, check_least, check_share
from pctx.geometry.points import PointCloud

_KEPT = ("coord", "origin", "label", "instance")


@dataclass(frozen=True, kw_only=True)
class IntensityShift:
    """Multiply the intensity by a log-uniform gain, as another sensor would; drop it at times.

    Attributes:
        gain: the gain lies in [1 / gain, gain].
        drop: probability of setting the whole channel to 0, so that a model also works without.
    """

    gain: float = 1.5
    drop: float = 0.0

    def __post_init__(self) -> None:
        check_least(self, 1, gain=self.gain)
        check_share(self, drop=self.drop)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Change the intensity; a cloud without it comes back as it is."""
        dropped = rng.random() < self.drop
        factor = np.exp(rng.uniform(-1, 1) * np.log(self.gain))
        if cloud.intensity is None:
            return cloud
        factor = np.float32(0 if dropped else factor)
        return replace(cloud, intensity=cloud.intensity * factor)


@dataclass(frozen=True, kw_only=True)
class ChannelDropout:
    """Set whole fields to a constant at times, so that a model also works on files without them.

    A model trained so labels a file without the field by the same value, `--fill FIELD=VALUE`.

    Attributes:
        fields: the constant by field: color, intensity, normal, or a name of `extra`. Those a
            cloud lacks are passed over.
        probability: of each field, one by one.
    """

    fields: Mapping[str, float] = field(default_factory=lambda: {"color": 0.0, "intensity": 0.0})
    probability: float = 0.2

    def __post_init__(self) -> None:
        check_share(self, probability=self.probability)
        if not isinstance(self.fields, Mapping):
            raise ValueError(
                f"ChannelDropout: fields must be {{field: value}}, found {self.fields!r}"
            )
        for name, value in self.fields.items():
            if name in _KEPT:
                raise ValueError(f"ChannelDropout: fields must be measured, found {name!r}")
            if not are_numbers([value]) or (name == "color" and not 0 <= value <= 255):
                known = "a number in 0..255" if name == "color" else "a finite number"
                raise ValueError(f"ChannelDropout: fields.{name} must be {known}, found {value!r}")

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Replace the fields that are drawn."""
        own = {"color": cloud.color, "intensity": cloud.intensity, "normal": cloud.normal}
        there = {name: column for name, column in own.items() if column is not None}
        extra = dict(cloud.extra)
        for name, value in self.fields.items():
            columns = there if name in own else extra
            if rng.random() < self.probability and name in columns:
                columns[name] = np.full_like(columns[name], value)
        return replace(cloud, extra=extra, **there)
