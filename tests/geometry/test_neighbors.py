import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pctx.data.io.formats import read
from pctx.geometry import neighbor_search
from pctx.geometry.neighbors import Neighborhood, interpolation_weights, knn, plain_knn, radius
from pctx.geometry.packed import offsets_from_counts

COUNTS = st.lists(st.integers(0, 12), max_size=4)
SEEDS = st.integers(0, 2**32 - 1)
KS = st.integers(1, 8)


def scattered(rng, n):
    return rng.standard_normal((n, 3))


def on_a_grid(rng, n):
    return rng.integers(0, 4, (n, 3)).astype(float)


def repeated(rng, n):
    """Each third point lies on the first, and others on one another."""
    coord = rng.integers(-2, 3, (n, 3)) * 0.1
    coord[::3] = coord[:1]
    return coord


def far_away(rng, n):
    """In survey coordinates, as float32 has them."""
    return (rng.standard_normal((n, 3)) + np.array([4e5, 6e6, 100])).astype(np.float32)


def on_a_sphere(rng, n):
    """All as far from the first, but for rounding."""
    coord = rng.standard_normal((n, 3))
    coord /= np.linalg.norm(coord, axis=1, keepdims=True)
    coord[:1] = 0
    return coord


def of_any_size(rng, n):
    """So small that squares vanish, or large."""
    return rng.standard_normal((n, 3)) * 10.0 ** rng.integers(-170, 140)


SHAPES = [scattered, on_a_grid, repeated, far_away, on_a_sphere, of_any_size]


def random_clouds(shape, counts, rng):
    clouds = [np.zeros((0, 3)), *(shape(rng, n) for n in counts)]
    return torch.from_numpy(np.concatenate(clouds)), offsets_from_counts(
        torch.tensor(counts).long()
    )


def by_lists(coord, offsets, query, query_offsets, k, limit=math.inf):
    """Sort the points of each query's cloud by (distance, row): the k nearest rows in reach."""
    found = []
    clouds = zip(pairwise(offsets.tolist()), pairwise(query_offsets.tolist()), strict=True)
    for (start, end), (first, last) in clouds:
        for x, y, z in query[first:last].double().tolist():
            deltas = [(a - x, b - y, c - z) for a, b, c in coord[start:end].double().tolist()]
            away = sorted((a * a + b * b + c * c, start + i) for i, (a, b, c) in enumerate(deltas))
            found.append([row for d2, row in away[:k] if math.sqrt(d2) <= limit])
    return found


def rows(neighborhood):
    """Return the real neighbours of each query, checking that they come first."""
    valid = neighborhood.valid
    if valid is None:
        return neighborhood.index.tolist()
    assert not valid.all() and (valid.int().diff(dim=1) <= 0).all()
    return [row[mask].tolist() for row, mask in zip(neighborhood.index, valid, strict=True)]


def assert_same(found, expected):
    assert torch.equal(found.index, expected.index)
    assert torch.equal(found.distance, expected.distance)
    assert (found.valid is None) == (expected.valid is None)
    assert found.valid is None or torch.equal(found.valid, expected.valid)


@given(shape=st.sampled_from(SHAPES[:4]), counts=COUNTS, k=KS, seed=SEEDS)
def test_neighbours_are_the_nearest_of_the_cloud_ties_by_row(shape, counts, k, seed):
    coord, offsets = random_clouds(shape, counts, np.random.default_rng(seed))
    expected = by_lists(coord, offsets, coord, offsets, k)
    assert rows(knn(coord, offsets, k)) == expected
    assert rows(plain_knn(coord, offsets, k)) == expected


@given(counts=st.lists(st.tuples(*[st.integers(0, 9)] * 2), max_size=4), k=KS, seed=SEEDS)
def test_queries_search_the_cloud_of_their_own_number(counts, k, seed):
    rng = np.random.default_rng(seed)
    coord, offsets = random_clouds(on_a_grid, [n for n, _ in counts], rng)
    query, query_offsets = random_clouds(repeated, [n for _, n in counts], rng)
    for search in (knn, plain_knn):
        found = search(coord, offsets, k, query=query, query_offsets=query_offsets)
        assert rows(found) == by_lists(coord, offsets, query, query_offsets, k)


@given(
    shape=st.sampled_from(SHAPES[:4]),
    counts=COUNTS,
    k=KS,
    seed=SEEDS,
    r=st.sampled_from([0.1, 0.5, 1, 2**0.5, 3**0.5, math.inf]),
)
def test_a_radius_holds_the_nearest_up_to_it_and_itself(shape, counts, k, seed, r):
    coord, offsets = random_clouds(shape, counts, np.random.default_rng(seed))
    found = radius(coord, offsets, r, k)
    assert rows(found) == by_lists(coord, offsets, coord, offsets, k, r)
    assert (found.distance[found.distance < math.inf] <= r).all()


@pytest.mark.parametrize("chunk", [500, 1 << 20])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_tree_equals_its_twin(shape, chunk, monkeypatch):
    # A thousand clouds in all. In small chunks the tree goes through its queries bit by bit.
    monkeypatch.setattr(neighbor_search, "_CHUNK", chunk)
    rng = np.random.default_rng(chunk)
    for _ in range(5):
        counts, asked = rng.integers(0, 41, (2, 17)).tolist()
        counts[0] = 200
        k = int(rng.integers(1, 20))
        coord, offsets = random_clouds(shape, counts, rng)
        assert_same(knn(coord, offsets, k), plain_knn(coord, offsets, k))
        query, query_offsets = random_clouds(shape, asked, rng)
        other = {"query": query, "query_offsets": query_offsets}
        expected = plain_knn(coord, offsets, k, **other)
        assert_same(knn(coord, offsets, k, **other), expected)
        # A radius at which some neighbour lies exactly.
        r = float(expected.distance[expected.distance < math.inf].median()) or 1.0
        found = radius(coord, offsets, r, k, **other)
        within = expected.distance <= r
        assert torch.equal(found.distance <= r, within)
        assert torch.equal(found.index[within], expected.index[within])


def test_ties_by_the_hundred_are_broken_by_row():
    span = torch.arange(-15, 16)
    coord = torch.cartesian_prod(span, span, span)
    coord = coord[(coord**2).sum(1) == 209]  # 240 points, as far from 0
    assert len(coord) == 240
    query, one = torch.zeros(1, 3), torch.tensor([0, 1])
    found = knn(coord, torch.tensor([0, 240]), 5, query=query, query_offsets=one)
    assert found.index.tolist() == [[0, 1, 2, 3, 4]]


def test_whatever_order_the_tree_returns_rows_ascend_by_distance_and_row(monkeypatch):
    class Reversed(neighbor_search.cKDTree):
        def query(self, *args, **kwargs):
            distance, index = super().query(*args, **kwargs)
            return distance[:, ::-1], index[:, ::-1]

    coord, offsets = random_clouds(on_a_grid, [50, 30], np.random.default_rng(0))
    expected = knn(coord, offsets, 6)
    monkeypatch.setattr(neighbor_search, "cKDTree", Reversed)
    assert_same(knn(coord, offsets, 6), expected)


def test_of_equal_points_only_the_first_k_are_searched():
    coord = np.zeros((5000, 3))
    coord[::100] = np.arange(50)[:, None]
    kept = neighbor_search._eligible(coord, 4)
    assert kept.tolist() == sorted([0, 1, 2, 3, *range(100, 5000, 100)])
    packed, offsets = torch.from_numpy(coord), torch.tensor([0, 5000])
    assert knn(packed, offsets, 4).index[1::100].tolist() == [[0, 1, 2, 3]] * 50


@pytest.mark.parametrize("search", [knn, plain_knn, lambda *a: radius(a[0], a[1], 0.7, a[2])])
def test_a_cloud_is_searched_as_if_it_were_alone(search):
    coord, offsets = random_clouds(scattered, [7, 0, 30, 3], np.random.default_rng(0))
    packed = search(coord, offsets, 5)
    for start, end in pairwise(offsets.tolist()):
        alone = search(coord[start:end], torch.tensor([0, end - start]), 5)
        assert torch.equal(alone.index + start, packed.index[start:end])
        assert torch.equal(alone.distance, packed.distance[start:end])


def test_threads_change_nothing(monkeypatch):
    coord, offsets = random_clouds(on_a_grid, [300, 200], np.random.default_rng(0))
    expected = knn(coord, offsets, 7)
    monkeypatch.setattr(neighbor_search, "_ROWS_A_THREAD", 10)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert_same(knn(coord, offsets, 7), expected)


@pytest.mark.parametrize("search", [knn, plain_knn])
def test_missing_neighbours_name_the_first_point_and_are_infinitely_far(search):
    coord = torch.tensor([[0.0, 0, 0], [5, 0, 0], [5, 0, 3]])
    offsets, query_offsets = torch.tensor([0, 1, 3, 3]), torch.tensor([0, 0, 1, 2])
    found = search(coord, offsets, 3, query=coord[2:].repeat(2, 1), query_offsets=query_offsets)
    assert found.index.tolist() == [[2, 1, 1], [0, 0, 0]]
    assert found.valid.tolist() == [[True, True, False], [False, False, False]]
    assert found.distance.tolist() == [[0, 3, math.inf], [math.inf] * 3]


@pytest.mark.parametrize("search", [knn, plain_knn, lambda *a: radius(a[0], a[1], 1.0, a[2])])
@pytest.mark.parametrize("clouds", [0, 1, 3])
def test_no_point_has_no_neighbour(search, clouds):
    found = search(torch.zeros(0, 3), torch.zeros(clouds + 1).long(), 4)
    assert found.index.shape == found.distance.shape == (0, 4) and found.valid is None


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.int16, torch.float32),
        (torch.int64, torch.float32),
        (torch.bfloat16, torch.bfloat16),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_dtype_and_strides_do_not_matter(dtype, expected):
    coord, offsets = random_clouds(on_a_grid, [30, 20], np.random.default_rng(0))
    strided = coord.to(dtype).t().contiguous().t()
    for search in (knn, plain_knn):
        found = search(strided.requires_grad_(strided.is_floating_point()), offsets, 5)
        assert torch.equal(found.index, knn(coord, offsets, 5).index)
        assert found.distance.dtype == expected and not found.distance.requires_grad


def test_a_radius_is_compared_in_float64_and_holds_its_limit():
    coord, offsets = torch.tensor([[0, 0, 0], [1, 1, 1], [0.1, 0, 0]]), torch.tensor([0, 3])
    # 3**0.5 squared rounds below 3, and the float32 next to 0.1 lies above it.
    assert rows(radius(coord, offsets, 3**0.5, 3))[0] == [0, 2, 1]
    assert rows(radius(coord, offsets, 0.1, 3))[0] == [0]
    assert rows(radius(coord.double(), offsets, 1e-200, 3)) == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "k must be a whole number of at least 1, found 0"),
        ({"k": 2.5}, "k must be a whole number of at least 1, found 2.5"),
        ({"k": math.nan}, "k must be a whole number of at least 1, found nan"),
        ({"coord": torch.zeros(3, 2)}, r"coord must be \(n, 3\), found \(3, 2\)"),
        ({"offsets": torch.tensor([0, 2])}, r"offsets must .* from 0 to 3, found \[0, 2\]"),
        ({"offsets": torch.tensor([0, 2, 1, 3])}, "offsets must be integers that ascend"),
        ({"offsets": torch.tensor([1, 3])}, "offsets must be integers that ascend"),
        ({"offsets": torch.tensor([0.0, 3])}, "offsets must be integers that ascend"),
        ({"offsets": torch.tensor([[0, 3]])}, "offsets must be integers that ascend"),
        ({"offsets": torch.zeros(0).long()}, r"offsets must be integers .* found \[\]"),
        ({"query": torch.zeros(3, 3)}, "query and query_offsets must be given together"),
        ({"query_offsets": torch.tensor([0, 3])}, "query and query_offsets must be given together"),
        (
            {"query": torch.zeros(3, 3), "query_offsets": torch.tensor([0, 4])},
            "query_offsets must be integers that ascend from 0 to 3",
        ),
        (
            {"query": torch.zeros(3, 3), "query_offsets": torch.tensor([0, 1, 3])},
            "query_offsets must have as many clouds as offsets, found 2 and 1",
        ),
        (
            {"query": torch.zeros(3), "query_offsets": torch.tensor([0, 3])},
            r"query must be \(n, 3\), found \(3,\)",
        ),
        (
            {"coord": torch.tensor([[0.0, 0, 0], [1, math.nan, 2], [3, 3, 3]])},
            r"coord must be finite.* found \[1.0, nan, 2.0\] in row 1",
        ),
        (
            {"query": torch.tensor([[-math.inf, 0, 0]]), "query_offsets": torch.tensor([0, 1])},
            r"query must be finite.* found \[-inf, 0.0, 0.0\] in row 0",
        ),
        ({"coord": torch.full((3, 3), 1e200, dtype=torch.float64)}, r"below 1e\+150 in size"),
    ],
)
@pytest.mark.parametrize("search", [knn, plain_knn])
def test_what_does_not_fit_is_named(search, change, message):
    arguments = {"coord": torch.zeros(3, 3), "offsets": torch.tensor([0, 3]), "k": 2} | change
    with pytest.raises(ValueError, match=message):
        search(**arguments)


@pytest.mark.parametrize("r", [0.0, -1.0, math.nan])
def test_a_radius_is_above_zero(r):
    with pytest.raises(ValueError, match="r must be above 0, found"):
        radius(torch.zeros(3, 3), torch.tensor([0, 3]), r, 2)
    with pytest.raises(ValueError, match="max_k must be a whole number of at least 1, found 0"):
        radius(torch.zeros(3, 3), torch.tensor([0, 3]), 1.0, 0)


def test_weights_are_inverse_distances_over_the_real_places():
    neighborhood = Neighborhood(
        index=torch.zeros(4, 3).long(),
        valid=torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 0], [0, 0, 0]]).bool(),
        distance=torch.tensor([[1, 2, 4], [0.5, 0.5, math.inf], [0, 1, 0], [0, 0, 0]]),
    )
    weights = interpolation_weights(neighborhood)
    expected = torch.tensor([[4 / 7, 2 / 7, 1 / 7], [0.5, 0.5, 0], [1, 1e-8, 0], [0, 0, 0]])
    torch.testing.assert_close(weights, expected)


def test_weights_of_a_point_on_another_are_finite_in_half_precision():
    distance = torch.tensor([[0.0, 1.0]], dtype=torch.float16)
    neighborhood = Neighborhood(index=torch.zeros(1, 2).long(), valid=None, distance=distance)
    weights = interpolation_weights(neighborhood)
    assert weights.tolist() == [[1.0, 0.0]] and weights.dtype == torch.float16


def test_weights_need_distances():
    neighborhood = Neighborhood(index=torch.zeros(1, 2).long(), valid=None)
    with pytest.raises(ValueError, match=r"neighborhood\.distance must be given"):
        interpolation_weights(neighborhood)


@pytest.mark.parametrize(
    "case", ["ptv1_seg26", "ptv2m1_base", "ptv2m2_base", "ptv2m2_interp_missing_neighbours"]
)
def test_neighbours_are_those_of_the_published_models(golden, case):
    with np.load(golden / f"{case}.npz") as data, np.load(golden / f"{case}_stages.npz") as stages:
        coord = torch.from_numpy(data["input/coord"])
        offsets = torch.tensor([0, *data["input/offset"].tolist()])
        expected = torch.from_numpy(stages["level/0/knn_index"]).long()
    found = knn(coord, offsets, expected.shape[1])
    assert found.valid is None and torch.equal(found.index, expected)


KITTI = "open-mmlab__mmdetection3d/tests/data/semantickitti/sequences/00/velodyne/000000.bin"
AERIAL = "IGNF__ign-pdal-tools/test/data/test_data_77050_627760_LA93_IGN69.laz"


@pytest.mark.parametrize("scan", [KITTI, AERIAL])
def test_real_scans_are_searched_as_by_brute_force(real_data, scan):
    coord = torch.from_numpy(read(real_data / scan).coord)
    some = coord[torch.randperm(len(coord), generator=torch.Generator().manual_seed(0))[:3000]]
    offsets = torch.tensor([0, 2000, 3000])
    assert_same(knn(some, offsets, 16), plain_knn(some, offsets, 16))
    cells = torch.floor(some / 0.5).long()
    assert_same(knn(cells, offsets, 16), plain_knn(cells, offsets, 16))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("pairs", [0, 1 << 30])
def test_a_gpu_finds_the_same(monkeypatch, pairs):
    monkeypatch.setattr(neighbor_search, "_PAIRS_ON_GPU", pairs)
    coord, offsets = random_clouds(on_a_grid, [300, 0, 5], np.random.default_rng(0))
    found = knn(coord.cuda(), offsets.cuda(), 7)
    assert found.index.is_cuda
    assert_same(found.to("cpu"), knn(coord, offsets, 7))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_neighbours_infinitely_far_weigh_alike(dtype):
    distance = torch.tensor([[torch.inf, torch.inf], [torch.inf, torch.inf], [1, torch.inf]])
    valid = torch.tensor([[True, True], [True, False], [True, True]])
    around = Neighborhood(index=torch.zeros(3, 2).long(), valid=valid, distance=distance.to(dtype))
    assert interpolation_weights(around).tolist() == [[0.5, 0.5], [1, 0], [1, 0]]


def test_a_neighbourhood_is_cut_to_the_nearest_and_to_some_queries():
    coord = torch.from_numpy(scattered(np.random.default_rng(0), 12))
    offsets = torch.tensor([0, 9, 12])
    found = knn(coord, offsets, 5)
    for cut, expected in (
        (found.first(3), knn(coord, offsets, 3)),
        (found.rows(torch.tensor([10, 0])), found),
    ):
        rows = slice(None) if expected is not found else [10, 0]
        assert torch.equal(cut.index, expected.index[rows])
        assert torch.equal(cut.distance, expected.distance[rows])
    assert torch.equal(found.first(4).valid, found.valid[:, :4])
    bare = Neighborhood(index=found.index, valid=None)
    assert bare.first(2).valid is None and bare.rows(torch.tensor([1])).distance is None
