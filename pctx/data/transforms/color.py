"""Augmentations of colour. A cloud without colour comes back as it is.

Colours are computed in float32 and rounded to whole numbers in 0..255 at the end of each step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pctx.data.transforms.arguments import check_least, check_share
from pctx.geometry.points import PointCloud

WHITE = 255


@dataclass(frozen=True, kw_only=True)
class ColorContrast:
    """Blend with the colours stretched to 0..255, channel by channel.

    Attributes:
        probability: of stretching at all.
        blend: share of the stretched colours; None draws it uniformly from [0, 1].
    """

    probability: float = 0.2
    blend: float | None = None

    def __post_init__(self) -> None:
        check_share(self, probability=self.probability)
        if self.blend is not None:
            check_share(self, blend=self.blend)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Stretch the colours."""
        if rng.random() >= self.probability or cloud.color is None:
            return cloud
        color = stretched(_floats(cloud.color), rng.random() if self.blend is None else self.blend)
        return _colored(cloud, color)


@dataclass(frozen=True, kw_only=True)
class ColorShift:
    """Add one uniform value to each channel, up to ± `ratio` of the full range."""

    probability: float = 0.95
    ratio: float = 0.05

    def __post_init__(self) -> None:
        check_share(self, probability=self.probability, ratio=self.ratio)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Shift the channels."""
        if rng.random() >= self.probability or cloud.color is None:
            return cloud
        return _colored(cloud, shifted(_floats(cloud.color), self.ratio, rng))


@dataclass(frozen=True, kw_only=True)
class ColorJitter:
    """Add normal noise to every point and channel, of `sigma` of the full range."""

    probability: float = 0.95
    sigma: float = 0.05

    def __post_init__(self) -> None:
        check_share(self, probability=self.probability)
        check_least(self, sigma=self.sigma)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Change every colour by its own noise."""
        if rng.random() >= self.probability or cloud.color is None:
            return cloud
        return _colored(cloud, noisy(_floats(cloud.color), self.sigma, rng))


@dataclass(frozen=True, kw_only=True)
class ColorDrop:
    """Multiply all colours by `factor`, 0 for black, with probability `probability`."""

    probability: float = 0.2
    factor: float = 0.0

    def __post_init__(self) -> None:
        check_share(self, probability=self.probability)
        check_least(self, factor=self.factor)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Darken the colours."""
        if rng.random() >= self.probability or cloud.color is None:
            return cloud
        return _colored(cloud, _floats(cloud.color) * np.float32(self.factor))


@dataclass(frozen=True, kw_only=True)
class ColorDistortion:
    """Do what OctFormer does to colours: contrast, then shift and noise, each at 0.95.

    Attributes:
        ratio: of the shift, as in `ColorShift`.
        sigma: of the noise, as in `ColorJitter`.
    """

    ratio: float = 0.1
    sigma: float = 0.05

    def __post_init__(self) -> None:
        check_share(self, ratio=self.ratio)
        check_least(self, sigma=self.sigma)

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Change the colours."""
        if cloud.color is None:
            return cloud
        color = stretched(_floats(cloud.color), rng.random())
        if rng.random() < 0.95:
            color = shifted(color, self.ratio, rng)
        if rng.random() < 0.95:
            color = noisy(color, self.sigma, rng)
        return _colored(cloud, color)


def stretched(color: np.ndarray, blend: float) -> np.ndarray:
    """Blend (n, 3) float32 with itself stretched to 0..255; an even channel stays as it is."""
    columns = []
    for channel in color.T:
        low, high = (channel.min(), channel.max()) if len(channel) else (0, 0)
        scale = WHITE / (high - low) if high > low else 1.0
        low = low if high > low else 0.0
        gain, offset = 1 - blend + blend * scale, blend * low * scale
        columns.append(channel * np.float32(gain) - np.float32(offset))
    return np.stack(columns, axis=1)


def shifted(color: np.ndarray, ratio: float, rng: np.random.Generator) -> np.ndarray:
    """Add a uniform value in ± 255 `ratio` to each channel of (n, 3) float32, cut at 0 and 255."""
    return _cut(color + rng.uniform(-WHITE * ratio, WHITE * ratio, size=3).astype(np.float32))


def noisy(color: np.ndarray, sigma: float, rng: np.random.Generator) -> np.ndarray:
    """Add normal noise of 255 `sigma` to each value of (n, 3) float32, cut at 0 and 255."""
    noise = rng.standard_normal(color.shape, dtype=np.float32)
    noise *= np.float32(WHITE * sigma)
    noise += color
    return _cut(noise)


def _floats(color: np.ndarray) -> np.ndarray:
    return color.astype(np.float32)


def _cut(color: np.ndarray) -> np.ndarray:
    return np.minimum(np.maximum(color, np.float32(0)), np.float32(WHITE))


def _colored(cloud: PointCloud, color: np.ndarray) -> PointCloud:
    return replace(cloud, color=np.rint(_cut(color)).astype(np.uint8))
