"""The models by name: one row a model."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from pctx.models.backbone import Backbone
from pctx.models.custom import CustomTransformer
from pctx.models.litept import LitePT
from pctx.models.octformer import OctFormer
from pctx.models.point_transformer_v1 import PointTransformerV1
from pctx.models.point_transformer_v2 import PointTransformerV2
from pctx.models.point_transformer_v3 import PointTransformerV3
from pctx.models.point_vit import PointViT
from pctx.models.segmentor import Segmentor
from pctx.models.swin3d import Swin3D


@dataclass(frozen=True, kw_only=True)
class Model:
    """A row: which backbone, and the arguments that differ from its defaults."""

    backbone: type[Backbone]
    arguments: Mapping[str, Any] = field(default_factory=dict)


_TINY_V1: Mapping[str, Any] = MappingProxyType(
    {
        "channels": (32, 64, 128, 192),
        "depths": (0, 1, 1, 1),
        "decoder_depths": (0, 0, 1, 0),
        "num_neighbors": 8,
        "strides": (4, 4, 4),
    }
)

_TINY_V2: Mapping[str, Any] = MappingProxyType(
    {
        "channels": (48, 64, 128, 192),
        "depths": (0, 1, 1, 1),
        "groups": (6, 8, 16, 24),
        "num_neighbors": 8,
        "cell_sizes": (3.0, 7.5, 18.75),
        "decoder_channels": (48, 64, 96),
        "decoder_depths": (0, 1, 1),
        "decoder_groups": (6, 8, 12),
        "decoder_num_neighbors": 8,
        "unpooling": "interpolation",
        "drop_path": 0.0,
    }
)

_TINY_V3: Mapping[str, Any] = MappingProxyType(
    {
        "shuffle_curves": False,
        "channels": (32, 48, 96, 128),
        "depths": (1, 1, 2, 1),
        "num_heads": (2, 3, 6, 8),
        "strides": (2, 2, 2),
        "decoder_channels": (32, 48, 96),
        "decoder_depths": (0, 0, 0),
        "decoder_num_heads": (2, 3, 6),
        "window_size": 128,
        "mlp_ratio": 2.0,
        "drop_path": 0.0,
        "norm_momentum": 0.1,
    }
)

_TINY_CUSTOM: Mapping[str, Any] = MappingProxyType(
    {
        "shuffle_curves": False,
        "channels": (24, 48, 96, 144),
        "depths": (2, 2, 2, 1),
        "num_heads": (2, 4, 8, 12),
        "strides": (2, 2, 2),
        "decoder_channels": (24, 48, 96),
        "decoder_depths": (0, 0, 0),
        "decoder_num_heads": (2, 4, 8),
        "mlp_ratio": 2.0,
        "drop_path": 0.0,
        "norm_momentum": 0.1,
    }
)

_TINY_LITEPT: Mapping[str, Any] = MappingProxyType(
    {
        "shuffle_curves": False,
        "channels": (24, 48, 72, 144),
        "depths": (1, 1, 2, 1),
        "kinds": ("convolution", "convolution", "attention", "attention"),
        "num_heads": (1, 2, 4, 8),
        "strides": (2, 2, 2),
        "decoder_channels": (48, 48, 72),
        "decoder_depths": (0, 0, 0),
        "decoder_kinds": ("convolution", "convolution", "attention"),
        "decoder_num_heads": (2, 2, 4),
        "window_size": 128,
        "mlp_ratio": 2.0,
        "drop_path": 0.0,
        "norm_momentum": 0.1,
    }
)

_TINY_OCTFORMER: Mapping[str, Any] = MappingProxyType(
    {
        "channels": (24, 48, 96, 128),
        "depths": (1, 2, 2, 1),
        "num_heads": (2, 4, 6, 8),
        "stem_levels": 0,
        "pyramid_channels": 48,
        "mlp_ratio": 2.0,
        "drop_path": 0.0,
    }
)

_TINY_SWIN3D: Mapping[str, Any] = MappingProxyType(
    {
        "channels": (48, 64, 96, 128),
        "depths": (0, 1, 2, 1),
        "num_heads": (4, 4, 6, 8),
        "window_edges": 5,
        "strides": (3, 2, 2),
        "num_neighbors": 8,
        "decoder_depths": (0, 0, 0),
        "mlp_ratio": 2.0,
        "drop_path": 0.0,
        "decoder_drop_path": 0.0,
    }
)

MODELS: Mapping[str, Model] = MappingProxyType(
    {
        "custom": Model(backbone=CustomTransformer),
        "custom_tiny": Model(backbone=CustomTransformer, arguments=_TINY_CUSTOM),
        "litept": Model(backbone=LitePT),
        "litept_base": Model(
            backbone=LitePT,
            arguments={
                "channels": (54, 108, 216, 432, 576),
                "depths": (3, 3, 3, 12, 3),
                "num_heads": (3, 6, 12, 24, 32),
                "decoder_channels": (72, 108, 216, 432),
                "decoder_num_heads": (4, 6, 12, 24),
            },
        ),
        "litept_large": Model(
            backbone=LitePT,
            arguments={
                "channels": (72, 144, 288, 576, 864),
                "depths": (3, 3, 3, 12, 3),
                "num_heads": (4, 8, 16, 32, 48),
                "decoder_channels": (72, 144, 288, 576),
                "decoder_num_heads": (4, 8, 16, 32),
            },
        ),
        "litept_star": Model(backbone=LitePT, arguments={"decoder_depths": (2, 2, 2, 2)}),
        "litept_tiny": Model(backbone=LitePT, arguments=_TINY_LITEPT),
        "octformer": Model(backbone=OctFormer),
        "octformer_tiny": Model(backbone=OctFormer, arguments=_TINY_OCTFORMER),
        "point_vit": Model(backbone=PointViT),
        "point_vit_base": Model(
            backbone=PointViT,
            arguments={"channels": 768, "num_heads": 12, "point_channels": 192},
        ),
        "point_vit_small": Model(backbone=PointViT),
        "point_vit_tiny": Model(
            backbone=PointViT,
            arguments={
                "channels": 128,
                "depth": 3,
                "num_heads": 4,
                "point_channels": 48,
                "stem_depth": 2,
                "mlp_ratio": 2.0,
                "drop_path": 0.0,
            },
        ),
        "ptv1": Model(backbone=PointTransformerV1),
        "ptv1_seg26": Model(backbone=PointTransformerV1, arguments={"depths": (1, 1, 1, 1, 1)}),
        "ptv1_seg38": Model(backbone=PointTransformerV1, arguments={"depths": (1, 2, 2, 2, 2)}),
        "ptv1_seg50": Model(backbone=PointTransformerV1),
        "ptv1_tiny": Model(backbone=PointTransformerV1, arguments=_TINY_V1),
        "ptv2": Model(backbone=PointTransformerV2),
        "ptv2_m1": Model(
            backbone=PointTransformerV2,
            arguments={"encoding": "grouped", "position_multiplier": True},
        ),
        "ptv2_m2": Model(backbone=PointTransformerV2),
        "ptv2_tiny": Model(backbone=PointTransformerV2, arguments=_TINY_V2),
        "ptv3": Model(backbone=PointTransformerV3),
        "ptv3_base": Model(backbone=PointTransformerV3),
        "ptv3_rpe": Model(
            backbone=PointTransformerV3,
            arguments={"window_size": 128, "relative_position_bias": True, "flash": False},
        ),
        "ptv3_tiny": Model(backbone=PointTransformerV3, arguments=_TINY_V3),
        "swin3d": Model(backbone=Swin3D),
        "swin3d_large": Model(
            backbone=Swin3D,
            arguments={
                "channels": (80, 160, 320, 640, 640),
                "num_heads": (10, 10, 20, 40, 40),
            },
        ),
        "swin3d_small": Model(backbone=Swin3D),
        "swin3d_tiny": Model(backbone=Swin3D, arguments=_TINY_SWIN3D),
    }
)
"""Every model; `litept` is the small size (S), `litept_star` S*, `point_vit` is `point_vit_small`,
`ptv1` is `ptv1_seg50`, `ptv2` is `ptv2_m2`, `ptv3` is `ptv3_base`, `swin3d` is `swin3d_small`."""


def list_models() -> list[str]:
    """Return the names that `create_model` knows, sorted."""
    return sorted(MODELS)


def create_model(name: str, in_channels: int, num_classes: int, **overrides: Any) -> Segmentor:
    """Make a model with fresh weights.

    Args:
        name: one of `list_models()`.
        in_channels: channels of the points.
        num_classes: classes to tell apart.
        **overrides: arguments of the backbone's class in place of the row's.

    Raises:
        ValueError: if no model or no argument has that name, or an argument does not fit.
    """
    return Segmentor(create_backbone(name, in_channels, **overrides), num_classes)


def create_backbone(name: str, in_channels: int, **overrides: Any) -> Backbone:
    """Make a backbone with fresh weights, for a head of another kind, such as a `Classifier`.

    Arguments and errors are those of `create_model`.
    """
    row = look_up(name, overrides)
    return row.backbone(in_channels=in_channels, **row.arguments)


def look_up(name: str, overrides: Mapping[str, Any] = MappingProxyType({})) -> Model:
    """Give the row of a model, with some arguments replaced.

    Raises:
        ValueError: if no model or no argument has that name.
    """
    if name not in MODELS:
        raise ValueError(f"no model is called {name!r}{_hint(name, list_models())}")
    row = MODELS[name]
    known = [p for p in inspect.signature(row.backbone).parameters if p != "in_channels"]
    for key in overrides:
        if key not in known:
            raise ValueError(f"{name} has no argument {key!r}{_hint(key, known)}")
    return Model(backbone=row.backbone, arguments={**row.arguments, **overrides})


def _hint(word: str, known: list[str]) -> str:
    close = get_close_matches(word, known, n=1)
    guess = f"; did you mean {close[0]!r}" if close else ""
    return f"{guess}? Known: {', '.join(known)}" if guess else f"; known: {', '.join(known)}"
