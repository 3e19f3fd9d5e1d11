"""configs/augment: the published lists, by name, in their order."""

import dataclasses
from functools import cache

import numpy as np
import pytest
from hydra.utils import get_class, instantiate
from omegaconf import OmegaConf

from pctx.cli.config import compose, config_folder
from pctx.data.transforms import Flip, Mix, apply, published_views
from tests.data.transforms.clouds import full_cloud

NAMES = sorted(path.stem for path in (config_folder() / "augment").glob("*.yaml"))
PI = np.pi
A = [
    ("Center", {"axes": "xyz"}),
    ("Dropout", {"ratio": 0.2, "probability": 0.2}),
    ("Rotate", {"angle": PI, "axis": "z", "probability": 0.5, "center": "origin"}),
    ("Rotate", {"angle": PI / 64, "axis": "x", "probability": 0.5, "center": "box"}),
    ("Rotate", {"angle": PI / 64, "axis": "y", "probability": 0.5, "center": "box"}),
    ("Scale", {"low": 0.9, "high": 1.1}),
    ("Flip", {"probability": 0.5, "axes": ["x", "y"]}),
    ("Jitter", {"sigma": 0.005, "clip": 0.02}),
    ("Elastic", {"steps": [[0.2, 0.4], [0.8, 1.6]], "probability": 0.95}),
    ("ColorContrast", {"probability": 0.2, "blend": None}),
    ("ColorShift", {"probability": 0.95, "ratio": 0.05}),
    ("ColorJitter", {"probability": 0.95, "sigma": 0.05}),
]
B = [A[0], *A[5:8], *A[9:]]
C = [A[2], *A[5:8]]
WAYMO = [C[0], ("ClipBox", {"low": [-75.2, -75.2, -4], "high": [75.2, 75.2, 2]}), *C[1:]]
D = [*A[:5], ("Scale", {"low": 0.8, "high": 1.2}), *A[6:]]
D.append(("ColorDrop", {"probability": 0.2, "factor": 0.0}))
UNIT = 10.24  # metres
TURN = {"probability": 1, "center": "box"}
E = [
    A[0],
    ("ColorDistortion", {"ratio": 0.1, "sigma": 0.05}),
    (
        "Elastic",
        {
            "steps": [[UNIT * a, 2 * UNIT * a] for a in (0.05, 0.1, 0.2, 0.4)],
            "probability": 0.95,
        },
    ),
    A[6],
    ("Rotate", {"angle": PI / 36, "axis": "x"} | TURN),
    ("Rotate", {"angle": PI / 36, "axis": "y"} | TURN),
    ("Rotate", {"angle": PI, "axis": "z"} | TURN),
    ("Translate", dict.fromkeys("xyz", UNIT * 0.1)),
    ("Stretch", {"low": 0.8, "high": 1.2}),
    ("CropNearest", {"max_points": 120_000, "ratio": 0.8}),
]


@cache
def composed(name):
    return compose("train", [f"augment={name}", "name=test"]).augment


def steps_of(name):
    steps = instantiate(composed(name), _convert_="all")
    return {name: step for name, step in steps.items() if step is not None}


@pytest.mark.parametrize(
    ("name", "published"),
    [("indoor", A), ("s3dis", B), ("lidar", C), ("waymo", WAYMO), ("swin3d", D), ("octformer", E)],
)
def test_a_recipe_is_the_published_list(name, published):
    steps = list(steps_of(name).values())
    assert [type(step).__name__ for step in steps] == [kind for kind, _ in published]
    for step, (_, wanted) in zip(steps, published, strict=True):
        found = dataclasses.asdict(step)
        assert found.keys() == wanted.keys()
        for key, value in wanted.items():
            assert found[key] == (pytest.approx(value) if is_number(value) else value) or (
                key == "steps" and np.allclose(found[key], value)
            )


def is_number(value):
    return isinstance(value, int | float)


@pytest.mark.parametrize("name", NAMES)
def test_a_yaml_lists_every_argument_of_its_steps(name):
    for node in OmegaConf.to_container(composed(name)).values():
        if node is not None:
            cls = get_class(node["_target_"])
            assert set(node) - {"_target_"} == {f.name for f in dataclasses.fields(cls)}


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_changes_any_cloud(name):
    steps = steps_of(name)
    for n in (0, 1, 400):
        cloud = full_cloud(n)
        for seed in range(3):
            result = apply(steps, cloud, np.random.default_rng(seed), lambda _: full_cloud(200))
            assert len(result) == len(result.label)
    if name == "none":
        assert not steps
    else:
        assert any(isinstance(step, Mix) for step in steps.values()) or not np.array_equal(
            result.coord, cloud.coord
        )


def test_recipes_add_up():
    steps = steps_of("[lidar,lidar_mix,mix3d]")
    assert list(steps)[-3:] == ["polar_mix", "laser_mix", "mix3d"]
    assert list(steps)[:4] == ["rotate", "scale", "flip", "jitter"]


def test_the_intensity_recipe_is_the_lidar_one_and_more():
    more, plain = steps_of("lidar_intensity"), steps_of("lidar")
    assert more.keys() - plain.keys() == {"intensity"}
    assert more["rotate"].probability == 1
    assert all(more[name] == plain[name] for name in plain if name != "rotate")


@pytest.mark.parametrize(
    ("recipe", "count"),
    [("scannet", 13), ("s3dis", 10), ("nuscenes", 10), ("waymo", 4), ("semantic_kitti", 4)],
)
def test_test_time_views_are_certain_and_all_different(recipe, count):
    cloud = full_cloud(50)
    seen = []
    for view in published_views(recipe):
        one, other = (apply(view, cloud, np.random.default_rng(seed)) for seed in (0, 1))
        np.testing.assert_array_equal(one.coord, other.coord)
        seen.append(one.coord)
    assert len(seen) == count
    assert any(np.array_equal(coord, cloud.coord) for coord in seen)
    if recipe == "scannet":  # both mirrors are half a turn: published so, and counted twice
        np.testing.assert_allclose(seen[12], seen[2], atol=1e-5)
        seen.pop()
    assert all(not np.allclose(a, b) for i, a in enumerate(seen) for b in seen[i + 1 :])


def test_views_of_nothing_known_are_refused():
    with pytest.raises(ValueError, match="views must be those of scannet, .*, found 'kitti'"):
        published_views("kitti")


def test_a_view_mirrors_x_and_y():
    assert published_views("s3dis")[7]["flip"] == Flip(probability=1.0)
