"""Names and axes of OctFormer's published weights; see `published`."""

from __future__ import annotations

from torch import Tensor

from pctx.models.published import Home, name_at_home

_CONV = {"conv": "conv", "norm": "bn"}
_UP = {"conv": "deconv", "norm": "bn"}
_BLOCK = {
    "encoding.conv": "cpe.conv",
    "encoding.norm": "cpe.bn",
    "relative_bias": "attention.rpe",
    "transformer.norm1": "norm1",
    "transformer.mixer.qkv": "attention.qkv",
    "transformer.mixer.proj": "attention.proj",
    "transformer.norm2": "norm2",
    "transformer.mlp.fc1": "mlp.fc1",
    "transformer.mlp.fc2": "mlp.fc2",
}
_DOWN = {"conv": "conv", "norm": "norm"}
_HEAD = {"hidden.linear": "0", "hidden.norm": "1", "out": "3"}
_EMBED, _DECODER = "backbone.patch_embed", "backbone.decoder"
_HOMES = (
    Home(r"backbone\.stem\.convs\.(\d+)\.(.+)", lambda i: f"{_EMBED}.convs.{i}", _CONV),
    Home(r"backbone\.stem\.down\.(\d+)\.(.+)", lambda i: f"{_EMBED}.downsamples.{i}", _CONV),
    Home(r"backbone\.stem\.proj\.(.+)", lambda: f"{_EMBED}.proj", _CONV),
    Home(
        r"backbone\.stages\.(\d+)\.blocks\.(\d+)\.(.+)",
        lambda i, j: f"backbone.layers.{i}.blocks.{j}",
        _BLOCK,
    ),
    Home(r"backbone\.down\.(\d+)\.(.+)", lambda i: f"backbone.downsamples.{i}", _DOWN),
    Home(r"backbone\.pyramid\.convs\.(\d+)\.(.+)", lambda i: f"{_DECODER}.conv3x3.{i}", _CONV),
    Home(r"backbone\.up\.(\d+)\.(.+)", lambda i: f"{_DECODER}.up_conv.{i}", _UP),
    Home(r"head\.(.+)", lambda: "backbone.seg_head", _HEAD),
)
_LATERAL = "backbone.pyramid.lateral"
_LEAVES = {"conv.weight": "conv.weights", "rpe.table": "rpe.rpe_table"}


def octformer_name(own: str) -> str:
    """Return the published name (Pointcept's OctFormer-v1m1) of a weight of ours.

    Raises:
        ValueError: if an OctFormer segmentor has no weight of that name.
    """
    if own.startswith(_LATERAL):
        return own.replace(_LATERAL, f"{_DECODER}.conv1x1")
    name = name_at_home(own, _HOMES, "OctFormer")
    for ours, theirs in _LEAVES.items():
        if name.endswith(ours):
            return name.removesuffix(ours) + theirs
    return name


def from_octree_axes(own: str, weight: Tensor) -> Tensor:
    """Bring a published weight to the axes of ours, `own` being our name for it.

    A convolution of t taps is there (t, in, out), a transposed one (t, out, in), in our order of
    taps; here both are (out, k, k, k, in). All others are alike.
    """
    if not own.endswith(".conv.weight"):
        return weight
    weight = weight.permute((1, 0, 2) if _is_transposed(own) else (2, 0, 1))  # (out, t, in)
    k = round(weight.shape[1] ** (1 / 3))
    return weight.unflatten(1, (k, k, k))


def to_octree_axes(own: str, weight: Tensor) -> Tensor:
    """Bring a weight of ours to the published axes: `from_octree_axes` turned round."""
    if not own.endswith(".conv.weight"):
        return weight
    weight = weight.flatten(1, 3)  # (out, t, in)
    return weight.permute((1, 0, 2) if _is_transposed(own) else (1, 2, 0))


def _is_transposed(own: str) -> bool:
    return own.startswith("backbone.up.")
