"""Families: how the published weights of each backbone's class are named and laid out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from torch import Tensor

from pctx.models.backbone import Backbone
from pctx.models.litept import LitePT
from pctx.models.octformer import OctFormer
from pctx.models.point_transformer_v1 import PointTransformerV1
from pctx.models.point_transformer_v2 import PointTransformerV2
from pctx.models.point_transformer_v3 import PointTransformerV3
from pctx.models.published_litept import litept_name
from pctx.models.published_octformer import from_octree_axes, octformer_name, to_octree_axes
from pctx.models.published_v1 import ptv1_name
from pctx.models.published_v2 import ptv2_name
from pctx.models.published_v3 import ptv3_name

Axes = Callable[[str, Tensor], Tensor]


def _alike(own: str, weight: Tensor) -> Tensor:
    del own
    return weight


class Family(NamedTuple):
    """The published form of one class's weights.

    Attributes:
        name: gives a weight of ours its published name.
        stem: our name of the weight that reads the points' channels, on its last axis.
        from_axes: brings a published weight, by our name, to our axes.
        to_axes: the way back.
    """

    name: Callable[[str], str]
    stem: str
    from_axes: Axes = _alike
    to_axes: Axes = _alike


FAMILIES: Mapping[type[Backbone], Family] = MappingProxyType(
    {
        LitePT: Family(litept_name, "backbone.stem.conv.weight"),
        OctFormer: Family(
            octformer_name, "backbone.stem.convs.0.conv.weight", from_octree_axes, to_octree_axes
        ),
        PointTransformerV1: Family(ptv1_name, "backbone.stem.linear.weight"),
        PointTransformerV2: Family(ptv2_name, "backbone.stem.linear.weight"),
        PointTransformerV3: Family(ptv3_name, "backbone.stem.conv.weight"),
    }
)


def family_of(backbone: type[Backbone]) -> Family:
    """Give the family of a backbone's class.

    Raises:
        ValueError: none was published, or its names are not known.
    """
    if backbone not in FAMILIES:
        known = ", ".join(cls.__name__ for cls in FAMILIES)
        raise ValueError(f"no published weights of {backbone.__name__} are known; of {known} are")
    return FAMILIES[backbone]
