"""FeatureSpec: what a model reads of a cloud."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pctx.data.features import FeatureSpec
from pctx.data.surroundings import height_above_ground, local_shape
from pctx.geometry.points import PointCloud


def full_cloud(n=100, seed=0):
    rng = np.random.default_rng(seed)
    return PointCloud(
        coord=rng.uniform(-30, 30, (n, 3)).astype(np.float32),
        color=rng.integers(0, 256, (n, 3)).astype(np.uint8),
        intensity=rng.random(n).astype(np.float32),
        normal=rng.normal(size=(n, 3)).astype(np.float32),
        extra={
            "return_number": np.ones(n, np.uint8),
            "number_of_returns": np.full(n, 3, np.uint8),
            "omega": rng.random(n),
        },
    )


EVERY = (
    "coord", "sensor_coord", "height", "terrain_height", "range", "shape",
    "color", "intensity", "normal", "returns", "omega",
)  # fmt: skip


def test_the_width_is_that_of_what_is_extracted():
    cloud = full_cloud()
    for name in EVERY:
        spec = FeatureSpec(fields=(name,))
        assert spec.extract(cloud).shape == (len(cloud), spec.width)
    spec = FeatureSpec(fields=EVERY)
    feat = spec.extract(cloud)
    assert feat.shape == (len(cloud), spec.width) and feat.dtype == np.float32


def test_fields_stand_in_their_order_and_are_divided_by_their_scales():
    cloud = full_cloud()
    feat = FeatureSpec(fields=("color", "returns", "omega"), scales={"color": 255}).extract(cloud)
    assert np.allclose(feat[:, :3], cloud.color / np.float32(255))
    assert feat[:, 3:5].tolist() == [[1, 3]] * len(cloud)
    assert np.allclose(feat[:, 5], cloud.extra["omega"])


def test_centers_are_taken_off_before_the_scale_and_survive_a_file():
    cloud = full_cloud()
    spec = FeatureSpec(
        fields=("sensor_coord", "color"), scales={"color": 127.5}, centers={"color": 127.5}
    )
    feat = spec.extract(cloud)
    np.testing.assert_array_equal(feat[:, :3], cloud.coord)
    np.testing.assert_allclose(feat[:, 3:], cloud.color / 127.5 - 1, atol=1e-6)
    assert FeatureSpec.from_dict(spec.to_dict()) == spec
    assert "centers" not in FeatureSpec(fields=("color",)).to_dict()
    with pytest.raises(ValueError, match="center of 'colour', which is not in color"):
        FeatureSpec(fields=("color",), centers={"colour": 1})
    with pytest.raises(ValueError, match="the center of color must be a finite number, found nan"):
        FeatureSpec(fields=("color",), centers={"color": float("nan")})


@pytest.mark.parametrize("name", ["color", "intensity", "normal", "returns", "infrared"])
def test_a_missing_field_is_named_with_its_remedy_and_can_be_filled(name):
    bare = PointCloud(coord=np.zeros((4, 3), np.float32))
    spec = FeatureSpec(fields=("height", name), scales={name: 2})
    with pytest.raises(ValueError, match=f"reads {name}.*--fill {name}=0"):
        spec.extract(bare)
    with pytest.raises(ValueError, match=f"reads {name}"):
        spec.extract(bare, {"other": 1})
    assert (spec.extract(bare, {name: 6})[:, 1:] == 3).all()


def test_a_misspelt_field_is_answered_by_the_one_that_there_is():
    with pytest.raises(ValueError, match=r"reads hight, which .* have \(did you mean height\?\)"):
        FeatureSpec(fields=("hight",)).extract(full_cloud())


def test_all_missing_fields_are_named_at_once():
    bare = PointCloud(coord=np.zeros((4, 3), np.float32))
    spec = FeatureSpec(fields=("height", "color", "intensity", "omega"))
    with pytest.raises(ValueError) as error:
        spec.extract(bare, {"intensity": 0})
    assert str(error.value) == (
        "the model reads color and omega, which the cloud does not have; give values for them "
        "(--fill color=0 --fill omega=0; in a configuration data.fill='{color: 0, omega: 0}'), or "
        "train without them"
    )


@pytest.mark.parametrize("n", [0, 1])
def test_clouds_of_no_and_one_point_have_features(n):
    cloud = full_cloud().select(slice(0, n))
    assert FeatureSpec(fields=EVERY).extract(cloud).shape == (n, 24)


def test_a_fill_does_not_replace_what_is_there():
    cloud = full_cloud()
    spec = FeatureSpec(fields=("intensity",))
    assert np.array_equal(spec.extract(cloud, {"intensity": 5}), spec.extract(cloud))


def test_values_that_are_not_finite_count_as_0():
    cloud = PointCloud(
        coord=np.zeros((3, 3), np.float32),
        intensity=np.array([np.nan, np.inf, 2], np.float32),
    )
    assert FeatureSpec(fields=("intensity",)).extract(cloud)[:, 0].tolist() == [0, 0, 2]


def test_coordinates_do_not_depend_on_where_the_cloud_lies():
    cloud = full_cloud()
    moved = PointCloud(coord=cloud.coord + np.float32([64, -128, 32]))
    spec = FeatureSpec(fields=("coord", "height"))
    plain = PointCloud(coord=cloud.coord)
    # The sums round to float32 at 128 m.
    assert np.allclose(spec.extract(plain)[:, :3], spec.extract(moved)[:, :3], atol=2e-5)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 200), st.integers(0, 2**31))
def test_height_is_above_the_lowest_point_of_the_cells_around(n, seed):
    coord = np.random.default_rng(seed).uniform(-12, 12, (n, 3)).astype(np.float32)
    cell = np.floor(coord[:, :2].astype(np.float64) / 4)
    near = (np.abs(cell[:, None] - cell[None]) <= 1).all(axis=2)
    lowest = np.where(near, coord[None, :, 2], np.inf).min(axis=1)
    height = height_above_ground(coord)
    assert np.allclose(height, coord[:, 2] - lowest, atol=1e-6)
    assert (height >= 0).all()


def test_heights_survive_points_that_are_far_or_not_finite():
    coord = np.array([[0, 0, 1], [1, 1, 3], [1e9, -1e9, 7], [np.nan, 0, -50]], np.float32)
    assert height_above_ground(coord).tolist() == [0, 2, 0, 0]
    huge = np.array([[0, 0, 0], [1, 1, 2], [1e20, 1, -50]], np.float32)
    assert height_above_ground(huge).tolist() == [0, 2, 0]
    assert height_above_ground(np.full((2, 3), np.nan, np.float32)).tolist() == [0, 0]
    assert height_above_ground(np.zeros((0, 3), np.float32)).shape == (0,)


def test_the_plain_form_gives_the_spec_back():
    spec = FeatureSpec(fields=EVERY, scales={"color": 255.0, "height": 2.0})
    assert FeatureSpec.from_dict(spec.to_dict()) == spec


@pytest.mark.parametrize(
    ("fields", "scales", "says"),
    [
        ((), {}, "at least one field"),
        (("color", "color"), {}, "repeat"),
        (("color",), {"colour": 2}, "'colour'"),
        (("color",), {"color": 0}, "above 0"),
    ],
)
def test_a_spec_that_contradicts_itself_is_refused(fields, scales, says):
    with pytest.raises(ValueError, match=says):
        FeatureSpec(fields=fields, scales=scales)


def test_the_model_sees_heights_finely_near_the_ground_and_ranges_from_the_sensor():
    coord = np.array([[3, 4, 0], [0, 0, 0.2], [1, 1, 20]], np.float32)
    spec = FeatureSpec(fields=("height", "range"), scales={"height": 0.2, "range": 5.0})
    feat = spec.extract(PointCloud(coord=coord))
    assert np.allclose(feat[:, 0], np.arcsinh([0, 1, 100]), rtol=1e-5)
    assert np.allclose(feat[:, 1], [1, 0, np.sqrt(2) / 5])


def test_a_line_a_plane_and_a_ball_have_their_shapes():
    rng = np.random.default_rng(0)
    steps = np.linspace(0.1, 0.9, 50)
    zero = np.full(50, 0.5)
    pole = np.stack([zero, zero, steps], axis=1)
    flat = np.stack([*rng.uniform(0.1, 0.9, (2, 400)), np.full(400, 0.5)], axis=1)
    ground = flat + np.array([10, 0, 0])
    wall = flat[:, [0, 2, 1]] + np.array([20, 0, 0])
    ball = rng.uniform(0, 1, (3000, 3)) + np.array([40, 0, 0])
    sizes = [len(part) for part in (pole, ground, wall, ball)]
    shape = local_shape(np.concatenate([pole, ground, wall, ball]).astype(np.float32))
    pole, ground, wall, ball = np.split(shape, np.cumsum(sizes)[:-1])
    assert np.allclose(pole[:, :3], [1, 0, 0], atol=1e-3)
    assert np.allclose(pole[:, 3], 1, atol=1e-3)
    assert (ground[:, 1] > 0.85).all() and (ground[:, 3] < 1e-3).all()
    assert (ground[:, 4] < 1e-3).all()
    assert (wall[:, 1] > 0.85).all() and (wall[:, 3] > 0.99).all()
    assert (ball[:, 2] > 0.9).all()


def test_shapes_of_few_far_or_broken_points_are_zero():
    coord = np.array([[0, 0, 0], [0.1, 0, 0], [0.2, 0, 0], [np.nan, 0, 0], [5e6, 0, 0]], np.float32)
    assert not local_shape(coord).any()
    assert local_shape(coord[:0]).shape == (0, 5)
