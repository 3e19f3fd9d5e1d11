"""The transformer block: something that mixes points, then an MLP, each with norm and residual.

n points, b clouds, c channels.
"""

from __future__ import annotations

from typing import Any, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from pctx.nn.mlp import MLP, Activation, DropPath, LayerScale
from pctx.nn.recompute import recompute


class TransformerBlock(nn.Module):
    """Attention or another mixer, and an MLP, around which features are passed on.

    With norm "pre", feat + mixer(LN(feat)), then feat + mlp(LN(feat)) (Xiong et al., On Layer
    Normalization in the Transformer Architecture, 2020); with "post", LN(feat + mixer(feat)), then
    LN(feat + mlp(feat)) (Vaswani et al., Attention Is All You Need, 2017, section 3.1).

    Args:
        channels: c.
        mixer: called as mixer(feat, *structure): `WindowAttention`, `VectorAttention`, …
        norm: where the layer norms are.
        mlp_ratio: hidden channels of the MLP over channels.
        activation: of the MLP.
        drop_path: share of clouds that each branch leaves out in training.
        layer_scale: first value of a learned factor a channel on each branch; None for none.
        checkpoint: keeps the input only, and computes the block again in the backward.

    Raises:
        ValueError: if norm, activation or drop_path is none of those.
    """

    def __init__(
        self,
        channels: int,
        mixer: nn.Module,
        *,
        norm: Literal["pre", "post"] = "pre",
        mlp_ratio: float = 4.0,
        activation: Activation = "gelu",
        drop_path: float = 0.0,
        layer_scale: float | None = None,
        checkpoint: bool = False,
    ):
        super().__init__()
        if norm not in ("pre", "post"):
            raise ValueError(f"norm must be pre or post, found {norm}")
        self.pre_norm, self.checkpoint = norm == "pre", checkpoint
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.mixer = mixer
        self.mlp = MLP(channels, int(channels * mlp_ratio), activation=activation)
        self.scale1, self.scale2 = (
            nn.Identity() if layer_scale is None else LayerScale(channels, layer_scale)
            for _ in range(2)
        )
        self.drop_path = DropPath(drop_path)

    def forward(
        self, feat: Float[Tensor, "n c"], offsets: Int[Tensor, "b+1"], *structure: Any
    ) -> Float[Tensor, "n c"]:
        """Mix the points.

        Args:
            feat: one row a point.
            offsets: the limits of the clouds.
            structure: what the mixer needs: windows, coordinates, neighbours, …
        """
        if self.checkpoint:
            mixed: Tensor = recompute(self, self._mix, feat, offsets, *structure)
            return mixed
        return self._mix(feat, offsets, *structure)

    def _mix(self, feat: Tensor, offsets: Tensor, *structure: Any) -> Tensor:
        def mixer(rows: Tensor) -> Tensor:
            return self.drop_path(self.scale1(self.mixer(rows, *structure)), offsets)

        def mlp(rows: Tensor, norm: nn.Module | None = None) -> Tensor:
            return self.drop_path(self.scale2(self.mlp(rows, norm)), offsets)

        if self.pre_norm:
            feat = feat + mixer(self.norm1(feat))
            return feat + mlp(feat, self.norm2)
        feat = self.norm1(feat + mixer(feat))
        return self.norm2(feat + mlp(feat))
