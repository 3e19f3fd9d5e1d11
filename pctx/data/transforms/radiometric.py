"""Augmentations that change what a sensor measures beside position."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pctx.geometry.points import PointCloud


@dataclass(frozen=True, kw_only=True)
class IntensityShift:
    """Multiply the intensity by a log-uniform gain, as another sensor would; drop it at times.

    Attributes:
        gain: the gain lies in [1 / gain, gain].
        drop: probability of setting the whole channel to 0, so that a model also works without.
    """

    gain: float = 1.5
    drop: float = 0.0

    def __call__(self, cloud: PointCloud, rng: np.random.Generator) -> PointCloud:
        """Change the intensity; a cloud without it comes back as it is."""
        dropped = rng.random() < self.drop
        factor = np.exp(rng.uniform(-1, 1) * np.log(self.gain))
        if cloud.intensity is None:
            return cloud
        factor = np.float32(0 if dropped else factor)
        return replace(cloud, intensity=cloud.intensity * factor)
