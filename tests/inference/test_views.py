import numpy as np
import pytest

from pctx.data.transforms import apply, published_views
from pctx.geometry.points import PointCloud
from pctx.inference.views import CHANGES, View, make_views
from tests.toy import toy_cloud


def test_the_first_view_changes_nothing_and_the_others_differ():
    views = make_views(6)
    cloud = toy_cloud(50)
    assert views[0] == View()
    assert views[0].apply(cloud) is cloud
    assert views[0].generator() is None
    assert len({(v.angle, v.flip, v.scale, v.seed) for v in views}) == 6


@pytest.mark.parametrize("change", CHANGES)
def test_a_view_changes_what_it_is_told_to_alone(change):
    for view in make_views(5, (change,))[1:]:
        changed = {
            "rotate": view.angle != 0,
            "flip": view.flip,
            "scale": view.scale != 1,
            "shuffle": view.seed is not None,
        }
        assert not any(value for name, value in changed.items() if name != change)
    last = make_views(5, (change,))[1]
    moved = last.apply(toy_cloud(10)).coord
    assert np.array_equal(moved, toy_cloud(10).coord) == (change == "shuffle")


def test_views_keep_shapes_up_to_their_scale_and_turn_normals_with_them():
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(50, 3)).astype(np.float32)
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    cloud = PointCloud(coord=toy_cloud(50).coord, normal=normal)
    for view in make_views(7):
        moved = view.apply(cloud)
        np.testing.assert_allclose(moved.coord @ moved.coord.T / view.scale**2,
                                   cloud.coord @ cloud.coord.T, rtol=1e-4, atol=1e-2)  # fmt: skip
        along = (moved.coord * moved.normal).sum(axis=1) / view.scale
        np.testing.assert_allclose(along, (cloud.coord * normal).sum(axis=1), atol=1e-3)
        np.testing.assert_allclose(moved.coord[:, 2], cloud.coord[:, 2] * view.scale, rtol=1e-6)


@pytest.mark.parametrize(("recipe", "count"), [("scannet", 13), ("nuscenes", 10), ("waymo", 4)])
def test_views_of_a_recipe_are_the_published_ones(recipe, count):
    cloud = toy_cloud(50)
    views = make_views(recipe)
    assert len(views) == count
    for view, steps in zip(views, published_views(recipe), strict=True):
        expected = apply(steps, cloud, np.random.default_rng(0))
        # Coordinates of some metres, turned once or twice in float32.
        np.testing.assert_allclose(view.apply(cloud).coord, expected.coord, atol=1e-5)
        assert view.generator() is None


def test_views_that_cannot_be_meant_are_refused():
    with pytest.raises(ValueError, match="views must be from 1 to 1000, found 0"):
        make_views(0)
    with pytest.raises(ValueError, match="views must be those of scannet, .*, found 'kitti'"):
        make_views("kitti")
    with pytest.raises(ValueError, match="found 'tilt'"):
        make_views(2, ("tilt",))
    with pytest.raises(ValueError, match="2 views must differ in one of"):
        make_views(2, ())
