import pytest
import torch

import pctx
from pctx.data.features import FeatureSpec
from pctx.data.prepare import voxelize
from pctx.models.factory import create_model
from pctx.nn import sparse_conv
from pctx.nn.sparse_conv import set_backend
from pctx.nn.spconv_engine import convolve_by_spconv, spconv_is_installed

SCANS = (
    "open-mmlab__mmdetection3d/tests/data/semantickitti/sequences/00/velodyne/000000.bin",
    "unmannedlab__RELLIS-3D/utils/example/000104.bin",
    "PDAL__data_isprs/isprs/samp11-utm.laz",
)


@pytest.mark.slow
@pytest.mark.skipif(not spconv_is_installed(), reason="spconv is not installed")
@pytest.mark.parametrize("name", ["ptv3_tiny", "litept_tiny", "octformer_tiny"])
def test_each_engine_gives_the_labels_of_the_other_on_real_scans(name, real_data, monkeypatch):
    asked = []
    monkeypatch.setattr(
        sparse_conv, "convolve_by_spconv", lambda *a: asked.append(a) or convolve_by_spconv(*a)
    )
    torch.manual_seed(0)
    model = create_model(name, 1, 8).eval()
    same = points = 0
    for scan in SCANS:
        cloud = pctx.read(real_data / scan)
        batch = voxelize(
            cloud, 0.3 if scan.endswith("bin") else 1.0, FeatureSpec(fields=("height",))
        )
        logits = []
        for backend in ("torch", "spconv"):
            set_backend(model, backend)
            with torch.inference_mode():
                logits.append(model(batch))
        same += (logits[0].argmax(1) == logits[1].argmax(1)).sum()
        points += len(batch)
    assert asked
    assert same / points >= 0.9999


def test_an_engine_that_is_none_is_refused():
    with pytest.raises(ValueError, match="backend must be auto, torch or spconv, found mkl"):
        set_backend(create_model("ptv3_tiny", 1, 2), "mkl")
