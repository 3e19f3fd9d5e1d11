"""Names of LitePT's published weights; see `published`."""

from __future__ import annotations

from pctx.models.published import name_at_home
from pctx.models.published_v3 import unet_homes

_HOMES = unet_homes(
    {
        "convolution.conv": "conv.0",
        "convolution.linear": "conv.1",
        "convolution.norm": "conv.2",
        "norm": "norm0.0",
        "transformer.norm1": "norm1.0",
        "transformer.mixer.attention.qkv": "attn.qkv",
        "transformer.mixer.attention.proj": "attn.proj",
        "transformer.norm2": "norm2.0",
        "transformer.mlp.fc1": "mlp.0.fc1",
        "transformer.mlp.fc2": "mlp.0.fc2",
    }
)


def litept_name(own: str) -> str:
    """Return the published name (LitePT-v1 in its segmentor) of a weight of ours.

    Raises:
        ValueError: if a LitePT segmentor has no weight of that name.
    """
    if own in ("head.weight", "head.bias"):
        return f"seg_{own}"
    return name_at_home(own, _HOMES, "LitePT")
