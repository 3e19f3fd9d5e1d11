"""`pctx benchmark` as a user types it."""

import csv
import io
import logging
import math
import subprocess
import sys

import pytest
import torch

from pctx.data.io.formats import write
from pctx.inference.benchmark import PlanReport
from pctx.inference.timing import Measurement
from tests.toy import toy_cloud

SMALL = ("points=400", "voxels=300", "repeats=1", "sizes=[100,200]")


def rows(text):
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("commit,"))
    return list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))


@pytest.mark.parametrize("subject", [(), ("plan",)])
def test_help_is_fast_and_imports_no_torch(subject):
    code = (
        f"import sys; sys.argv = {['pctx', 'benchmark', *subject, '--help']}\n"
        "from pctx.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "import time\n"
        "print(sorted({'torch', 'hydra', 'omegaconf', 'numpy'} & set(sys.modules)))\n"
        "print(time.process_time())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *text, imported, seconds = done.stdout.splitlines()
    assert imported == "[]"
    assert float(seconds) < 1
    assert "pctx benchmark plan file=scan.laz" in "".join(text)


def test_without_a_subject_there_is_help(pctx):
    code, out, _ = pctx("benchmark")
    assert code == 0
    assert "Examples" in out
    assert "plan" in out


def test_a_run_prints_a_table_and_a_row(pctx):
    code, out, err = pctx("benchmark", "plan", *SMALL)
    assert code == 0, err
    for words in ("codes, four curves", "bits in place", "kernel maps", "growth, exponent"):
        assert words in out
    (row,) = rows(out)
    assert row["points"] == "400"
    assert row["growth_voxels"] == "100 200"
    assert row["torch"] == torch.__version__
    assert row["device"] == "cpu"
    empty = {name for name, value in row.items() if value == ""}
    assert empty <= {"file", "commit"}


@pytest.mark.parametrize(("factor", "marks"), [(1, "✓✓✓✓"), (1.03, "✗✗✗✗")])
def test_targets_are_marked_and_a_missed_one_fails_no_run(pctx, monkeypatch, factor, marks):
    def timed(name, seconds, size=1000, **plain):
        plain = {way: (ratio,) for way, ratio in plain.items()}
        return Measurement(name=name, size=size, seconds=(factor * seconds,), plain=plain)

    report = PlanReport(
        work=(
            timed("codes", 1.0, bits=200.0, levels=20.0),
            timed("order", 1.0, together=3.5, singly=3.0),
            timed("plan", 0.06),
            *(timed(name, 0.001) for name in ("serialize", "coarsen", "windows", "kernel_maps")),
            timed("neighbors", 1.0, tree=1.0),
            timed("farthest", 1.0, steps=1.0),
        ),
        growth=(timed("plan", 1, 10), timed("plan", factor * 10**1.09, 100)),
        depth=7,
        met=3.0,
    )
    monkeypatch.setattr("pctx.inference.benchmark.measure_plan", lambda *_, **__: report)
    code, out, _ = pctx("benchmark", "plan")
    assert code == 0
    assert "".join(letter for letter in out if letter in "✓✗") == marks
    (row,) = rows(out)
    assert float(row["codes_ms"]) == pytest.approx(1000 * factor)
    assert row["codes_bits_ms"] == "200000.000"
    assert float(row["order_singly_ratio"]) == pytest.approx(3 / factor, abs=0.01)
    assert float(row["growth_exponent"]) == pytest.approx(1.09 + math.log10(factor), abs=2e-3)


def test_progress_is_told_line_by_line_where_there_is_no_terminal(pctx, caplog):
    with caplog.at_level(logging.INFO):
        assert pctx("benchmark", "plan", *SMALL)[0] == 0
    assert "codes of 400 voxels; the plain ways take a while" in caplog.messages


def test_rows_are_added_to_a_file_under_one_header(pctx, tmp_path):
    for points in (400, 500):
        code, out, err = pctx("benchmark", "plan", *SMALL, f"points={points}", "csv=a/bench.csv")
        assert code == 0, err
        assert "commit," not in out
    text = (tmp_path / "a" / "bench.csv").read_text()
    assert [row["points"] for row in rows(text)] == ["400", "500"]
    assert text.count("commit,") == 1


def test_a_file_of_other_columns_is_refused_before_anything_is_measured(pctx, tmp_path, caplog):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with caplog.at_level(logging.INFO):
        code, _, err = pctx("benchmark", "plan", *SMALL, "csv=other.csv")
    assert code == 2
    assert (
        err == "pctx: other.csv: its columns are not those of this benchmark; take another file\n"
    )
    assert (tmp_path / "other.csv").read_text() == "a,b\n1,2\n"
    assert caplog.messages == []


def test_a_scan_is_measured_as_far_as_it_reaches(pctx, tmp_path):
    write(tmp_path / "scan[1].laz", toy_cloud(500))
    settings = ("repeats=1", "sizes=[100,1000]", "file='scan[1].laz'", "grid_size=0.2")
    code, out, err = pctx("benchmark", "plan", *settings)
    assert code == 0, err
    assert "voxels of scan[1].laz" in out
    (row,) = rows(out)
    assert 100 < int(row["points"]) <= 500
    assert row["voxels"] == row["points"]
    assert row["growth_voxels"] == "100"
    assert row["growth_exponent"] == ""


def test_threads_are_taken_and_given_back(pctx, monkeypatch):
    before, during = torch.get_num_threads(), []
    monkeypatch.setattr(
        "pctx.inference.benchmark.measure_plan",
        lambda *_, **__: during.append(torch.get_num_threads()) or 1 / 0,
    )
    assert pctx("benchmark", "plan", f"threads={before + 1}")[0] == 1
    assert during == [before + 1]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("plan", "pints=3"), 2, "there is no key 'pints'; did you mean 'points'?"),
        (("plan", "zzz=3"), 2, "there is no key 'zzz'; there are points, voxels, sizes"),
        (("plan", "+points=3"), 2, "did you mean 'points'?"),
        (("plan", "ptv3"), 2, "'ptv3' is no override such as key=value"),
        (("plan", "~points"), 2, "'~points' is no override"),
        (("plan", "--points"), 2, "'--points' is no override"),
        (("plan", "points=many"), 2, "points takes a whole number, found 'many'"),
        (("plan", "points=1.5"), 2, "points takes a whole number, found '1.5'"),
        (("plan", "points=1,2"), 2, "points takes a whole number, found '1,2'"),
        (("plan", "points=null"), 2, "points takes a whole number, found 'null'"),
        (("plan", "points=0"), 2, "points must be 1 or more, found 0"),
        (("plan", "repeats=0"), 2, "repeats must be 1 or more, found 0"),
        (("plan", "threads=-1"), 2, "threads must be 1 or more, found -1"),
        (("plan", "sizes=7"), 2, "sizes takes whole numbers in brackets"),
        (("plan", "sizes=[7,a]"), 2, "sizes takes whole numbers in brackets"),
        (("plan", "sizes=[7,7]"), 2, "sizes must be different numbers"),
        (("plan", "sizes=[0]"), 2, "sizes must be different numbers"),
        (("plan", "grid_size=0"), 2, "grid_size must be above 0 metres, found 0.0"),
        (("plan", "grid_size=nan"), 2, "grid_size must be above 0 metres, found nan"),
        (("plan", "file=a [b]"), 2, "quote the value"),
        (("plan", "device=mars"), 2, "there is no device 'mars' here"),
        (("plan", "csv=folder"), 2, "folder: not a file"),
        (("plan", "file=nowhere.laz"), 1, "nowhere.laz: no such file"),
        (("plan", "file=empty.npz"), 1, "empty.npz: no points to measure with"),
        (("model",), 2, None),
    ],
)
def test_bad_input_gives_one_sentence(pctx, tmp_path, arguments, code, words):
    (tmp_path / "folder").mkdir()
    write(tmp_path / "empty.npz", toy_cloud(0))
    found, out, err = pctx("benchmark", *arguments)
    assert found == code, err
    assert out == ""
    if words is not None:
        assert words in err
        assert err.count("\n") == 1
        assert err.startswith("pctx: ")
