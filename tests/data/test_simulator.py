"""The simulated street: rays, shapes, ground, sensor, scans and their dataset."""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pctx.data.cards import card
from pctx.data.datasets.street import StreetDataset
from pctx.data.simulator import SENSORS, Sensor, simulate
from pctx.data.simulator.cast import cast, incidence, windows
from pctx.data.simulator.intersect import local_rays, span
from pctx.data.simulator.layout import draw_plan
from pctx.data.simulator.sensor import fire
from pctx.data.simulator.shapes import Kind, Shapes, Surface, join, make, place
from pctx.data.simulator.street import strike_ground

COARSE = Sensor(
    elevations=tuple(np.radians(np.linspace(25, -40, 24))), columns=180, height=1.7, max_range=90
)
FORWARD = np.array([[1.0, 0.0, 0.0]], dtype=np.float32)


def first_hit(shapes: Shapes, direction: np.ndarray = FORWARD) -> float:
    index = np.zeros(len(direction), dtype=np.int64)
    start, step = local_rays(shapes, index, direction)
    enter, leave = span(shapes.kind[index], shapes.taper[index], start, step)
    return float(enter[0]) if enter[0] <= leave[0] else np.inf


def random_shapes(rng: np.random.Generator, count: int) -> Shapes:
    """Any kinds, sizes and tilts, none around the sensor."""
    parts = []
    for _ in range(count):
        kind = Kind(int(rng.integers(3)))
        half = rng.uniform(0.1, 2.5, 3)
        way = rng.normal(size=3)
        center = way / np.linalg.norm(way) * (np.linalg.norm(half) + rng.uniform(0.5, 25))
        parts.append(
            make(kind, center, half, 50, yaw=rng.uniform(0, 7), up=rng.normal(size=3),
                 taper=rng.uniform(0, 0.8, 3))
        )  # fmt: skip
    return join(parts)


def contains(shapes: Shapes, i: int, points: np.ndarray) -> np.ndarray:
    """Say which world points lie in shape i, straight from what `Kind` says."""
    p = ((points - shapes.center[i]) @ shapes.axes[i].T) / shapes.half[i]
    rise = (p[:, 2] + 1) / 2
    front, rear, side = shapes.taper[i]
    if shapes.kind[i] == Kind.ELLIPSOID:
        return (p**2).sum(1) <= 1
    within = np.abs(p[:, 2]) <= 1
    if shapes.kind[i] == Kind.CYLINDER:
        return within & (np.hypot(p[:, 0], p[:, 1]) <= 1 - front * rise)
    within &= (p[:, 0] <= 1 - front * rise) & (-p[:, 0] <= 1 - rear * rise)
    return within & (np.abs(p[:, 1]) <= 1 - side * rise)


# Rays and shapes


def test_a_sphere_is_met_its_radius_before_its_center():
    assert first_hit(make(Kind.ELLIPSOID, (10, 0, 0), (2, 2, 2), 1)) == pytest.approx(8)


def test_an_ellipsoid_is_met_by_its_half_axis():
    ball = make(Kind.ELLIPSOID, (10, 0, 0), (1, 3, 2), 1, yaw=np.pi / 2)
    assert first_hit(ball) == pytest.approx(7, abs=1e-5)


def test_a_box_is_met_at_its_face():
    assert first_hit(make(Kind.BOX, (10, 0.3, 0.2), (2, 1, 1), 1)) == pytest.approx(8)


def test_a_turned_box_is_met_at_its_edge():
    box = make(Kind.BOX, (10, 0, 0), (1, 1, 1), 1, yaw=np.pi / 4)
    assert first_hit(box) == pytest.approx(10 - np.sqrt(2), abs=1e-5)


def test_a_cylinder_is_met_at_its_mantle_and_at_its_cap():
    upright = make(Kind.CYLINDER, (10, 0, 0), (0.5, 0.5, 2), 1)
    lying = make(Kind.CYLINDER, (10, 0, 0), (0.5, 0.5, 2), 1, up=(1.0, 0.0, 0.0))
    assert first_hit(upright) == pytest.approx(9.5)
    assert first_hit(lying) == pytest.approx(8)


def test_a_cone_is_thinner_at_half_its_height():
    cone = make(Kind.CYLINDER, (10, 0, 0), (2, 2, 3), 1, taper=(0.5, 0, 0))
    assert first_hit(cone) == pytest.approx(10 - 2 * 0.75)


def test_a_tapered_front_lies_back():
    cabin = make(Kind.BOX, (10, 0, 0), (2, 1, 1), 1, taper=(0, 0.5, 0))
    assert first_hit(cabin) == pytest.approx(8 + 2 * 0.25)


def test_rays_beside_a_shape_miss_it():
    for kind in Kind:
        assert first_hit(make(kind, (10, 1.01, 0), (1, 1, 1), 1)) == np.inf


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_ray_enters_where_marching_along_it_first_finds_the_inside(seed):
    rng = np.random.default_rng(seed)
    shapes = random_shapes(rng, 1)
    aim = shapes.center[0] + 0.6 * shapes.half.max() * rng.uniform(-1, 1, 3)
    direction = (aim / np.linalg.norm(aim))[None].astype(np.float32)
    reach, stride = np.linalg.norm(shapes.center[0]) + 5, 0.002
    steps = np.arange(0, reach, stride)
    inside = np.flatnonzero(contains(shapes, 0, steps[:, None] * direction.astype(np.float64)))
    start, step = local_rays(shapes, np.zeros(1, np.int64), direction)
    enter, leave = span(shapes.kind, shapes.taper, start, step)
    if len(inside) > 2:
        assert enter[0] == pytest.approx(steps[inside[0]], abs=2 * stride + 1e-4 * reach)
        assert leave[0] == pytest.approx(steps[inside[-1]], abs=2 * stride + 1e-4 * reach)
    elif len(inside) == 0:
        assert leave[0] - enter[0] < 3 * stride


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_casting_by_windows_finds_what_trying_every_ray_on_every_shape_finds(seed):
    rng = np.random.default_rng(seed)
    shapes, rays = random_shapes(rng, 12), fire(COARSE, rng)
    n = len(rays.direction)
    hits = cast(shapes, rays, np.full(n, np.inf), rng)
    every = np.full((len(shapes), n), np.inf)
    for i in range(len(shapes)):
        index = np.full(n, i)
        start, step = local_rays(shapes, index, rays.direction)
        enter, leave = span(shapes.kind[index], shapes.taper[index], start, step)
        every[i] = np.where((enter <= leave) & (enter > 0), enter, np.inf)
    np.testing.assert_array_equal(hits.depth, every.min(0).astype(np.float32))
    found = np.isfinite(hits.depth)
    np.testing.assert_array_equal(hits.shape >= 0, found)
    assert (every[hits.shape[found], np.flatnonzero(found)] == hits.depth[found]).all()


def test_nothing_shows_behind_a_wall():
    rng = np.random.default_rng(0)
    wall = make(Kind.BOX, (8, 0, 0), (0.1, 20, 20), 50)
    behind = make(Kind.ELLIPSOID, rng.uniform((9, -15, -5), (30, 15, 5), (40, 3)), (1, 1, 1), 10)
    rays = fire(COARSE, rng)
    hits = cast(join([behind, wall]), rays, np.full(len(rays.direction), np.inf), rng)
    seen = hits.shape >= 0
    at_wall = seen & (np.abs(rays.direction[:, 1] / rays.direction[:, 0]) < 1)
    assert at_wall.sum() > 500
    reach = hits.depth[at_wall] * rays.direction[at_wall, 0]
    np.testing.assert_allclose(reach, 7.9, atol=1e-4)
    assert (hits.shape[at_wall & (rays.direction[:, 0] > 0)] == 40).all()


def test_a_limit_hides_what_lies_beyond_it():
    rng = np.random.default_rng(0)
    rays = fire(COARSE, rng)
    ball = make(Kind.ELLIPSOID, (10, 0, 0), (2, 2, 2), 1)
    hits = cast(ball, rays, np.full(len(rays.direction), 7.5), rng)
    assert (hits.shape == -1).all()


def test_leaves_let_rays_through_by_their_free_path():
    rng = np.random.default_rng(0)
    rays = fire(replace(COARSE, elevations=(0.001, 0.0, -0.001), columns=40_000), rng)
    crown = make(Kind.BOX, (10, 0, 0), (1, 3, 3), 70, surface=Surface.LEAVES, free_path=1.5)
    hits = cast(crown, rays, np.full(len(rays.direction), np.inf), rng)
    ahead = np.flatnonzero(np.abs(np.arctan2(*rays.direction[:, 1::-1].T)) < 0.05)
    passed = 1 - np.isfinite(hits.depth[ahead]).mean()
    # 2 m of leaves; a share of about 1900 rays, so that three deviations are 0.03.
    assert passed == pytest.approx(np.exp(-2 / 1.5), abs=0.03)
    assert hits.depth[ahead].min() > 8.99


def test_a_fence_lets_its_gaps_through():
    rng = np.random.default_rng(0)
    rays = fire(replace(COARSE, elevations=(0.0,), columns=40_000), rng)
    slats = make(Kind.BOX, (10, 0, 0), (3, 0.02, 1), 51, yaw=np.pi / 2, gap=0.4, pitch=0.15)
    hits = cast(slats, rays, np.full(len(rays.direction), np.inf), rng)
    across = 10 * np.tan(np.arctan2(*rays.direction[:, 1::-1].T))
    ahead = (np.abs(across) < 2.9) & (rays.direction[:, 0] > 0)
    assert np.isfinite(hits.depth[ahead]).mean() == pytest.approx(0.6, abs=0.02)


def test_incidence_is_the_angle_to_the_face():
    wall = make(Kind.BOX, (10, 0, 0), (1, 50, 5), 1)
    direction = np.array([[np.cos(0.7), np.sin(0.7), 0.0]], dtype=np.float32)
    cosine, point = incidence(wall, np.zeros(1, int), direction, np.array([9 / np.cos(0.7)]))
    assert cosine[0] == pytest.approx(np.cos(0.7), abs=1e-4)
    assert point[0, 0] == pytest.approx(-1, abs=1e-4)


def test_a_placed_shape_is_turned_then_shifted():
    moved = place(make(Kind.BOX, (1, 0, 0), (1, 2, 3), 1), (10, 20, 30), np.pi / 2)
    np.testing.assert_allclose(moved.center[0], (10, 21, 30), atol=1e-12)
    np.testing.assert_allclose(moved.axes[0], [[0, 1, 0], [-1, 0, 0], [0, 0, 1]], atol=1e-12)


def test_a_shape_around_the_sensor_covers_all_columns():
    rays = fire(COARSE, np.random.default_rng(0))
    cover = windows(make(Kind.BOX, (0, 0, -1), (2, 2, 0.2), 1), rays)
    assert cover.columns[0] == COARSE.columns


# Street and ground


@pytest.mark.parametrize("seed", range(6))
def test_street_places_come_back_from_the_sensor_frame(seed):
    rng = np.random.default_rng(seed)
    street = draw_plan(1.73, rng).street
    s, t = rng.uniform(-60, 60, 500), rng.uniform(-30, 30, 500)
    x, y, _ = street.point(s, t)
    back_s, back_t = street.locate(x, y)
    np.testing.assert_allclose(back_s, s, atol=1e-6)
    np.testing.assert_allclose(back_t, t, atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_rays_meet_the_ground_on_its_surface(seed):
    rng = np.random.default_rng(seed)
    street, rays = draw_plan(1.73, rng).street, fire(COARSE, rng)
    depth = strike_ground(street, rays, 80.0)
    point = (rays.direction * depth[:, None])[np.isfinite(depth)].astype(np.float64)
    assert len(point) > 0.4 * len(depth)
    off = np.abs(point[:, 2] - street.ground(point[:, 0], point[:, 1]))
    # Kerbs are steps: a few rays are left within one.
    assert np.quantile(off, 0.97) < 0.01
    assert off.max() < 0.25
    np.testing.assert_allclose(street.ground(np.zeros(1), np.zeros(1)), -1.73)


def test_a_walk_lies_its_kerb_above_the_road():
    street = draw_plan(1.73, np.random.default_rng(0)).street
    side = replace(street.left, half=4.0, verge=0.0, walk=2.0, kerb=0.12)
    flat = np.zeros((0, 4))
    street = replace(street, left=side, crossing=None, tilt=(0, 0), waves=flat, bumps=flat)
    x, y, _ = street.point(np.zeros(2), np.array([3.99, 4.06]))
    assert np.diff(street.ground(x, y))[0] == pytest.approx(0.12, abs=0.01)


# Scans


def test_the_same_seed_gives_the_same_bytes_and_another_seed_another_scan():
    first, again, other = (simulate(np.random.default_rng(seed), "hdl32") for seed in (3, 3, 4))
    assert first.coord.tobytes() == again.coord.tobytes()
    assert first.intensity.tobytes() == again.intensity.tobytes()
    assert first.label.tobytes() == again.label.tobytes()
    assert first.coord.tobytes() != other.coord.tobytes()


def test_every_class_occurs_within_eight_scans():
    labels = card("street").labels
    counts = np.zeros(len(labels), dtype=np.int64)
    for seed in range(8):
        cloud = simulate(np.random.default_rng(seed), "hdl32" if seed else "hdl64")
        classes = labels.encode(cloud.label)  # raises for an id that the card does not know
        counts += np.bincount(classes[classes >= 0], minlength=len(labels))
    assert (counts > 150).all(), dict(zip(labels.names, counts, strict=True))


@pytest.mark.parametrize("name", SENSORS)
def test_a_scan_is_as_its_sensor_says(name):
    sensor, cloud = SENSORS[name], simulate(np.random.default_rng(1), name)
    away = np.linalg.norm(cloud.coord, axis=1)
    slots = len(sensor.elevations) * sensor.columns
    assert 0.5 * slots < len(cloud) <= slots
    assert away.max() < sensor.max_range + 0.5
    assert away.min() > 0.5
    assert cloud.intensity.min() >= 0 and cloud.intensity.max() <= 1
    ring = cloud.extra["ring"]
    up = np.arcsin(cloud.coord[:, 2].astype(np.float64) / away)
    # A millimetre of rounding at arm's length.
    np.testing.assert_allclose(up, np.asarray(sensor.elevations)[ring], atol=1e-3)
    front, rear, half, drop = sensor.roof
    x, y, z = cloud.coord.T
    assert not ((x < front) & (x > -rear) & (np.abs(y) < half) & (z < -drop)).any()


def test_road_points_lie_on_the_road():
    sensor = SENSORS["hdl64"]
    street = draw_plan(sensor.height, np.random.default_rng(7)).street
    cloud = simulate(np.random.default_rng(7), sensor)
    x, y, z = cloud.coord[cloud.label == 40].T.astype(np.float64)
    off = z - street.ground(x, y)
    assert np.abs(np.median(off)) < 0.01
    assert np.quantile(np.abs(off), 0.99) < 0.05


def test_range_noise_is_as_large_as_the_sensor_says():
    still = replace(SENSORS["vlp16"], range_noise=0.0, beam_bias=0.0)
    clean = simulate(np.random.default_rng(2), still)
    noisy = simulate(np.random.default_rng(2), replace(still, range_noise=0.05))
    assert len(clean) == len(noisy)
    away, off = (np.linalg.norm(c.coord.astype(np.float64), axis=1) for c in (clean, noisy))
    # A deviation of some 20 000 draws, and a millimetre of rounding.
    assert np.std(off - away) == pytest.approx(0.05, rel=0.05)


def test_a_64_beam_scan_takes_less_than_two_seconds():
    simulate(np.random.default_rng(0), "hdl64")
    start = time.process_time()
    for seed in (1, 2):
        simulate(np.random.default_rng(seed), "hdl64")
    assert (time.process_time() - start) / 2 < 2


def test_an_unknown_sensor_is_named():
    with pytest.raises(ValueError, match="no sensor 'hdl128'; there are hdl64, hdl32"):
        simulate(np.random.default_rng(0), "hdl128")


def test_a_sensor_of_nonsense_is_refused():
    with pytest.raises(ValueError, match="columns must be at least 4"):
        replace(COARSE, columns=0)
    with pytest.raises(ValueError, match="from the top down"):
        replace(COARSE, elevations=(0.0, 0.1))
    with pytest.raises(ValueError, match="max_range must be above 0"):
        replace(COARSE, max_range=0.0)


# The dataset


def small(**changes) -> StreetDataset:
    arguments = {"num_train": 3, "num_val": 2, "num_test": 1, "sensors": ("vlp16", "hdl32")}
    return StreetDataset(**{**arguments, **changes})


def test_scans_are_named_by_split_and_number():
    data = small()
    assert data.scans("train") == [f"street/train/00000{i}" for i in range(3)]
    assert data.scans("test") == ["street/test/000000"]
    with pytest.raises(ValueError, match="no split 'trian'; there are train, val, test"):
        data.scans("trian")
    for wrong in ("street/train/x", "train/000001", "street/other/000001"):
        with pytest.raises(ValueError, match="names are like street/train/000012"):
            data.read(wrong)


def test_a_scan_follows_from_seed_split_and_number_alone():
    scan = "street/train/000001"
    first = small().read(scan)
    assert first.coord.tobytes() == small(num_train=2).read(scan).coord.tobytes()
    others = [small(seed=1).read(scan), small().read("street/val/000001")]
    assert all(first.coord.tobytes() != other.coord.tobytes() for other in others)


def test_sensors_take_turns():
    data = small()
    rings = [data.read(f"street/train/00000{i}").extra["ring"].max() for i in range(3)]
    assert rings == [15, 31, 15]


def test_a_cached_scan_is_the_scan(tmp_path):
    scan = "street/val/000001"
    drawn, kept = small().read(scan), small(cache=tmp_path)
    for _ in range(2):
        cloud = kept.read(scan)
        np.testing.assert_array_equal(cloud.coord, drawn.coord)
        np.testing.assert_array_equal(cloud.intensity, drawn.intensity)
        np.testing.assert_array_equal(cloud.label, drawn.label)
        np.testing.assert_array_equal(cloud.extra["ring"], drawn.extra["ring"])
        assert cloud.label.dtype == drawn.label.dtype
    assert len(list(tmp_path.rglob("*"))) == 3  # two folders and one file, no half one


def test_caches_of_other_seeds_and_sensors_are_not_mixed_up(tmp_path):
    scan = "street/val/000000"
    first = small(cache=tmp_path).read(scan)
    for other in (small(cache=tmp_path, seed=1), small(cache=tmp_path, sensors=("hdl32",))):
        assert len(other.read(scan)) != len(first)


def test_arguments_of_nonsense_are_refused():
    with pytest.raises(ValueError, match="num_val must be 0 or above, found -1"):
        small(num_val=-1)
    with pytest.raises(ValueError, match="seed must be 0 or above"):
        small(seed=-1)
    with pytest.raises(ValueError, match="found hdl128"):
        small(sensors=("hdl64", "hdl128"))
    with pytest.raises(ValueError, match="found none"):
        small(sensors=())


def test_a_real_scan_can_be_scored_with_the_card(real_data):
    labels = real_data / "open-mmlab__mmdetection3d/tests/data/semantickitti/sequences/00/labels"
    raw = np.fromfile(labels / "000000.label", dtype="<u4").astype(np.int64) & 0xFFFF
    classes = card("street").labels.encode(raw)
    assert (classes >= 0).mean() > 0.9
