"""`pctx benchmark loader` as a user types it, and the common way that it measures against."""

import numpy as np
import pytest
import torch

from pctx.data.io.formats import write
from pctx.geometry.grid import voxelize
from pctx.geometry.points import PointCloud
from pctx.inference import common_loading as common
from tests.cli.test_benchmark_conv import rows

SMALL = ("loader", "points=2000", "repeats=1", "scans=4", "workers=1", "grid_size=0.2")


def scan(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    return PointCloud(
        coord=rng.uniform(-8, 8, (n, 3)).astype(np.float32),
        intensity=rng.random(n).astype(np.float32),
        label=rng.integers(0, 5, n),
    )


def test_a_run_prints_a_table_and_a_row(pctx, tmp_path):
    write(tmp_path / "scan.npz", scan())
    code, out, err = pctx("benchmark", *SMALL, "file=scan.npz")
    assert code == 0, err
    for words in ("loader, means", "loader, a point a voxel", "hash and unique", "2,000 points"):
        assert words in out
    (row,) = rows(out)
    assert float(row["loader_common_ratio"]) > 0
    assert float(row["plan_ms"]) > float(row["loader_ms"]) * 0.1


def test_a_scan_without_labels_is_refused(pctx, tmp_path):
    cloud = scan()
    write(tmp_path / "scan.npz", PointCloud(coord=cloud.coord, intensity=cloud.intensity))
    code, _, err = pctx("benchmark", *SMALL, "file=scan.npz")
    assert code == 2
    assert err.endswith("pctx: scan.npz: a scan with intensity and labels is needed\n")


def test_the_common_way_finds_the_voxels_that_ours_does():
    cloud = scan()
    kept = common.sample_grid(common.arrays(cloud), 0.5, np.random.default_rng(0))
    order = np.lexsort(kept["grid_coord"].T[::-1])
    ours = voxelize(cloud.coord, 0.5)
    np.testing.assert_array_equal(kept["grid_coord"][order], ours.grid_coord)
    batch = common.collate([common.collect(kept)] * 2)
    assert batch["feat"].shape == (2 * len(ours), 4)
    assert batch["offset"].tolist() == [len(ours), 2 * len(ours)]
    assert batch["coord"].dtype == torch.float32


def test_the_common_way_changes_no_scan_that_it_holds():
    cloud = scan()
    before = cloud.coord.copy()
    common.augment(common.arrays(cloud), np.random.default_rng(0))
    np.testing.assert_array_equal(cloud.coord, before)


def test_a_wrong_key_is_named(pctx):
    code, _, err = pctx("benchmark", "loader", "worker=2")
    assert code == 2
    assert err == "pctx: there is no key 'worker'; did you mean 'workers'?\n"


@pytest.mark.parametrize("word", ["loader", "grid sampling", "scans="])
def test_help_tells_what_is_measured(pctx, word):
    assert word in pctx("benchmark", "loader", "--help")[1]
