import json
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pctx.geometry import sampling
from pctx.geometry.packed import offsets_from_counts
from pctx.geometry.sampling import farthest_points, plain_farthest_points, strided_counts

GOLDEN = ["ptv1_seg26", "ptv1_seg26_missing_neighbours", "ptv1_stride2_k8"]
SEEDS = st.integers(0, 2**16)
COUNTS = st.lists(st.sampled_from([0, 1, 2, 3, 30, 90]), max_size=4)


def uniform(rng, n):
    return rng.uniform(-1, 1, (n, 3))


def cells(rng, n):
    return rng.integers(0, 4, (n, 3))  # ties and copies


def line(rng, n):
    return np.outer(rng.permutation(n), [0.1, 0.3, 0.7])


def copies(rng, n):
    return np.zeros((n, 3)) + rng.uniform(-1, 1, 3)


def clumps(rng, n):
    return rng.uniform(-100, 100, (5, 3))[rng.integers(0, 5, n)] + 0.01 * rng.normal(size=(n, 3))


def scales(rng, n):
    return rng.normal(size=(n, 3)) * 10.0 ** rng.uniform(-6, 4, (n, 1))


def underflowing(rng, n):
    return 1e-22 * rng.normal(size=(n, 3))  # squares at and below the least float32


SHAPES = st.sampled_from([uniform, cells, line, copies, clumps, scales, underflowing])
DTYPES = st.sampled_from([torch.float32, torch.float64])


def pack(shape, counts, seed, dtype=torch.float32):
    rng = np.random.default_rng(seed)
    clouds = [torch.from_numpy(np.asarray(shape(rng, n), np.float64)) for n in counts]
    coord = torch.cat([torch.zeros(0, 3, dtype=torch.float64), *clouds]).to(dtype)
    return coord, offsets_from_counts(torch.tensor(counts, dtype=torch.int64))


def some_counts(counts, seed):
    rng = np.random.default_rng(seed)
    return torch.tensor([int(rng.choice([0, n, rng.integers(n + 1)])) for n in counts]).long()


def single(cloud, count):
    offsets = torch.tensor([0, len(cloud)])
    return farthest_points(cloud, offsets, torch.tensor([count]))[0].tolist()


def squared_distances(coord):
    dx, dy, dz = (coord[:, None] - coord).unbind(-1)
    return (dx * dx + dy * dy) + dz * dz


def thin_bands():
    """Let small clouds go through many bands, and through bands of too many pairs."""
    return patch.multiple(sampling, _SINGLE_STEPS=2, _BAND_SHARE=6, _BAND_PAIRS=60)


@given(shape=SHAPES, counts=COUNTS, seed=SEEDS, dtype=DTYPES)
def test_bands_find_the_samples_of_single_steps(shape, counts, seed, dtype):
    coord, offsets = pack(shape, counts, seed, dtype)
    wanted = some_counts(counts, seed)
    plain, limits = plain_farthest_points(coord, offsets, wanted)
    assert limits.diff().tolist() == wanted.tolist()
    for bands in (thin_bands(), patch.object(sampling, "_SINGLE_STEPS", 1)):
        with bands:
            index, found = farthest_points(coord, offsets, wanted)
        assert torch.equal(index, plain) and torch.equal(found, limits)
        assert index.dtype == torch.int64


@given(shape=SHAPES, n=st.integers(1, 40), seed=SEEDS)
def test_each_sample_is_the_farthest_from_those_before(shape, n, seed):
    coord, _ = pack(shape, [n], seed)
    samples, squared = single(coord, n), squared_distances(coord)
    assert samples[0] == 0
    for i in range(1, n):
        rest = sorted(set(range(n)) - set(samples[:i]))
        nearest = {row: float(squared[row, samples[:i]].min()) for row in rest}
        assert samples[i] == max(rest, key=lambda row: (nearest[row], -row))


@given(shape=SHAPES, n=st.integers(1, 60), seed=SEEDS)
def test_samples_are_distinct_and_all_points_are_a_permutation(shape, n, seed):
    coord, _ = pack(shape, [n], seed)
    with thin_bands():
        assert sorted(single(coord, n)) == list(range(n))


@given(shape=SHAPES, n=st.integers(1, 60), seed=SEEDS)
def test_fewer_samples_are_the_first_of_more(shape, n, seed):
    coord, _ = pack(shape, [n], seed)
    with thin_bands():
        every = single(coord, n)
        assert all(single(coord, count) == every[:count] for count in range(n))


@given(shape=SHAPES, seed=SEEDS)
def test_the_cover_radius_is_where_the_next_sample_lies_and_never_grows(shape, seed):
    coord, _ = pack(shape, [80], seed)
    with thin_bands():
        samples = single(coord, 80)
    from_sample = squared_distances(coord)[samples]
    from_nearest = from_sample.cummin(0).values
    radius = from_nearest.amax(1)
    assert torch.equal(radius[:-1], from_nearest[range(79), samples[1:]])
    assert (radius.diff() <= 0).all()


@given(shape=SHAPES, counts=COUNTS, seed=SEEDS)
def test_a_cloud_is_sampled_as_alone(shape, counts, seed):
    coord, offsets = pack(shape, counts, seed)
    wanted = some_counts(counts, seed)
    for sample in (farthest_points, plain_farthest_points):
        index, limits = sample(coord, offsets, wanted)
        for i in range(len(counts)):
            cloud = coord[offsets[i] : offsets[i + 1]]
            alone, _ = sample(cloud, torch.tensor([0, len(cloud)]), wanted[i : i + 1])
            assert torch.equal(index[limits[i] : limits[i + 1]] - offsets[i], alone)


def test_equal_distances_go_to_the_lowest_row():
    square = torch.tensor([[0, 0, 0], [0, 1, 0], [1, 0, 0], [-1, 0, 0], [0, -1, 0]]).float()
    assert single(square, 5) == [0, 1, 2, 3, 4]
    assert single(square[[1, 0, 3, 2, 4]], 5) == [0, 4, 2, 3, 1]


@pytest.mark.parametrize("seed", [5, 16, 28])
def test_ties_at_the_limit_of_a_band_keep_their_order(seed):
    # With these seeds a point falls to the limit of its band, beside a lower row left out of it.
    cloud = torch.from_numpy(np.random.default_rng(seed).integers(0, 8, (1000, 3))).float()
    plain, _ = plain_farthest_points(cloud, torch.tensor([0, 1000]), torch.tensor([500]))
    with patch.multiple(sampling, _SINGLE_STEPS=1, _BAND_SHARE=2):
        assert single(cloud, 500) == plain.tolist()


def test_distances_that_underflow_are_compared_as_rounded():
    # Squares in units of the least float32: all three tie at 1 from the first, and rows 1 and 2,
    # more than 1 apart, round to 0.
    a, h = 2**0.5 * 2**-75, 2**-75
    cloud = torch.tensor([[0, 0, 0], [a, 0, 0], [a - 0.4 * h, h, h], [-a, 0, 0]])
    with patch.object(sampling, "_SINGLE_STEPS", 1):
        assert single(cloud, 4) == [0, 1, 3, 2]


def test_copies_come_last_and_in_order():
    cloud = torch.tensor([[0, 0, 0], [0, 0, 0], [5, 0, 0], [0, 0, 0], [5, 0, 0]]).float()
    for steps in (1, 256):
        with patch.object(sampling, "_SINGLE_STEPS", steps):
            assert single(cloud, 5) == [0, 2, 1, 3, 4]


def test_distances_round_as_in_float32_unless_coord_is_float64():
    # 1 + 1e-8 is 1 in float32: a tie, which the lower row wins.
    cloud = torch.tensor([[0, 0, 0], [1, 0, 0], [1, 1e-4, 0]], dtype=torch.float64)
    assert single(cloud, 2) == [0, 2]
    assert single(cloud.float(), 2) == [0, 1]
    assert single(cloud.float().requires_grad_(), 2) == [0, 1]


def lattice(side):
    return torch.cartesian_prod(*[torch.arange(side)] * 3).float() * 0.05


def far_point(n):
    coord, _ = pack(uniform, [n], 0)
    coord[7] = 1e9
    return coord


def shell(n):
    # All points tie, or nearly, in one hole: more pairs than a band may hold.
    coord, _ = pack(uniform, [n], 0)
    coord = torch.nn.functional.normalize(coord)
    coord[0] = 0
    return coord


@pytest.mark.parametrize(
    ("cloud", "count"),
    [(lattice(16), 1400), (far_point(4000), 1000), (shell(4000), 700), (lattice(9), 729)],
    ids=["lattice", "far point", "shell", "whole lattice"],
)
def test_hard_clouds_are_sampled_as_by_single_steps(cloud, count):
    offsets, counts = torch.tensor([0, len(cloud)]), torch.tensor([count])
    plain, _ = plain_farthest_points(cloud, offsets, counts)
    with patch.object(sampling, "_BAND_PAIRS", 1 << 14):
        assert torch.equal(farthest_points(cloud, offsets, counts)[0], plain)


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("sample", [farthest_points, plain_farthest_points])
def test_samples_equal_the_published_ones(golden, name, sample):
    with np.load(golden / f"{name}.npz") as data:
        strides = json.loads(str(data["meta/json"]))["config"]["stride"]
        coord = torch.from_numpy(data["input/coord"])
        offsets = offsets_from_counts(torch.from_numpy(np.diff(data["input/offset"], prepend=0)))
    with (
        np.load(golden / f"{name}_stages.npz") as stages,
        patch.object(sampling, "_SINGLE_STEPS", 8),
    ):
        for level in range(1, len(strides)):
            counts = strided_counts(offsets, strides[level])
            index, offsets = sample(coord, offsets, counts)
            coord = coord[index]
            assert np.array_equal(index, stages[f"level/{level}/fps_index"])
            assert np.array_equal(coord, stages[f"level/{level}/coord"])
            assert np.array_equal(offsets[1:], stages[f"level/{level}/offset"])


def test_a_real_scan_is_sampled_as_by_single_steps(real_data):
    path = "open-mmlab__mmdetection3d/tests/data/semantickitti/sequences/00/velodyne/000000.bin"
    scan = np.fromfile(real_data / path, np.float32).reshape(-1, 4)[::6, :3]
    coord, offsets = torch.from_numpy(scan.copy()), torch.tensor([0, len(scan)])
    counts = strided_counts(offsets, 8)
    plain, _ = plain_farthest_points(coord, offsets, counts)
    assert torch.equal(farthest_points(coord, offsets, counts)[0], plain)


def test_counts_by_stride_round_down():
    offsets = torch.tensor([0, 0, 3, 7, 15])
    assert strided_counts(offsets, 4).tolist() == [0, 0, 1, 2]
    assert strided_counts(offsets, 1).tolist() == [0, 3, 4, 8]
    with pytest.raises(ValueError, match="stride must be a whole number of at least 1, found 0"):
        strided_counts(offsets, 0)


def test_counts_must_fit_the_clouds():
    coord, offsets = pack(uniform, [4, 3], 0)
    for sample in (farthest_points, plain_farthest_points):
        for counts, message in [
            ([4, 4], "cloud 1 has 3 points, but 4 are to be sampled"),
            ([-1, 0], "cloud 0 has 4 points, but -1 are to be sampled"),
            ([4], "counts must be one a cloud, found 1 for 2 clouds"),
        ]:
            with pytest.raises(ValueError, match=message):
                sample(coord, offsets, torch.tensor(counts))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e19])
def test_points_that_cannot_be_compared_are_counted(value):
    coord, offsets = pack(uniform, [6], 0)
    coord[1, 0] = coord[3, 2] = value
    with pytest.raises(ValueError, match="2 of 6 points are not finite, or beyond 5e"):
        farthest_points(coord, offsets, torch.tensor([2]))


def test_the_largest_coordinates_do_not_overflow():
    cloud = torch.tensor([[-5e18] * 3, [0.0] * 3, [5e18] * 3])
    with patch.object(sampling, "_SINGLE_STEPS", 1):
        assert single(cloud, 3) == [0, 2, 1]
