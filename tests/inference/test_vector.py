"""Vector attention in parts takes less memory than all pairs at once, for the same rows."""

import pytest
import torch

from pctx.geometry.neighbors import knn
from pctx.inference.drive import drive_voxels
from pctx.inference.vector import measure_vector
from pctx.nn import pairs
from pctx.nn.vector_attention import GroupedVectorAttention, VectorAttention


@pytest.mark.parametrize("make", [VectorAttention, lambda c: GroupedVectorAttention(c, 4)])
def test_parts_give_the_rows_of_the_whole(make, monkeypatch):
    monkeypatch.setattr(pairs, "NUMBERS_AT_ONCE", 2000)
    torch.manual_seed(0)
    coord, feat = torch.rand(300, 3), torch.randn(300, 16)
    around, module = knn(coord, torch.tensor([0, 300]), 8), make(16).eval()
    with torch.no_grad():
        parted, whole = module(feat, coord, around), module.at_once(feat, coord, around)
    torch.testing.assert_close(parted, whole, rtol=1e-5, atol=1e-6)


def test_parts_take_half_the_memory():
    report = measure_vector(drive_voxels(20_000), channels=64, neighbors=16, repeats=1)
    assert [run.name for run in report.work] == ["v1", "v2"]
    for peaks in report.peaks.values():
        if None in peaks.values():
            pytest.skip("the system does not tell what memory a process takes")
        # A fifth or less as measured; what else the allocator does is in both.
        assert 2 * peaks[""] < peaks["plain"]
