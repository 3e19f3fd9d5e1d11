"""Names of PTv1's published weights; see `published`."""

from __future__ import annotations

from pctx.models.published import Home, name_at_home

_UNIT = {"linear": "linear", "norm": "bn"}
_BLOCK = {
    "fc1": "linear1",
    "norm1": "bn1",
    "attention.query": "transformer.linear_q",
    "attention.key": "transformer.linear_k",
    "attention.value": "transformer.linear_v",
    "attention.position.fc1": "transformer.linear_p.0",
    "attention.position.norm": "transformer.linear_p.1",
    "attention.position.fc2": "transformer.linear_p.3",
    "attention.norm1": "transformer.linear_w.0",
    "attention.fc1": "transformer.linear_w.2",
    "attention.norm2": "transformer.linear_w.3",
    "attention.fc2": "transformer.linear_w.5",
    "norm2": "bn2",
    "fc2": "linear3",
    "norm3": "bn3",
}
_UP = {
    "skip.linear": "linear1.0",
    "skip.norm": "linear1.1",
    "up.linear": "linear2.0",
    "up.norm": "linear2.1",
}
_BOTTOM = {"join.linear": "linear1.0", "join.norm": "linear1.1", "mean": "linear2.0"}
_HEAD = {"hidden.linear": "0", "hidden.norm": "1", "out": "3"}
_UNET = r"backbone\.unet"
_HOMES = (
    Home(r"backbone\.stem\.(.+)", lambda: "backbone.enc1.0", _UNIT),
    Home(rf"{_UNET}\.down\.(\d+)\.(.+)", lambda i: f"backbone.enc{i + 2}.0", _UNIT),
    Home(
        rf"{_UNET}\.encoder\.(\d+)\.blocks\.(\d+)\.(.+)",
        lambda i, j: f"backbone.enc{i + 1}.{j + 1}",
        _BLOCK,
    ),
    # The published networks have five levels.
    Home(rf"{_UNET}\.bottom\.(.+)", lambda: "backbone.dec5.0", _BOTTOM),
    Home(
        rf"{_UNET}\.bottom\.stage\.blocks\.(\d+)\.(.+)", lambda j: f"backbone.dec5.{j + 1}", _BLOCK
    ),
    Home(rf"{_UNET}\.decoder\.(\d+)\.join\.(.+)", lambda i: f"backbone.dec{i + 1}.0", _UP),
    Home(
        rf"{_UNET}\.decoder\.(\d+)\.stage\.blocks\.(\d+)\.(.+)",
        lambda i, j: f"backbone.dec{i + 1}.{j + 1}",
        _BLOCK,
    ),
    Home(r"head\.(.+)", lambda: "backbone.cls", _HEAD),
)


def ptv1_name(own: str) -> str:
    """Return the published name (Pointcept's PointTransformer-Seg) of a weight of ours.

    Raises:
        ValueError: if a PTv1 segmentor has no weight of that name.
    """
    return name_at_home(own, _HOMES, "PTv1")
