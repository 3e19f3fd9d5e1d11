"""`pctx benchmark forward` and `pctx benchmark vector` as a user types them."""

import csv
from dataclasses import replace

import pytest

from pctx.inference.forward import ForwardReport
from pctx.inference.timing import Measurement
from pctx.inference.vector import VectorReport


def timed(name, ratio):
    return Measurement(name=name, size=10, seconds=(1.0,), plain={"plain": (ratio,)})


def marks(text):
    return "".join(letter for letter in text if letter in "✓✗")


FORWARD = ForwardReport(
    work=(timed("forward", 4.0), timed("both", 3.0)),
    plan=0.05,
    peaks={"forward": {"": 100, "plain": 800}, "both": {"": 100, "plain": 800}},
    differences={"forward": 1e-4, "both": 1e-4},
)
SLOW = ForwardReport(
    work=(timed("forward", 3.9), timed("both", 2.9)),
    plan=0.06,
    peaks={"forward": {"": 100, "plain": 790}, "both": {"": 100, "plain": 790}},
    differences={"forward": 2e-4, "both": 2e-4},
)
VECTOR = VectorReport(
    work=(timed("v1", 1.0), timed("v2", 0.9)),
    peaks={"v1": {"": 100, "plain": 200}, "v2": {"": 100, "plain": 190}},
)


@pytest.mark.parametrize(("report", "expected"), [(FORWARD, "✓" * 7), (SLOW, "✗" * 7)])
def test_targets_are_marked_and_a_row_is_written(pctx, monkeypatch, tmp_path, report, expected):
    monkeypatch.setattr("pctx.inference.forward.measure_forward", lambda *_, **__: report)
    path = tmp_path / "forward.csv"
    code, out, err = pctx("benchmark", "forward", "voxels=200", f"csv={path}")
    assert code == 0, err
    assert marks(out) == expected
    (row,) = csv.DictReader(path.open(newline=""))
    assert (row["threads"], row["voxels"], row["model"]) == ("1", "200", "ptv3_base")
    assert float(row["forward_ratio"]) == report.work[0].ratio("plain")
    assert float(row["both_difference"]) == report.differences["both"]


def test_training_and_memory_may_be_unknown(pctx, monkeypatch):
    report = replace(
        FORWARD,
        work=FORWARD.work[:1],
        peaks={"forward": {"": None, "plain": None}},
        differences={"forward": 0.0},
    )
    monkeypatch.setattr("pctx.inference.forward.measure_forward", lambda *_, **__: report)
    code, out, err = pctx("benchmark", "forward", "voxels=200", "backward=false")
    assert code == 0, err
    assert marks(out) == "✓✓✓"
    assert "backward" not in out.split("commit,")[0]


def test_vector_attention_is_marked_by_speed_and_memory(pctx, monkeypatch):
    monkeypatch.setattr("pctx.inference.vector.measure_vector", lambda *_, **__: VECTOR)
    code, out, err = pctx("benchmark", "vector", "voxels=200")
    assert code == 0, err
    assert marks(out) == "✓✓✗✗"


def test_wrong_keys_are_named(pctx):
    code, _, err = pctx("benchmark", "forward", "voxel=4")
    assert (code, err) == (2, "pctx: there is no key 'voxel'; did you mean 'voxels'?\n")
    assert pctx("benchmark", "vector", "channels=0")[0] == 2
