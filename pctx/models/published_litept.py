"""Names of LitePT's published weights; see `published`."""

from __future__ import annotations

from pctx.models.published import Home, name_at_home

_STEM = {"conv": "conv", "norm": "norm"}
_BLOCK = {
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
_DOWN = {"linear": "proj", "norm": "norm.0"}
_JOIN = {
    "up.linear": "proj.0",
    "up.norm": "proj.1",
    "skip.linear": "proj_skip.0",
    "skip.norm": "proj_skip.1",
}
_UNET = r"backbone\.unet"
_HOMES = (
    Home(r"backbone\.stem\.(.+)", lambda: "backbone.embedding.stem", _STEM),
    Home(
        rf"{_UNET}\.encoder\.(\d+)\.blocks\.(\d+)\.(.+)",
        lambda i, j: f"backbone.enc.enc{i}.block{j}",
        _BLOCK,
    ),
    Home(rf"{_UNET}\.down\.(\d+)\.(.+)", lambda i: f"backbone.enc.enc{i + 1}.down", _DOWN),
    Home(rf"{_UNET}\.decoder\.(\d+)\.join\.(.+)", lambda i: f"backbone.dec.dec{i}.up", _JOIN),
    Home(
        rf"{_UNET}\.decoder\.(\d+)\.stage\.blocks\.(\d+)\.(.+)",
        lambda i, j: f"backbone.dec.dec{i}.block{j}",
        _BLOCK,
    ),
)


def litept_name(own: str) -> str:
    """Return the published name (LitePT-v1 in its segmentor) of a weight of ours.

    Raises:
        ValueError: if a LitePT segmentor has no weight of that name.
    """
    if own in ("head.weight", "head.bias"):
        return f"seg_{own}"
    return name_at_home(own, _HOMES, "LitePT")
