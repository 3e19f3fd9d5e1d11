import numpy as np
import pytest

from pctx.data.tiling import balanced_tiles, grid_tiles


def cloud(n=5000, extent=100.0, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(0, extent, size=(n, 3)).astype(np.float32)


def check_cover(tiles, n):
    cores = np.concatenate([t.core for t in tiles])
    assert np.array_equal(np.sort(cores), np.arange(n))
    for tile in tiles:
        assert np.isin(tile.core, tile.rows).all()


@pytest.mark.parametrize("size", [7.0, 30.0, 1000.0])
def test_grid_tiles_cover_each_point_once(size):
    check_cover(list(grid_tiles(cloud(), size, 2.0)), 5000)


@pytest.mark.parametrize("max_points", [1, 100, 10_000])
def test_balanced_tiles_cover_each_point_once_and_hold_their_budget(max_points):
    tiles = list(balanced_tiles(cloud(500), max_points, 1e9, 2.0))
    check_cover(tiles, 500)
    assert all(len(t.core) <= max_points for t in tiles)


def test_repeated_points_do_not_make_tiles_without_end():
    same = np.zeros((50, 3), dtype=np.float32)
    tiles = list(balanced_tiles(same, 10, 1e9, 1.0))
    assert len(tiles) == 1
    mixed = np.concatenate([same, same + 1])
    check_cover(list(balanced_tiles(mixed, 10, 1e9, 1.0)), 100)


def test_a_far_stray_point_gets_a_tile_of_its_own():
    coord = np.concatenate([cloud(), [[50_000, 0, 0]]]).astype(np.float32)
    tiles = list(balanced_tiles(coord, 10_000, 5_000.0, 2.0))
    check_cover(tiles, 5001)
    assert sorted(len(t.core) for t in tiles) == [1, 5000]


def test_a_tile_sees_its_surroundings():
    coord = np.array([[0, 0, 0], [9, 0, 0], [11, 0, 0], [14, 0, 0]], dtype=np.float32)
    tiles = {tuple(t.core): t for t in grid_tiles(coord, 10.0, 2.0)}
    assert tiles[0, 1].rows.tolist() == [0, 1, 2]
    assert tiles[2, 3].rows.tolist() == [1, 2, 3]


def test_no_points_give_no_tile():
    empty = np.zeros((0, 3), dtype=np.float32)
    assert not list(grid_tiles(empty, 10.0, 1.0))
    assert not list(balanced_tiles(empty, 10, 10.0, 1.0))


def test_a_tile_size_of_zero_is_refused():
    with pytest.raises(ValueError, match="tile size must be above 0"):
        list(grid_tiles(cloud(), 0.0, 1.0))
