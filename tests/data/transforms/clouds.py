"""Clouds with every field, and every transform there is."""

import dataclasses
import importlib
import pkgutil

import numpy as np

import pctx.data.transforms as package
from pctx.data.transforms import Mix
from pctx.geometry.points import PointCloud

ARGUMENTS = {
    "PolarMix": {"classes": [3]},
    "InstancePaste": {"classes": [3], "ground": [1], "min_points": 3},
    "CropNearest": {"max_points": 50},
    "CropSphere": {"radius": 2.0},
    "CropBox": {"low": [-2, -2, -2], "high": [2, 2, 0.5]},
    "ClipBox": {"low": [-2, -2, -2], "high": [2, 2, 0.5]},
    "RangeDropout": {"low": 1.0, "high": 5.0},
    "Resample": {"num_points": 60},
    "ChannelDropout": {"fields": {"color": 7.0, "ring": 2.0}},
}
"""What a transform needs to do anything, where its defaults do nothing to a small cloud."""


def every_class():
    """Find the dataclasses of the package: what `apply` can be given."""
    found = {}
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if dataclasses.is_dataclass(value) and value.__module__ == module.name:
                found[name] = value
    return {name: cls for name, cls in found.items() if not name.startswith("_")}


def every_step():
    """Make each of them, such that it always acts."""
    steps = {}
    for name, cls in every_class().items():
        arguments = ARGUMENTS.get(name, {})
        if "probability" in {f.name for f in dataclasses.fields(cls)}:
            arguments = arguments | {"probability": 1.0}
        steps[name] = cls(**arguments)
    return steps


def run(step, cloud, seed=3, other=None):
    rng = np.random.default_rng(seed)
    if isinstance(step, Mix):
        return step(cloud, full_cloud(150, seed=9) if other is None else other, rng)
    return step(cloud, rng)


def full_cloud(n=400, seed=1):
    """Make a cloud of some 10 m that has every field: flat ground 1, a wood 2, small objects 3."""
    rng = np.random.default_rng(seed)
    label = np.array([1, 1, 1, 2, 3])[np.arange(n) % 5]
    instance = np.where(label == 3, 1 + np.arange(n) // 50, 0)
    coord = rng.normal(size=(n, 3)) * 3
    coord[label == 1, 2] = -1
    coord[label == 2, 0] += 9
    middles = rng.normal(size=(n, 3)) * [3, 3, 0]
    coord[label == 3] = (middles[instance] + rng.uniform(-0.3, 0.3, (n, 3)))[label == 3]
    normal = rng.normal(size=(n, 3))
    return PointCloud(
        coord=coord.astype(np.float32),
        origin=np.array([651_000.125, 5_400_000.5, 120.0]),
        color=rng.integers(0, 256, (n, 3)).astype(np.uint8),
        intensity=rng.random(n, dtype=np.float32),
        normal=(normal / np.linalg.norm(normal, axis=1, keepdims=True)).astype(np.float32),
        label=label,
        instance=instance,
        extra={"ring": rng.integers(0, 64, n).astype(np.int16), "row": np.arange(n)},
    )


def columns(cloud):
    """Give every field that is there, by name."""
    own = {f.name: getattr(cloud, f.name) for f in dataclasses.fields(cloud)}
    extra = own.pop("extra")
    return {k: v for k, v in own.items() if v is not None} | dict(extra)
