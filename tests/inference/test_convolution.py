"""spconv gives what it is timed against; what is timed is named."""

import pytest
import torch

from pctx.geometry.kernel_map import kernel_map
from pctx.inference import convolution
from pctx.inference.convolution import map_by_spconv, measure_convolutions
from pctx.inference.drive import drive_voxels
from pctx.nn.spconv_engine import spconv_is_installed

CPU = torch.device("cpu")
NAMES = ["map3", "map5", "forward4", "both4", "forward7", "both7"]


@pytest.fixture
def spconv():
    if not spconv_is_installed():
        pytest.skip("spconv is not installed")


@pytest.mark.usefixtures("spconv")
@pytest.mark.parametrize("size", [3, 5])
def test_spconv_finds_the_pairs_of_our_maps(size):
    grid_coord = drive_voxels(500)
    ours = kernel_map(grid_coord, torch.tensor([0, 500]), size)
    pairs = map_by_spconv(grid_coord, size)
    for tap in range(size**3 // 2):
        span = slice(ours.starts[tap], ours.starts[tap + 1])
        count = span.stop - span.start
        found = set(zip(*pairs[:, tap, :count].tolist(), strict=True))
        assert found == set(
            zip(ours.source[span].tolist(), ours.target[span].tolist(), strict=True)
        )
        assert (pairs[:, tap, count:] == -1).all()


@pytest.mark.usefixtures("spconv")
def test_both_ways_compute_the_same():
    pairs = kernel_map(drive_voxels(400), torch.tensor([0, 400]), 3)
    torch.manual_seed(0)
    ours = convolution._ways(pairs, 16, CPU)
    torch.manual_seed(0)
    theirs = convolution._ways_by_spconv(pairs, 16, CPU)
    torch.testing.assert_close(ours["forward"](), theirs["forward"]())
    out, (feat, weight) = theirs["both"]()
    torch.testing.assert_close(out, ours["forward"]())
    for found, expected in zip(ours["both"](), (feat, weight), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=5e-5)  # sums of many rows


@pytest.mark.usefixtures("spconv")
def test_each_piece_of_work_is_timed_beside_spconv():
    report = measure_convolutions(drive_voxels(300), channels=[4, 7], repeats=1)
    assert [run.name for run in report.work] == NAMES
    assert all(run.size == 300 and len(run.seconds) == 1 for run in report.work)
    assert all(list(run.plain) == ["spconv"] for run in report.work)
    assert 1 < report.met < 27


def test_without_spconv_ours_is_timed_alone(monkeypatch):
    monkeypatch.setattr(convolution, "spconv_is_installed", lambda: False)
    report = measure_convolutions(drive_voxels(300), channels=[4, 7], repeats=1)
    assert [run.name for run in report.work] == NAMES
    assert not any(run.plain for run in report.work)
