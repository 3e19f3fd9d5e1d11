"""Pasted objects stand on ground, touch nothing, and keep their shape and distance."""

from dataclasses import replace

import numpy as np
import pytest

from pctx.data.simulator import simulate
from pctx.data.transforms import InstancePaste
from pctx.data.transforms.paste import connected, find_objects
from pctx.geometry.points import PointCloud

GROUND, POLE, CAR = 40, 80, 10


def field(slope=0.0, posts=0, seed=0):
    """Ground of 60 m x 60 m, a point each half metre, with posts of 3 m on it."""
    rng = np.random.default_rng(seed)
    xy = np.stack(np.meshgrid(np.arange(-30, 30, 0.5), np.arange(-30, 30, 0.5)), -1).reshape(-1, 2)
    coord = [np.column_stack([xy, slope * xy[:, 0]])]
    for x, y in rng.uniform(-30, 30, (posts, 2)):
        coord.append(np.column_stack([np.full(30, x), np.full(30, y), np.linspace(0.1, 3, 30)]))
    label = np.repeat([GROUND] + [POLE] * posts, [len(xy)] + [30] * posts)
    return PointCloud(coord=np.concatenate(coord).astype(np.float32), label=label)


def with_cars(*places, size=(4.0, 2.0, 1.5), seed=1):
    """A field with boxes of points, 0.3 m above its ground."""
    rng = np.random.default_rng(seed)
    base = field()
    cars = [rng.uniform(0, 1, (200, 3)) * size + [x, y, 0.3] for x, y in places]
    coord = np.concatenate([base.coord, *cars]).astype(np.float32)
    label = np.append(base.label, np.full(200 * len(cars), CAR))
    return PointCloud(coord=coord, label=label)


def paste(**arguments):
    return InstancePaste(classes=[CAR], ground=[GROUND], **arguments)


def pasted(cloud, mixed):
    np.testing.assert_array_equal(mixed.coord[: len(cloud)], cloud.coord)
    return mixed.coord[len(cloud) :]


def test_an_object_keeps_its_shape_and_its_distance():
    cloud, other = field(), with_cars((10, 5))
    thing = pasted(cloud, paste()(cloud, other, np.random.default_rng(0)))
    before = other.coord[other.label == CAR]
    np.testing.assert_allclose(
        np.linalg.norm(thing[:, None] - thing[None], axis=2),
        np.linalg.norm(before[:, None] - before[None], axis=2),
        atol=1e-4,
    )
    np.testing.assert_allclose(np.hypot(*thing[:, :2].T), np.hypot(*before[:, :2].T), atol=1e-4)


def test_angles_are_anywhere():
    cloud, other = field(), with_cars((10, 5))
    angles = [
        np.arctan2(*pasted(cloud, paste()(cloud, other, np.random.default_rng(i))).mean(0)[1::-1])
        for i in range(60)
    ]
    assert (np.histogram(angles, bins=4, range=(-np.pi, np.pi))[0] > 5).all()


@pytest.mark.parametrize("slope", [-0.1, 0.1])
def test_an_object_stands_above_the_ground_as_it_did(slope):
    cloud, other = field(slope), with_cars((10, 5))
    for seed in range(10):
        thing = pasted(cloud, paste()(cloud, other, np.random.default_rng(seed)))
        ground = slope * (thing[:, 0].min() + thing[:, 0].max()) / 2
        # The median height below a box of 4 m on this slope.
        assert thing[:, 2].min() - ground == pytest.approx(0.3, abs=0.11)


def test_objects_touch_nothing_and_none_another():
    cloud = field(posts=40)
    other = with_cars((10, 5), (-12, 3), (4, -15), (-8, -9), (0, 18))
    for seed in range(10):
        rng = np.random.default_rng(seed)
        mixed = paste(max_objects=5, margin=0.5)(cloud, other, rng)
        things = np.split(pasted(cloud, mixed), range(200, len(mixed) - len(cloud), 200))
        posts = cloud.coord[cloud.label == POLE]
        for i, thing in enumerate(things):
            rest = np.concatenate([posts, *things[:i], *things[i + 1 :]])
            distance = np.linalg.norm(thing[:, None] - rest[None], axis=2)
            # Random points of a box reach its sides to a decimetre or so.
            assert distance.min() > 0.3


def test_where_nothing_is_free_nothing_is_pasted():
    cloud, other = field(posts=3000), with_cars((10, 5), (-12, 3))
    assert len(paste()(cloud, other, np.random.default_rng(0))) == len(cloud)


def test_there_is_no_place_without_ground():
    cloud, other = field(), with_cars((10, 5))
    nowhere = replace(cloud, label=np.full(len(cloud), 99))
    assert len(paste()(nowhere, other, np.random.default_rng(0))) == len(cloud)


def test_at_most_so_many_objects_and_none_too_small():
    cloud, other = field(), with_cars((10, 5), (-12, 3), (4, -15), (-8, -9))
    assert len(paste(max_objects=2)(cloud, other, np.random.default_rng(0))) == len(cloud) + 400
    assert len(paste(min_points=201)(cloud, other, np.random.default_rng(0))) == len(cloud)


def test_objects_are_instances_or_points_without_a_gap():
    other = with_cars((10, 5), (-12, 3))
    parts = find_objects(other, [CAR])
    assert sorted(map(len, parts)) == [200, 200]
    assert all(np.ptp(other.coord[rows, 0]) < 4.1 for rows in parts)
    numbered = replace(other, instance=np.where(other.label == CAR, 5, 0))
    assert [len(rows) for rows in find_objects(numbered, [CAR])] == [400]
    half = np.arange(len(other)) < len(other) - 200
    some = replace(numbered, instance=np.where(half, numbered.instance, 0))
    assert sorted(map(len, find_objects(some, [CAR, POLE]))) == [200, 200]
    more = replace(other, label=np.where(half | (other.label == GROUND), other.label, POLE))
    both = find_objects(replace(more, instance=np.where(more.label == GROUND, 0, 5)), [CAR, POLE])
    assert sorted(map(len, both)) == [200, 200]  # one number, two classes
    assert find_objects(other, [POLE]) == []


def test_cells_that_touch_are_one_group():
    xy = np.array([[0.1, 0.1], [0.6, 0.6], [1.1, 0.1], [2.1, 0.1], [-0.1, -0.1], [9, 9]])
    group = connected(xy, 0.5)
    assert len(set(group[[0, 1, 2, 4]].tolist())) == 1
    assert len(set(group.tolist())) == 3


def test_streets_take_cars_of_other_streets():
    cloud, other = (simulate(np.random.default_rng(i), "hdl32") for i in (0, 1))
    mix = InstancePaste(classes=[10, 11, 30], ground=[40, 44, 48, 49, 72], max_objects=20)
    mixed = mix(cloud, other, np.random.default_rng(0))
    assert len(cloud) + 100 < len(mixed) < len(cloud) + len(other)
    assert set(mixed.label[len(cloud) :].tolist()) <= {10, 11, 30}
