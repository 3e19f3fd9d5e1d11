"""Classifier: a backbone and a head that names every cloud.

b clouds, r rows of the level that comes out, c channels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pctx.geometry.hierarchy import Hierarchy
from pctx.geometry.packed import segment_max, segment_mean
from pctx.geometry.points import PointBatch
from pctx.models.backbone import Backbone
from pctx.models.segmentor import check_channels
from pctx.nn.mlp import MLP


class Classifier(nn.Module):
    """Class scores for every cloud of a batch.

    Mean and maximum of the backbone's rows, at whichever level it ends, normed and mapped by two
    layers. A cloud without points has zeros for both, so its scores are always the same. A
    backbone needs no decoder for this:
    `Classifier(create_backbone("ptv3_tiny", 4, encoder_only=True), num_classes=40)`.

    Raises:
        ValueError: if num_classes is below 1.
    """

    def __init__(self, backbone: Backbone, num_classes: int):
        super().__init__()
        if num_classes < 1:
            raise ValueError(f"num_classes must be at least 1, found {num_classes}")
        channels = backbone.out_channels
        self.backbone = backbone
        self.norm = nn.LayerNorm(2 * channels)
        self.head = MLP(2 * channels, channels, num_classes)

    if TYPE_CHECKING:

        def __call__(self, points: PointBatch, hierarchy: Hierarchy | None = None) -> Tensor:
            """Call `forward`, typed."""

    def forward(
        self, points: PointBatch, hierarchy: Hierarchy | None = None
    ) -> Float[Tensor, "b num_classes"]:
        """Score every class for every cloud.

        Args:
            points: the packed clouds.
            hierarchy: the backbone's plan of these points; None makes one, shuffling nothing.

        Raises:
            ValueError: if the points carry another number of channels than the backbone reads.
        """
        check_channels(points, self.backbone)
        if hierarchy is None:
            hierarchy = self.backbone.plan(points)
        feat = self.backbone(points.feat, hierarchy)
        offsets = hierarchy.levels[self.backbone.out_level].offsets
        pooled = torch.cat([segment_mean(feat, offsets), segment_max(feat, offsets)], dim=1)
        return self.head(self.norm(pooled))
