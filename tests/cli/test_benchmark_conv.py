"""`pctx benchmark conv` as a user types it."""

import csv
import io

import pytest

from pctx.inference.convolution import ConvolutionReport
from pctx.inference.timing import Measurement

SMALL = ("conv", "voxels=300", "repeats=1", "channels=[4]")


def rows(text):
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("commit,"))
    return list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))


def test_a_run_without_spconv_prints_a_table_and_a_row(pctx, monkeypatch):
    monkeypatch.setattr("pctx.inference.convolution.spconv_is_installed", lambda: False)
    code, out, err = pctx("benchmark", *SMALL)
    assert code == 0, err
    for words in ("kernel map, 3³ taps", "4 channels", "with backward", "spconv is not installed"):
        assert words in out
    (row,) = rows(out)
    assert row["voxels"] == "300"
    assert float(row["forward4_ms"]) > 0
    assert row["forward4_spconv_ms"] == row["map5_spconv_ms"] == ""


@pytest.mark.parametrize(("factor", "marks"), [(1, "✓✓✓✓✓"), (1.03, "✗✗✗✗✗")])
def test_targets_are_marked_and_a_missed_one_fails_no_run(pctx, monkeypatch, factor, marks):
    def timed(name, ratio):
        return Measurement(name=name, size=10, seconds=(factor,), plain={"spconv": (ratio,)})

    report = ConvolutionReport(
        work=(
            timed("map3", 2.5),
            timed("forward32", 0.9),
            timed("both32", 0.9),
            timed("forward64", 1.3),
            timed("both64", 1.2),
        ),
        met=3.0,
    )
    names = ("pctx.inference.convolution.measure_convolutions", "pctx.cli.benchmark_conv.write_row")
    monkeypatch.setattr(names[0], lambda *_, **__: report)
    monkeypatch.setattr(names[1], lambda *_: None)
    code, out, _ = pctx("benchmark", "conv", "channels=[32,64]")
    assert code == 0
    assert "".join(letter for letter in out if letter in "✓✗") == marks


def test_a_wrong_key_is_named(pctx):
    code, _, err = pctx("benchmark", "conv", "chanels=[4]")
    assert code == 2
    assert err == "pctx: there is no key 'chanels'; did you mean 'channels'?\n"
    assert pctx("benchmark", "conv", "channels=[0]")[0] == 2
