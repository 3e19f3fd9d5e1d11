"""pctx: a point-cloud transformer toolkit. Names are loaded when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pctx.checkpoint import load_checkpoint
    from pctx.data.features import FeatureSpec
    from pctx.data.io.formats import read, write
    from pctx.data.labels import LabelSet
    from pctx.data.prediction import Prediction
    from pctx.data.prepare import voxelize
    from pctx.geometry.points import PointBatch, PointCloud, pack
    from pctx.inference.predictor import Predictor
    from pctx.models.classifier import Classifier
    from pctx.models.factory import create_backbone, create_model, list_models
    from pctx.vis.render import render
    from pctx.vis.viewer import show

__version__ = "0.1.0"

__all__ = [
    "Classifier",
    "FeatureSpec",
    "LabelSet",
    "PointBatch",
    "PointCloud",
    "Prediction",
    "Predictor",
    "__version__",
    "create_backbone",
    "create_model",
    "list_models",
    "load_checkpoint",
    "pack",
    "read",
    "render",
    "show",
    "voxelize",
    "write",
]

_HOMES = {
    "pctx.checkpoint": ("load_checkpoint",),
    "pctx.data.features": ("FeatureSpec",),
    "pctx.data.io.formats": ("read", "write"),
    "pctx.data.labels": ("LabelSet",),
    "pctx.data.prediction": ("Prediction",),
    "pctx.data.prepare": ("voxelize",),
    "pctx.geometry.points": ("PointBatch", "PointCloud", "pack"),
    "pctx.inference.predictor": ("Predictor",),
    "pctx.models.classifier": ("Classifier",),
    "pctx.models.factory": ("create_backbone", "create_model", "list_models"),
    "pctx.vis.render": ("render",),
    "pctx.vis.viewer": ("show",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'pctx' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
