"""Segmentor: a backbone and a head that names every point.

n points, c channels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor, nn

from pctx.geometry.hierarchy import Hierarchy
from pctx.geometry.points import PointBatch
from pctx.models.backbone import Backbone


class Segmentor(nn.Module):
    """Class scores for every point of a batch.

    Raises:
        ValueError: if num_classes is below 1, or the backbone gives no row for every point.
    """

    def __init__(self, backbone: Backbone, num_classes: int):
        super().__init__()
        if num_classes < 1:
            raise ValueError(f"num_classes must be at least 1, found {num_classes}")
        if backbone.out_level != 0:
            raise ValueError(
                f"a segmentor needs a row for every point, but the backbone ends at level "
                f"{backbone.out_level}; give it a decoder (encoder_only=False)"
            )
        self.backbone = backbone
        self.head = backbone.make_head(num_classes)

    if TYPE_CHECKING:

        def __call__(self, points: PointBatch, hierarchy: Hierarchy | None = None) -> Tensor:
            """Call `forward`, typed."""

    def forward(
        self, points: PointBatch, hierarchy: Hierarchy | None = None
    ) -> Float[Tensor, "n num_classes"]:
        """Score every class at every point.

        Args:
            points: the packed clouds.
            hierarchy: the backbone's plan of these points; None makes one, shuffling nothing.

        Raises:
            ValueError: if the points carry another number of channels than the backbone reads.
        """
        return self.head(self.features(points, hierarchy))

    def features(
        self, points: PointBatch, hierarchy: Hierarchy | None = None
    ) -> Float[Tensor, "n c"]:
        """Compute what the head reads: the backbone's row of every point.

        Arguments and errors are those of `forward`.
        """
        check_channels(points, self.backbone)
        if hierarchy is None:
            hierarchy = self.backbone.plan(points)
        return self.backbone(points.feat, hierarchy)


def check_channels(points: PointBatch, backbone: Backbone) -> None:
    """Raise a ValueError if points carry another number of channels than a backbone reads."""
    channels = points.feat.shape[1]
    if channels != backbone.in_channels:
        raise ValueError(
            f"the points carry {channels} channels, the model reads {backbone.in_channels}; "
            "prepare them with the model's own features"
        )
