"""The compiled kernel gives the bytes of its plain twins, whatever the points; none needs it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pctx.geometry import compiled_grid, grid, voxel_values
from pctx.geometry.compiled import kernel
from pctx.geometry.compiled_grid import compiled_agrees, compiled_suits
from pctx.geometry.grid import voxelize

FIELDS = ("order", "starts", "grid_coord", "inverse")


@pytest.fixture(scope="module")
def compiled():
    if compiled_grid._library() is None:
        pytest.skip("there is no C compiler, or no cache")
    assert compiled_agrees()


@pytest.fixture
def without_library():
    caches = (kernel, compiled_grid._library, compiled_agrees)
    for each in caches:
        each.cache_clear()
    yield
    for each in caches:
        each.cache_clear()


def both_ways(work):
    """Do work by the kernel, whatever the size, and by its twins."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_grid, "COMPILED_FROM", 1)
        by_kernel = work()
        for module in (grid, voxel_values):
            patch.setattr(module, "compiled_suits", lambda *_: False)
        return by_kernel, work()


def everything(coord, grid_size, seed=0):
    rng = np.random.default_rng(seed)
    voxels = voxelize(coord, grid_size)
    results = [getattr(voxels, name) for name in FIELDS]
    for c in (1, 3, 4, 7):
        rows = rng.normal(size=(len(coord), c)).astype(np.float32)
        rows[::5] *= -0.0
        for values in (rows, np.asfortranarray(rows)):
            results.append(voxel_values.voxel_means(values, voxels))
            results.append(voxel_values.take_rows(values, voxels.first))
    for classes in (1, 3, 40):
        label = rng.integers(-1, classes, len(coord))
        results.append(voxel_values.voxel_labels(label, voxels))
    return [*results, voxel_values.draw_points(voxels, rng)]


def assert_same_bytes(found, expected):
    for ours, plain in zip(found, expected, strict=True):
        assert ours.dtype == plain.dtype and ours.shape == plain.shape
        assert ours.tobytes() == plain.tobytes()


@pytest.mark.usefixtures("compiled")
@given(
    n=st.integers(1, 700),
    spread=st.sampled_from([0.0, 0.3, 4.0, 1000.0]),
    middle=st.sampled_from([0.0, -7.5, 4e5]),
    grid_size=st.sampled_from([0.05, 0.1, 1.0, 3.0]),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 2**32 - 1),
)
def test_bytes_are_those_of_numpy(n, spread, middle, grid_size, dtype, seed):
    rng = np.random.default_rng(seed)
    coord = (middle + rng.uniform(-spread, spread, (n, 3)) * [1, 1, 0.1]).astype(dtype)
    assert_same_bytes(*both_ways(lambda: everything(coord, grid_size, seed)))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("turn", [np.ascontiguousarray, np.asfortranarray, lambda c: c[::-1]])
def test_points_may_lie_in_memory_as_they_like(turn):
    coord = np.random.default_rng(0).uniform(-5, 5, (5000, 3)).astype(np.float32)
    columns = np.zeros((5000, 5), np.float32)
    columns[:, 1:4] = coord
    for each in (turn(coord), columns[:, 1:4]):
        assert compiled_suits(each, np.float32)
        assert_same_bytes(*both_ways(lambda each=each: everything(each, 0.3)))


@pytest.mark.usefixtures("compiled")
def test_products_are_those_of_numpy_but_for_their_rounding():
    rng = np.random.default_rng(0)
    coord, matrix = rng.normal(size=(5000, 3)).astype(np.float32), rng.normal(size=(3, 3))
    for each in (coord, np.asfortranarray(coord)):
        found = compiled_grid.multiply(each, matrix.astype(np.float32).T)
        # Three products and two sums of numbers up to 4.
        np.testing.assert_allclose(found, coord.astype(np.float64) @ matrix.T, rtol=0, atol=4e-6)
    eye = np.eye(3, dtype=np.float32)
    assert compiled_grid.multiply(coord, eye).tobytes() == coord.tobytes()


@pytest.mark.usefixtures("compiled")
def test_points_in_faces_of_voxels_are_told_apart_alike():
    # Whole centimetres in voxels of 10 cm: divided in float32, many would lie in the next one.
    coord = (np.random.default_rng(0).integers(-5000, 5000, (6000, 3)) / 100).astype(np.float32)
    assert_same_bytes(*both_ways(lambda: everything(coord, 0.1)))


@pytest.mark.usefixtures("compiled")
def test_one_crowded_voxel_is_averaged_in_the_order_of_its_points():
    coord = np.random.default_rng(0).uniform(0, 1, (20_000, 3)).astype(np.float32)
    assert_same_bytes(*both_ways(lambda: everything(coord, 2.0)))


@pytest.mark.usefixtures("compiled")
def test_more_bits_than_a_word_has_are_left_to_numpy():
    coord = np.random.default_rng(0).uniform(0, 2**21 - 2, (5000, 3))
    assert_same_bytes(*both_ways(lambda: everything(coord, 1.0)))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 300, 4999])
def test_what_is_not_finite_is_counted_wherever_it_is(value, place):
    coord = np.zeros((5000, 3), np.float32)
    coord[place, place % 3] = value
    with pytest.raises(ValueError, match="1 of 5000 points are not finite"):
        voxelize(coord, 0.1)


@pytest.mark.usefixtures("compiled")
def test_what_does_not_suit_is_left_to_numpy():
    coord = np.zeros((5000, 3), np.float32)
    assert compiled_suits(coord, np.float32, np.float64)
    assert not compiled_suits(coord[:100], np.float32)
    assert not compiled_suits(coord.astype(np.int64), np.float32, np.float64)
    assert not compiled_suits(coord.astype(">f4"), np.float32)
    packed = np.zeros(5000, np.dtype([("flag", np.uint8), ("x", np.float32)]))["x"]
    assert not compiled_suits(packed, np.float32)
    assert voxelize(coord.astype(np.int64), 1.0).starts.tolist() == [0, 5000]


@pytest.mark.usefixtures("without_library")
def test_without_a_compiler_numpy_does_the_work(monkeypatch, tmp_path, capfd, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PCTX_COMPILE", "0")
    coord = np.random.default_rng(0).uniform(-5, 5, (5000, 3)).astype(np.float32)
    assert len(voxelize(coord, 100.0)) == 8 and not compiled_agrees()
    assert capfd.readouterr() == ("", "") and not caplog.records
    assert not list(tmp_path.rglob("*.so"))


@pytest.mark.usefixtures("without_library")
def test_a_kernel_that_gives_other_numbers_is_not_used(monkeypatch):
    def nothing(*_):
        return 0

    class Wrong:
        def __getattr__(self, name):
            return nothing

    monkeypatch.setattr(compiled_grid, "kernel", lambda _: Wrong())
    coord = np.random.default_rng(0).uniform(-5, 5, (5000, 3)).astype(np.float32)
    assert not compiled_agrees() and len(voxelize(coord, 100.0)) == 8
