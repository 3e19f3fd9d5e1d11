"""The ground under a cloud, and heights above it."""

import numpy as np

from pctx.data import terrain
from pctx.data.terrain import height_above_terrain


def hillside(n=40_000, size=120.0, seed=0):
    """Give points of a slope of 20 %, wavy, and the height of each above it: 0."""
    rng = np.random.default_rng(seed)
    xy = rng.uniform(0, size, (n, 2))
    return np.column_stack([xy, slope(xy)]).astype(np.float32)


def slope(xy):
    return 0.2 * xy[:, 0] + 1.5 * np.sin(xy[:, 1] / 15)


def test_heights_are_those_above_a_hillside_with_houses_trees_and_bushes():
    ground = hillside()
    rng = np.random.default_rng(1)
    xy = ground[:, :2]
    house = (np.abs(xy - (40, 40)) < (10, 14)).all(axis=1)  # roofs hide the ground below
    tree = (np.hypot(*(xy - (85, 70)).T) < 6) & (rng.random(len(xy)) < 0.8)
    bush = (np.hypot(*(xy - (60, 100)).T) < 3) & (rng.random(len(xy)) < 0.8)
    above = 7.0 * house + rng.uniform(2, 12, len(xy)) * tree + rng.uniform(0.2, 1, len(xy)) * bush
    cloud = ground + np.column_stack([0 * above, 0 * above, above]).astype(np.float32)
    height = height_above_terrain(cloud)
    wrong = np.abs(height - above)
    rim = ((xy < 10) | (xy > 110)).any(axis=1)  # where nothing tells a slope from a bank
    assert wrong.max() < 1.5 and wrong[~rim].max() < 1
    assert np.quantile(wrong[~rim & ~house], 0.98) < 0.2


def test_points_below_the_ground_do_not_pull_it_down():
    ground = hillside()
    pits = ground[::4000] - np.float32([0, 0, 20])
    height = height_above_terrain(np.concatenate([ground, pits]))
    assert np.abs(height[:-10] - height_above_terrain(ground)).max() < 0.3
    assert np.allclose(height[len(ground) :], -20, atol=1)


def test_heights_do_not_change_with_the_maps_they_are_worked_out_on(monkeypatch):
    ground = hillside(8_000, 400)
    ground[::5, 2] += 4
    whole = height_above_terrain(ground)
    monkeypatch.setattr(terrain, "_BLOCK", 64)
    assert np.abs(height_above_terrain(ground) - whole).max() < 1e-4
    tile = (ground[:, :2] < 150 + terrain.TERRAIN_REACH).all(axis=1)
    inside = (ground[:, :2] < 150).all(axis=1)
    part = height_above_terrain(ground[tile])[inside[tile]]
    assert np.abs(part - whole[inside]).max() < 1e-4


def test_points_kilometres_apart_and_odd_clouds_have_heights():
    far = np.float32([[0, 0, 5], [0.4, 0.3, 7], [90_000, -70_000, 3], [np.nan, 0, 0], [3e6, 0, 1]])
    height = height_above_terrain(far)
    assert np.allclose(height, [0, 2, 0, 0, 0], atol=1e-5) and height.dtype == np.float32
    assert height_above_terrain(far[:0]).shape == (0,)
    assert height_above_terrain(far[3:4]).tolist() == [0]
