from pathlib import Path

import numpy as np
import pytest

from pctx.data.io import las
from pctx.data.io.formats import write
from pctx.data.io.preview import read_preview
from pctx.geometry.points import PointCloud


@pytest.fixture(params=[".laz", ".las", ".npz"])
def scan(request, tmp_path) -> Path:
    n = 70_001  # of LAZ, two chunks
    coord = np.random.default_rng(0).uniform(0, 80, (n, 3)).round(2)
    coord[:, 0] = np.arange(n) / 1000
    cloud = PointCloud.from_xyz(coord, label=np.arange(n) % 7)
    path = tmp_path / f"scan{request.param}"
    write(path, cloud)
    return path


@pytest.mark.parametrize(("limit", "step"), [(70_001, 1), (70_000, 2), (10_000, 8), (1, 70_001)])
def test_a_preview_is_every_so_manyth_point_of_the_file(scan, limit, step):
    preview = read_preview(scan, limit)
    assert (preview.step, preview.num_points) == (step, 70_001)
    rows = np.arange(0, 70_001, step)
    assert len(preview.cloud) == len(rows) <= limit
    assert (preview.cloud.label == rows % 7).all()
    assert np.abs(preview.cloud.xyz[:, 0] - rows / 1000).max() < 0.001
    assert (preview.note == "") == (step == 1)


def test_a_preview_says_what_it_leaves_out(scan):
    assert read_preview(scan, 30_000).note == "every 3rd of 70,001 points"


def test_parts_of_several_processes_are_one_selection(scan, monkeypatch):
    for count in (1, 3):
        monkeypatch.setattr(las, "MAX_DECODERS", count)
        monkeypatch.setattr(las.os, "cpu_count", lambda: 8)
        assert (read_preview(scan, 9_000).cloud.label == np.arange(0, 70_001, 8) % 7).all()


def test_a_file_without_points_has_a_preview(tmp_path):
    write(tmp_path / "none.laz", PointCloud(coord=np.zeros((0, 3), np.float32)))
    assert len(las.read_las_sample(tmp_path / "none.laz", 5)) == 0
    assert len(read_preview(tmp_path / "none.laz", 5).cloud) == 0


@pytest.mark.parametrize("fields", [(), ("intensity",), ("color",), ("color", "intensity")])
def test_a_preview_of_some_fields_is_that_of_all_without_the_rest(tmp_path, fields):
    n, rng = 70_001, np.random.default_rng(0)
    cloud = PointCloud.from_xyz(
        rng.uniform(0, 80, (n, 3)).round(2),
        label=np.arange(n) % 7,
        intensity=rng.integers(0, 1000, n).astype(np.float32),
        color=rng.integers(0, 256, (n, 3)).astype(np.uint8),
        extra={"height_above": rng.random(n).astype(np.float32)},
    )
    path = tmp_path / "scan.laz"
    write(path, cloud)
    every, some = (read_preview(path, 9_000, f).cloud for f in (None, fields))
    assert (some.xyz == every.xyz).all()
    assert (some.label == every.label).all()
    assert set(some.extra) == {"return_number", "number_of_returns", "height_above"}
    assert all((some.extra[name] == every.extra[name]).all() for name in some.extra)
    for name in ("color", "intensity"):
        column = getattr(some, name)
        assert (column is not None) == (name in fields)
        assert column is None or (column == getattr(every, name)).all()
    whole = read_preview(path, 9_000, fields).whole
    assert whole is not None
    for row in (0, 1, 60_000, 70_000):
        point = whole(row)
        assert point.xyz == pytest.approx(cloud.xyz[[row]], abs=0.001)
        assert point.label[0] == row % 7 and point.intensity[0] == cloud.intensity[row]
        assert "gps_time" in point.extra
