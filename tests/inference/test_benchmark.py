"""The plain ways give what the fast ones give; what is timed is what a plan consists of."""

from functools import partial

import pytest
import torch

from pctx.geometry.curves import CURVES, encode_curves
from pctx.geometry.kernel_map import kernel_map
from pctx.geometry.neighbors import knn
from pctx.geometry.points import PointBatch
from pctx.geometry.serialization import serialize
from pctx.inference import baseline, timing
from pctx.inference.benchmark import (
    PlanReport,
    measure_plan,
    order_and_invert,
    plan_parts,
)
from pctx.inference.drive import drive_voxels, slab
from pctx.inference.timing import Clock, Measurement
from pctx.models.point_transformer_v3 import PointTransformerV3

CPU = torch.device("cpu")


def packed(grid_coord):
    return PointBatch(
        coord=grid_coord.float(),
        grid_coord=grid_coord,
        feat=grid_coord[:, :1].float(),
        offsets=torch.tensor([0, len(grid_coord)]),
    )


@pytest.mark.parametrize("hilbert", [baseline.hilbert_by_bits, baseline.hilbert_by_levels])
@pytest.mark.parametrize("depth", [0, 1, 2, 3, 11, 16, 21])
def test_plain_codes_are_the_codes(depth, hilbert):
    generator = torch.Generator().manual_seed(depth)
    grid_coord = torch.randint(0, 1 << depth, (500, 3), generator=generator)
    plainly = baseline.encode_plainly(grid_coord, depth, CURVES, hilbert)
    assert torch.equal(plainly, encode_curves(grid_coord, depth, CURVES))


@pytest.mark.parametrize(
    "way",
    [
        lambda codes: order_and_invert(codes, 63),
        baseline.order_together,
        baseline.order_singly,
    ],
)
def test_every_way_to_order_gives_the_order_of_a_serialization(way):
    points = packed(drive_voxels(3000))
    serial = serialize(points.grid_coord, points.offsets, CURVES)
    order, inverse = way(serial.codes)
    assert torch.equal(order, serial.order)
    assert torch.equal(inverse, serial.inverse)


def test_the_plain_tree_finds_the_neighbors():
    coord = torch.rand(400, 3, generator=torch.Generator().manual_seed(0))
    found = knn(coord, torch.tensor([0, 400]), 7)
    assert torch.equal(baseline.neighbors_by_tree(coord, 7), found.index)


@pytest.mark.parametrize("n", [1, 4000, 60_000, 110_000])
def test_a_drive_has_any_number_of_voxels_as_sparse_as_a_scan(n):
    voxels = drive_voxels(n)
    assert len(voxels) == len(voxels.unique(dim=0)) == n
    assert torch.equal(voxels, drive_voxels(n))
    assert torch.equal(voxels, voxels.unique(dim=0))  # sorted by x, then y, then z
    if n > 1:
        pairs = kernel_map(voxels, torch.tensor([0, n]), 3)
        assert 2 < len(pairs.source) / n < 6


def test_a_slab_is_the_middle():
    rows = torch.arange(7)[:, None].expand(7, 3)
    assert slab(rows, 3)[:, 0].tolist() == [2, 3, 4]
    assert torch.equal(slab(rows, 7), rows)


def test_the_parts_of_a_plan_make_the_plan():
    backbone = PointTransformerV3(
        in_channels=1,
        channels=(8, 8, 8),
        depths=(1, 1, 1),
        num_heads=(1, 1, 1),
        strides=(2, 4),
        encoder_only=True,
        window_size=(64, 32, 16),
    )
    points = packed(drive_voxels(3000))
    levels = backbone.plan(points).levels
    parts = {name: work() for name, work in plan_parts(backbone, points, levels).items()}
    assert list(parts) == ["serialize", "coarsen", "windows", "kernel_maps"]
    serial = [parts["serialize"], *parts["coarsen"]]
    assert [len(s.offsets) for s in serial] == [2, 2, 2]
    for level, s, windows, maps in zip(
        levels, serial, parts["windows"], parts["kernel_maps"], strict=True
    ):
        assert torch.equal(s.offsets, level.offsets)
        for ours, theirs in zip(windows, level.windows, strict=True):
            assert torch.equal(ours.index, theirs.index)
        assert maps.keys() == level.kernel_maps.keys()
        for size, pairs in maps.items():
            assert torch.equal(pairs.source, level.kernel_maps[size].source)


def took(monkeypatch, work, repeats):
    """Time work that returns how long it pretends to take; give seconds and order."""
    calls = []
    monkeypatch.setattr(timing, "_seconds", lambda run, device, now: run())

    def run(name, seconds):
        calls.append(name)
        return next(seconds)

    timed = {name: partial(run, name, iter(seconds)) for name, seconds in work.items()}
    return Clock(repeats=repeats, device=CPU).time(timed), "".join(calls)


def test_work_takes_turns_and_a_quick_first_run_does_not_count(monkeypatch):
    seconds, calls = took(monkeypatch, {"a": [0.9, 0.1, 0.2], "b": [0.5, 0.3, 0.4]}, 2)
    assert seconds == {"a": (0.1, 0.2), "b": (0.3, 0.4)}
    assert calls == "ababab"


def test_slow_work_runs_less_often_and_at_least_once(monkeypatch):
    work = {"a": [0.1] * 5, "b": [3.0] * 3, "c": [20.0]}
    seconds, calls = took(monkeypatch, work, 4)
    assert seconds == {"a": (0.1,) * 4, "b": (3.0,) * 3, "c": (20.0,)}
    assert calls == "abcababaa"


def test_a_comparison_keeps_work_and_plainer_ways_apart(monkeypatch):
    monkeypatch.setattr(timing, "_seconds", lambda run, device, now: run())
    clock = Clock(repeats=1, device=CPU)
    run = clock.compare("x", 5, lambda: 1.0, slow=lambda: 4.0, slower=lambda: 9.0)
    assert (run.name, run.size, run.seconds) == ("x", 5, (1.0,))
    assert run.plain == {"slow": (4.0,), "slower": (9.0,)}


def test_a_measurement_compares_medians():
    run = Measurement(name="x", size=5, seconds=(0.1, 0.9, 0.2), plain={"slow": (4.0, 1.0, 2.0)})
    assert run.ms == 200
    assert run.plain_ms("slow") == 2000
    assert run.ratio("slow") == 10


@pytest.mark.parametrize("power", [0.5, 1.0, 1.7])
def test_the_exponent_of_a_power_is_its_power(power):
    growth = [Measurement(name="plan", size=n, seconds=(3 * n**power,)) for n in (10, 50, 7000)]
    report = PlanReport(work=(), growth=tuple(growth), depth=1, met=1.0)
    assert report.exponent == pytest.approx(power)


@pytest.mark.parametrize("count", [0, 1])
def test_there_is_no_exponent_of_fewer_than_two_sizes(count):
    growth = (Measurement(name="plan", size=10, seconds=(1.0,)),) * count
    assert PlanReport(work=(), growth=growth, depth=1, met=1.0).exponent is None


def test_a_report_has_every_piece_at_its_size():
    told = []
    report = measure_plan(
        drive_voxels, points=800, voxels=500, sizes=[200, 400], repeats=2, tell=told.append
    )
    names = ("plan", "serialize", "coarsen", "windows", "kernel_maps", "neighbors", "farthest")
    assert [run.name for run in report.work] == ["codes", "order", *names]
    assert [run.size for run in report.work] == [800, 800, *[500] * len(names)]
    assert [run.size for run in report.growth] == [200, 400]
    for run in (*report.work, *report.growth):
        for seconds in (run.seconds, *run.plain.values()):
            assert len(seconds) == 2
            assert min(seconds) > 0
    assert len(told) == 5
    assert report.depth == int(drive_voxels(800).max()).bit_length()
    pairs = kernel_map(drive_voxels(500), torch.tensor([0, 500]), 3)
    assert report.met == len(pairs.source) / 500
