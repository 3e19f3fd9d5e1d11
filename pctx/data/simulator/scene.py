"""Scenes: a street with everything that stands on it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pctx.data.simulator import properties, roadside
from pctx.data.simulator.layout import Plan
from pctx.data.simulator.shapes import Kind, Shapes
from pctx.data.simulator.site import Edge, Site

_BEAM = 0.0008
"""Metres a beam's radius grows a metre: thin posts are hit by beams that pass beside them."""


def furnish(plan: Plan, rng: np.random.Generator) -> Shapes:
    """Put houses, plants, vehicles, people and street furniture along a street."""
    site = Site(plan, rng)
    roadside.put_traffic(site)
    for edge in (Edge(site, True), Edge(site, False)):
        roadside.put_parked(site, edge)
        roadside.put_furniture(site, edge)
        roadside.put_street_trees(site, edge)
        properties.put_properties(site, edge)
        roadside.put_people(site, edge)
        properties.put_side_road(site, edge)
        properties.put_backdrop(site, edge)
    return _as_beams_see(site.build())


def _as_beams_see(shapes: Shapes) -> Shapes:
    thin = (shapes.kind == Kind.CYLINDER) & (shapes.half[:, 0] < 0.15)
    half = shapes.half.copy()
    half[:, :2] += (_BEAM * np.linalg.norm(shapes.center, axis=1) * thin)[:, None]
    return replace(shapes, half=half)
