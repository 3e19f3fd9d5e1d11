"""Augmentations: each a frozen dataclass, called with a cloud and a generator."""

from pctx.data.transforms.geometric import Flip, Jitter, Rotate, Scale, Tilt
from pctx.data.transforms.protocol import Transform, apply
from pctx.data.transforms.radiometric import IntensityShift

__all__ = ["Flip", "IntensityShift", "Jitter", "Rotate", "Scale", "Tilt", "Transform", "apply"]
