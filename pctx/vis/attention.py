"""What a model listens to, made visible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pctx.geometry.points import PointCloud
from pctx.vis.palette import Ramp
from pctx.vis.scene import ColorScale, Scene, value_scene

BRIGHT = 99.0
"""Percentile of the values above 0 from which on a point is as bright as can be."""


def relevance_scene(
    cloud: PointCloud,
    values: np.ndarray,
    *,
    query: int | None = None,
    ends: tuple[str, str] = ("none", "most"),
    title: str = "",
    subject: str = "",
    note: str = "",
) -> Scene:
    """Colour values of 0 and more, most of them 0, so that the others shine.

    Args:
        cloud: the raw points.
        values: (n,) of these; not a number, which is light grey, where nothing is known.
        query: the point that is marked, if any.
        ends: what the colours mean, from 0 to the brightest.
        title: usually the file's name.
        subject: what the values are.
        note: one more remark.
    """
    seen = values[values > 0]
    high = float(np.percentile(seen, BRIGHT)) if len(seen) else 1.0
    scale = ColorScale(Ramp.ATTENTION, 0.0, high, "", ends=ends)
    scene = value_scene(cloud, values, title=title, subject=subject, scale=scale)
    notes = "; ".join(part for part in (note, scene.note) if part)
    mark = None if query is None else cloud.coord[query] + cloud.origin - scene.shift
    return replace(scene, note=notes, mark=mark)
