"""Augmentations: each a frozen dataclass, called with a cloud and a generator."""

from pctx.data.transforms.color import (
    ColorContrast,
    ColorDistortion,
    ColorDrop,
    ColorJitter,
    ColorShift,
)
from pctx.data.transforms.geometric import (
    Center,
    ClipBox,
    Flip,
    Rotate,
    RotateBy,
    Scale,
    Stretch,
    Tilt,
    Translate,
)
from pctx.data.transforms.lidar import BeamDropout, BeamThinning, RangeDropout
from pctx.data.transforms.mixing import CutMix, LaserMix, Mix3D, PolarMix
from pctx.data.transforms.noise import Elastic, Jitter
from pctx.data.transforms.paste import InstancePaste
from pctx.data.transforms.protocol import Mix, Transform, apply
from pctx.data.transforms.radiometric import ChannelDropout, IntensityShift
from pctx.data.transforms.sampling import (
    CropBox,
    CropNearest,
    CropSphere,
    Dropout,
    Resample,
    Shuffle,
)
from pctx.data.transforms.views import published_views

__all__ = [
    "BeamDropout",
    "BeamThinning",
    "Center",
    "ChannelDropout",
    "ClipBox",
    "ColorContrast",
    "ColorDistortion",
    "ColorDrop",
    "ColorJitter",
    "ColorShift",
    "CropBox",
    "CropNearest",
    "CropSphere",
    "CutMix",
    "Dropout",
    "Elastic",
    "Flip",
    "InstancePaste",
    "IntensityShift",
    "Jitter",
    "LaserMix",
    "Mix",
    "Mix3D",
    "PolarMix",
    "RangeDropout",
    "Resample",
    "Rotate",
    "RotateBy",
    "Scale",
    "Shuffle",
    "Stretch",
    "Tilt",
    "Transform",
    "Translate",
    "apply",
    "published_views",
]
