"""What every transform keeps to; a new one is found by itself."""

import dataclasses

import numpy as np
import pytest

import pctx.data.transforms as package
from tests.data.transforms.clouds import (
    ARGUMENTS,
    columns,
    every_class,
    every_step,
    full_cloud,
    run,
)

STEPS = every_step()
LINEAR = {"Rotate", "RotateBy", "Tilt", "Scale", "Stretch", "Flip", "Center", "ClipBox"}
NOTHING_DRAWN = {"Center", "ClipBox", "CropBox", "Mix3D"}
MOVERS = LINEAR | {"Translate", "Jitter", "Elastic"}
pytestmark = pytest.mark.parametrize("name", sorted(STEPS))


def same(one, other):
    one, other = columns(one), columns(other)
    assert one.keys() == other.keys()
    for name, column in one.items():
        np.testing.assert_array_equal(column, other[name], err_msg=name, strict=True)


def test_a_transform_is_a_frozen_dataclass_with_a_public_name(name):
    cls = every_class()[name]
    assert getattr(package, name) is cls
    assert name in package.__all__
    with pytest.raises(dataclasses.FrozenInstanceError):
        STEPS[name].anything = 1
    assert cls(**ARGUMENTS.get(name, {})) == cls(**ARGUMENTS.get(name, {}))
    assert all(f.kw_only for f in dataclasses.fields(cls))


def test_the_same_generator_gives_the_same_bytes_and_the_input_stays(name):
    cloud, other = full_cloud(), full_cloud(150, seed=9)
    once = run(STEPS[name], cloud, other=other)
    same(once, run(STEPS[name], cloud, other=other))
    same(cloud, full_cloud())
    same(other, full_cloud(150, seed=9))


def test_what_is_random_hangs_on_the_generator(name):
    step = STEPS[name]
    if has_probability(step):
        step = dataclasses.replace(step, probability=0.5)
    results = [columns(run(step, full_cloud(), seed)) for seed in range(12)]
    first = results[0]
    differs = any(
        not np.array_equal(first[key], result[key]) for result in results for key in first
    )
    assert differs == (name not in NOTHING_DRAWN)


def has_probability(step):
    return any(f.name == "probability" for f in dataclasses.fields(step))


@pytest.mark.parametrize("n", [0, 1, 2])
def test_tiny_clouds_are_legal(name, n):
    for seed in range(5):
        result = run(STEPS[name], full_cloud(n), seed)
        assert all(len(c) == len(result) for k, c in columns(result).items() if k != "origin")
        same_kind(result, full_cloud(n))
        result = run(STEPS[name], full_cloud(n), seed, other=full_cloud(0))
        same_kind(result, full_cloud(n))
        if name != "Resample":
            assert len(result) <= n


def same_kind(result, cloud):
    """Fields, types and the origin in the file's frame are those of the input."""
    kinds, wanted = (
        {k: (v.dtype, v.shape[1:]) for k, v in columns(c).items()} for c in (result, cloud)
    )
    assert kinds == wanted
    np.testing.assert_array_equal(result.origin, cloud.origin)


def test_types_fields_and_origin_are_kept(name):
    same_kind(run(STEPS[name], full_cloud()), full_cloud())


def test_absent_fields_stay_absent(name):
    bare = dataclasses.replace(
        full_cloud(),
        color=None,
        intensity=None,
        normal=None,
        label=None,
        instance=None,
        extra={},
    )
    same_kind(run(STEPS[name], bare), bare)


def test_all_fields_of_a_point_are_cut_alike(name):
    """`row` says which point of which cloud a row was; label and instance must be that point's."""
    cloud, other = full_cloud(), full_cloud(150, seed=9)
    marked = dataclasses.replace(other, extra={**other.extra, "row": other.extra["row"] + 1000})
    result = run(STEPS[name], cloud, other=marked)
    row = result.extra["row"]
    label = np.concatenate([cloud.label, np.zeros(600, int), other.label])
    np.testing.assert_array_equal(result.label, label[row])
    instance = np.concatenate([cloud.instance, np.zeros(600, int), other.instance])
    np.testing.assert_array_equal(result.instance > 0, instance[row] > 0)
    mine, theirs = (set(result.instance[part].tolist()) - {0} for part in (row < 1000, row >= 1000))
    assert mine.isdisjoint(theirs)


def test_a_probability_of_0_changes_nothing(name):
    step = STEPS[name]
    if not has_probability(step):
        pytest.skip("it always acts")
    cloud = full_cloud()
    never = dataclasses.replace(step, probability=0.0)
    result = package.apply({"step": never}, cloud, np.random.default_rng(0), lambda _: cloud)
    same(result, cloud)


@pytest.mark.parametrize("strange", [[np.nan, 1, 2], [np.inf, -np.inf, 0], [3, np.nan, np.nan]])
def test_points_that_are_not_finite_stay_and_change_no_other(name, strange):
    cloud = full_cloud()
    coord = cloud.coord.copy()
    coord[::7] = strange
    broken = dataclasses.replace(cloud, coord=coord)
    result = run(STEPS[name], broken)
    lost = result.coord[~result.finite]
    np.testing.assert_array_equal(lost, np.broadcast_to(np.float32(strange), lost.shape))
    if name in MOVERS:
        np.testing.assert_array_equal(result.finite, broken.finite)
    if name in LINEAR | {"CropSphere"}:
        rest = run(STEPS[name], broken.select(broken.finite))
        np.testing.assert_allclose(result.coord[result.finite], rest.coord, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("wrong", [-1, float("nan"), "much", ["s"], [[1, "s"]], {"coord": 1.0}])
def test_a_wrong_argument_is_refused_by_name(name, wrong):
    cls, given = every_class()[name], ARGUMENTS.get(name, {})
    for f in dataclasses.fields(cls):
        if f.name == "field":  # any column of extra
            continue
        if wrong == -1 and f.name == "low" and name == "LaserMix":  # radians below the horizon
            continue
        with pytest.raises(ValueError, match=rf"{name}: .*({f.name}|high).*, found "):
            cls(**given | {f.name: wrong})
