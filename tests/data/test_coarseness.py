"""A grid that leaves next to nothing of a cloud is told of."""

import numpy as np
import pytest

from pctx.data.coarseness import too_coarse
from tests.toy import toy_cloud


@pytest.mark.parametrize("scale", [1.0, 0.001])
def test_a_cloud_of_few_voxels_is_told_with_the_points_in_each(scale):
    coord = np.random.default_rng(0).random((50_000, 3), dtype=np.float32) * scale
    grid = 0.501 * scale
    assert "50,000 points lie in 8 voxels" in too_coarse(coord, grid)
    assert "6,250 in each" in too_coarse(coord, grid)
    assert too_coarse(coord, 0.05 * scale) is None
    assert too_coarse(coord, 1e-9 * scale) is None


def test_few_points_and_wide_clouds_are_well():
    for coord in (np.zeros((0, 3)), np.zeros((50, 3)), toy_cloud(10_000, extent=60).coord):
        assert too_coarse(coord, 0.5) is None
    assert too_coarse(np.array([[0, 0, 0], [1e9, 0, 0]] * 50), 0.5) is None
