"""The released way gives what ours gives; what is timed is named."""

import pytest
import torch

from pctx.geometry.points import PointBatch
from pctx.inference import plain_ptv3
from pctx.inference.drive import drive_voxels
from pctx.inference.forward import measure_forward
from pctx.inference.plain_ptv3 import run_plainly
from pctx.models.point_transformer_v3 import PointTransformerV3

SMALL = {
    "in_channels": 3,
    "channels": (16, 32, 32),
    "depths": (2, 2, 1),
    "num_heads": (1, 2, 2),
    "strides": (2, 2),
    "decoder_channels": (16, 32),
    "decoder_depths": (2, 1),
    "decoder_num_heads": (1, 2),
    "window_size": 48,
    "drop_path": 0.0,
}


@pytest.fixture(autouse=True)
def without_spconv(monkeypatch):
    """It takes seconds to import."""
    monkeypatch.setattr(plain_ptv3, "spconv_is_installed", lambda: False)


@pytest.mark.parametrize("counts", [[700], [400, 300]])
@pytest.mark.parametrize("training", [False, True])
def test_the_released_way_gives_the_same_rows(counts, training):
    torch.manual_seed(0)
    model = PointTransformerV3(**SMALL, published=True).train(training)
    n = sum(counts)
    points = PointBatch(
        coord=torch.zeros(n, 3),
        grid_coord=torch.cat([drive_voxels(count) for count in counts]),
        feat=torch.randn(n, 3),
        offsets=torch.tensor([0, *counts]).cumsum(0),
    )
    ours = model(points.feat, model.plan(points))
    # A dozen layers of float32.
    torch.testing.assert_close(run_plainly(model, points), ours, rtol=1e-4, atol=1e-5)


def test_a_report_has_both_ways():
    told = []
    report = measure_forward(drive_voxels(2000), model="ptv3_tiny", repeats=1, tell=told.append)
    assert [run.name for run in report.work] == ["forward", "both"]
    assert all(list(run.plain) == ["plain"] and len(run.seconds) == 1 for run in report.work)
    assert all(difference < 1e-4 for difference in report.differences.values())
    assert set(report.differences) == set(report.peaks) == {"forward", "both"}
    assert 0 < report.plan < 1
    assert len(told) == 4


def test_training_may_be_left_out():
    report = measure_forward(drive_voxels(200), model="ptv3_tiny", backward=False, repeats=1)
    assert [run.name for run in report.work] == ["forward"]


@pytest.mark.parametrize("model", ["ptv2_tiny", "ptv3_rpe"])
def test_another_model_is_refused(model):
    with pytest.raises(ValueError, match="must be a PTv3 without relative position bias"):
        measure_forward(drive_voxels(100), model=model, repeats=1)
