"""Names of PTv3's published weights, and what LitePT's share with them; see `published`."""

from __future__ import annotations

from collections.abc import Mapping

from pctx.models.published import Home, name_at_home

_STEM = {"conv": "conv", "norm": "norm"}
_BLOCK = {
    "encoding.conv": "cpe.0",
    "encoding.linear": "cpe.1",
    "encoding.norm": "cpe.2",
    "norm1": "norm1.0",
    "attention.qkv": "attn.qkv",
    "attention.proj": "attn.proj",
    "relative_bias": "attn.rpe",
    "norm2": "norm2.0",
    "mlp.fc1": "mlp.0.fc1",
    "mlp.fc2": "mlp.0.fc2",
}
_DOWN = {"linear": "proj", "norm": "norm.0"}
_JOIN = {
    "up.linear": "proj.0",
    "up.norm": "proj.1",
    "skip.linear": "proj_skip.0",
    "skip.norm": "proj_skip.1",
}
_UNET = r"backbone\.unet"


def unet_homes(block: Mapping[str, str]) -> tuple[Home, ...]:
    """Return where a U-Net of PTv3's kind has its weights, its blocks having these layers."""
    return (
        Home(r"backbone\.stem\.(.+)", lambda: "backbone.embedding.stem", _STEM),
        Home(
            rf"{_UNET}\.encoder\.(\d+)\.blocks\.(\d+)\.(.+)",
            lambda i, j: f"backbone.enc.enc{i}.block{j}",
            block,
        ),
        Home(rf"{_UNET}\.down\.(\d+)\.(.+)", lambda i: f"backbone.enc.enc{i + 1}.down", _DOWN),
        Home(rf"{_UNET}\.decoder\.(\d+)\.join\.(.+)", lambda i: f"backbone.dec.dec{i}.up", _JOIN),
        Home(
            rf"{_UNET}\.decoder\.(\d+)\.(?:stage\.)?blocks\.(\d+)\.(.+)",
            lambda i, j: f"backbone.dec.dec{i}.block{j}",
            block,
        ),
    )


_HOMES = unet_homes(_BLOCK)


def ptv3_name(own: str) -> str:
    """Return the published name (Pointcept's PT-v3m1 in its segmentor) of a weight of ours.

    Raises:
        ValueError: if a PTv3 segmentor has no weight of that name.
    """
    if own in ("head.weight", "head.bias"):
        return f"seg_{own}"
    return name_at_home(own, _HOMES, "PTv3").replace("rpe.table", "rpe.rpe_table")
