"""Names of LitePT's published weights; `published.py` turns them both ways."""

from __future__ import annotations

import re

_PARTS = {
    r"head": r"seg_head",
    r"backbone\.stem\.(conv|norm)": r"backbone.embedding.stem.\1",
    r"(.+)\.convolution\.conv": r"\1.conv.0",
    r"(.+)\.convolution\.linear": r"\1.conv.1",
    r"(.+)\.convolution\.norm": r"\1.conv.2",
    r"(.+\d)\.norm": r"\1.norm0.0",
    r"(.+)\.transformer\.(norm[12])": r"\1.\2.0",
    r"(.+)\.transformer\.attention\.attention\.(qkv|proj)": r"\1.attn.\2",
    r"(.+)\.transformer\.mlp\.(fc[12])": r"\1.mlp.0.\2",
    r"(.+)\.down\.linear": r"\1.down.proj",
    r"(.+)\.down\.norm": r"\1.down.norm.0",
    r"(.+)\.join\.up\.linear": r"\1.up.proj.0",
    r"(.+)\.join\.up\.norm": r"\1.up.proj.1",
    r"(.+)\.join\.skip\.linear": r"\1.up.proj_skip.0",
    r"(.+)\.join\.skip\.norm": r"\1.up.proj_skip.1",
}
"""The inner names, once `_stage` has named the stage."""


def litept_name(own: str) -> str:
    """Return the published name (LitePT-v1 in its segmentor) of a weight of ours.

    Raises:
        ValueError: if a LitePT segmentor has no weight of that name.
    """
    part, _, leaf = own.rpartition(".")
    staged = _stage(part)
    for pattern, published in _PARTS.items():
        if found := re.fullmatch(pattern, staged):
            return f"{found.expand(published)}.{leaf}"
    raise ValueError(f"a LitePT segmentor has no weight named {own!r}")


def _stage(part: str) -> str:
    """Name the stage, and a block of it: those of the encoder count from their step down."""
    found = re.fullmatch(r"backbone\.unet\.(encoder|down|decoder)\.(\d+)\.(.+)", part)
    if not found:
        return part
    side, number, inner = found.groups()
    if side == "down":
        return f"backbone.enc.enc{int(number) + 1}.down.{inner}"
    inner = re.sub(r"^blocks\.(\d+)", r"block\1", inner)
    return f"backbone.{side[:3]}.{side[:3]}{number}.{inner}"
