"""Names of PTv2's published weights, of m1 and m2 alike; see `published`."""

from __future__ import annotations

from pctx.models.published import Home, name_at_home

_UNIT = {"linear": "0", "norm": "1.norm"}
_DOWN = {"embed.linear": "fc", "embed.norm": "norm.norm"}
_BLOCK = {
    "fc1": "fc1",
    "norm1": "norm1.norm",
    "attention.query": "attn.linear_q.0",
    "attention.query_norm": "attn.linear_q.1.norm",
    "attention.key": "attn.linear_k.0",
    "attention.key_norm": "attn.linear_k.1.norm",
    "attention.value": "attn.linear_v",
    "attention.position_multiplier.fc1": "attn.linear_p_multiplier.0",
    "attention.position_multiplier.norm": "attn.linear_p_multiplier.1.norm",
    "attention.position_multiplier.fc2": "attn.linear_p_multiplier.3",
    "attention.position_bias.fc1": "attn.linear_p_bias.0",
    "attention.position_bias.norm": "attn.linear_p_bias.1.norm",
    "attention.position_bias.fc2": "attn.linear_p_bias.3",
    "attention.fc1": "attn.weight_encoding.0",
    "attention.norm": "attn.weight_encoding.1.norm",
    "attention.fc2": "attn.weight_encoding.3",
    "norm2": "norm2.norm",
    "fc2": "fc3",
    "norm3": "norm3.norm",
}
_UP = {
    "up.linear": "proj.0",
    "up.norm": "proj.1.norm",
    "skip.linear": "proj_skip.0",
    "skip.norm": "proj_skip.1.norm",
}
_HEAD = {"hidden.linear": "0", "hidden.norm": "1.norm", "out": "3"}
_UNET = r"backbone\.unet"
_HOMES = (
    Home(r"backbone\.stem\.(.+)", lambda: "backbone.patch_embed.proj", _UNIT),
    Home(
        rf"{_UNET}\.encoder\.(0)\.blocks\.(\d+)\.(.+)",
        lambda _, j: f"backbone.patch_embed.blocks.blocks.{j}",
        _BLOCK,
    ),
    Home(
        rf"{_UNET}\.encoder\.(\d+)\.blocks\.(\d+)\.(.+)",
        lambda i, j: f"backbone.enc_stages.{i - 1}.blocks.blocks.{j}",
        _BLOCK,
    ),
    Home(rf"{_UNET}\.down\.(\d+)\.(.+)", lambda i: f"backbone.enc_stages.{i}.down", _DOWN),
    Home(rf"{_UNET}\.decoder\.(\d+)\.join\.(.+)", lambda i: f"backbone.dec_stages.{i}.up", _UP),
    Home(
        rf"{_UNET}\.decoder\.(\d+)\.stage\.blocks\.(\d+)\.(.+)",
        lambda i, j: f"backbone.dec_stages.{i}.blocks.blocks.{j}",
        _BLOCK,
    ),
    Home(r"head\.(.+)", lambda: "backbone.seg_head", _HEAD),
)


def ptv2_name(own: str) -> str:
    """Return the published name (Pointcept's PT-v2m1 and PT-v2m2) of a weight of ours.

    Raises:
        ValueError: if a PTv2 segmentor has no weight of that name.
    """
    return name_at_home(own, _HOMES, "PTv2")
