"""`pctx benchmark models` as a user types it."""

import csv
import sys

import pytest

from pctx.models.factory import create_model


def test_rows_tell_what_each_model_costs(pctx, tmp_path):
    file = tmp_path / "costs.csv"
    names = ["ptv3_tiny", "point_vit_tiny"]
    code, out, err = pctx(
        "benchmark",
        "models",
        f"models=[{','.join(names)}]",
        "voxels=300",
        "repeats=1",
        f"csv={file}",
    )
    assert code == 0, err
    rows = list(csv.DictReader(file.open()))
    assert [row["model"] for row in rows] == names
    for row in rows:
        model = create_model(row["model"], 6, 20)
        assert int(row["parameters"]) == sum(p.numel() for p in model.parameters())
        assert float(row["plan_ms"]) > 0
        assert float(row["forward_ms"]) > 0
        assert row["model"] in out


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's peak")
def test_memory_grows_with_the_voxels(pctx, tmp_path):
    peaks = []
    for voxels in (2000, 20000):
        file = tmp_path / f"{voxels}.csv"
        code, _, err = pctx(
            "benchmark", "models", "models=[litept_tiny]", f"voxels={voxels}", "repeats=1",
            f"csv={file}",
        )  # fmt: skip
        assert code == 0, err
        peaks.append(float(next(csv.DictReader(file.open()))["peak_mib"]))
    assert peaks[1] > 3 * peaks[0] > 0


def test_a_model_that_is_not_there_is_named(pctx):
    code, _, err = pctx("benchmark", "models", "models=[ptv4]")
    assert code == 2
    assert "no model is called 'ptv4'" in err
