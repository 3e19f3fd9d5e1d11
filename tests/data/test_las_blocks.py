"""Copies are made block by block, and do not depend on the size of the blocks."""

import numpy as np
import pytest

from pctx.data.io import las
from pctx.data.io.formats import read, write
from pctx.data.io.las_file import open_las_file, read_las_file
from pctx.data.prediction import Prediction
from tests.toy import LABELS

FILES = [
    "IGNF__ign-pdal-tools/test/data/test_data_77055_627760_LA93_IGN69.laz",
    "IGNF__ctview/data/las/classee/test_data_77050_627755_LA93_IGN69.copc.laz",
    "PDAL__PDAL/test/data/las/interesting.las",
    "laspy__laspy/tests/data/1_4_w_evlr.laz",
    "PDAL__PDAL/test/data/las/no-points.las",
]


@pytest.fixture(params=FILES)
def source(request, real_data):
    path = real_data / request.param
    if not path.is_file():
        pytest.skip(f"{request.param} is not among the real scans")
    return path


@pytest.mark.parametrize("size", [999, 50_000])
def test_blocks_are_the_points_of_the_file_in_order(source, size):
    whole = read_las_file(source).points
    with open_las_file(source) as (file, num_points, blocks):
        found = list(blocks(size))
        assert all(len(block) == size for block in found[:-1])
        np.testing.assert_array_equal(np.concatenate([file.points, *found]), whole)
        assert num_points == len(whole)


@pytest.mark.parametrize("suffix", [".las", ".laz"])
def test_a_copy_in_small_blocks_is_the_same_file(source, suffix, tmp_path, monkeypatch):
    cloud = read(source)
    rng = np.random.default_rng(0)
    prediction = Prediction(
        label=rng.integers(-1, 3, len(cloud)),
        labels=LABELS,
        entropy=rng.random(len(cloud), dtype=np.float32),
    )
    for name in ("large", "small"):
        if name == "small":
            monkeypatch.setattr(las, "BLOCK", 777)
        out = tmp_path / f"{name}{suffix}"
        write(out, cloud, prediction=prediction, source=source, entropy=True)
    assert (tmp_path / f"small{suffix}").read_bytes() == (tmp_path / f"large{suffix}").read_bytes()
