"""Clouds that nobody wants and everybody has go through every transform, window kind and command.

Models have tests of their own: `tests/models/test_degenerate.py`.
"""

import dataclasses

import numpy as np
import pytest
import torch

from pctx.data.io.formats import read, write
from pctx.geometry.grid import voxelize
from pctx.geometry.points import PointCloud
from pctx.geometry.serialization import serialize
from pctx.geometry.windows import (
    curve_windows,
    global_windows,
    grid_windows,
    octree_windows,
)
from tests.data.transforms.clouds import columns, every_step, full_cloud, run
from tests.robust.command_cases import CARD
from tests.toy import toy_checkpoint

rng = np.random.default_rng(0)
ALONG = np.arange(200)[:, None] * 0.02
CLOUDS = {
    "no point": np.zeros((0, 3)),
    "one point": np.full((1, 3), 5.0),
    "two points": np.array([[0, 0, 0], [0.1, 0, 0]]),
    "all equal": np.full((300, 3), 7.0),
    "a line": ALONG * [1, 0, 0],
    "a pole": ALONG * [0, 0, 1],
    "a diagonal": ALONG * [1, 1, 1],
    "one voxel": rng.random((60, 3)) * 0.019,
    "1,400 m apart": np.array([[0, 0, 0], [1400, -1400, 300.0]]),
    "not finite": np.array([[np.nan] * 3, [np.inf, 0, 0], [0, -np.inf, 0], [1, 1, 1], [2, 2, 2]]),
    "nothing finite": np.full((4, 3), np.nan),
    "ten thousand duplicates": np.concatenate([np.full((10_000, 3), 0.5), ALONG * [1, 0, 0]]),
}


def cloud_of(name):
    coord = CLOUDS[name].astype(np.float32)
    pattern = full_cloud(max(len(coord), 1))
    index = np.arange(len(coord)) % max(len(pattern), 1)
    return dataclasses.replace(pattern.select(index), coord=coord)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("step", sorted(every_step()))
def test_every_transform_takes_any_cloud(step, cloud):
    before = cloud_of(cloud)
    for seed in range(3):
        result = run(every_step()[step], cloud_of(cloud), seed)
        assert {len(c) for k, c in columns(result).items() if k != "origin"} == {len(result)}
        assert result.coord.dtype == np.float32
        # What was finite stays so, unless the points were left out.
        assert (~result.finite).sum() <= (~before.finite).sum() or step == "Resample"


WINDOWS = {
    "serial": lambda s, g, o: curve_windows(s, 32)[0],
    "serial shifted": lambda s, g, o: curve_windows(s, 32, shift=16)[-1],
    "serial dilated": lambda s, g, o: curve_windows(s, 16, dilation=4)[0],
    "octree": lambda s, g, o: octree_windows(s.order[0], o, 32),
    "octree dilated": lambda s, g, o: octree_windows(s.order[0], o, 16, 4),
    "grid": lambda s, g, o: grid_windows(g, o, 8),
    "grid shifted": lambda s, g, o: grid_windows(g, o, 8, shift=4, slots=16),
    "global": lambda s, g, o: global_windows(o, len(g)),
}


@pytest.mark.parametrize("cloud", CLOUDS)
@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("curve", ["z", "hilbert"])
def test_every_kind_of_window_takes_any_cloud(kind, cloud, curve):
    coord = CLOUDS[cloud]
    cells = voxelize(coord[np.isfinite(coord).all(axis=1)], 0.02).grid_coord
    grid, n = torch.from_numpy(cells), len(cells)
    # Between an empty cloud and one of three points, which it must not hear.
    grid = torch.cat([grid, torch.tensor([[0, 0, 0], [1, 0, 0], [5, 5, 5]])])
    offsets = torch.tensor([0, 0, n, n + 3])
    windows = WINDOWS[kind](serialize(grid, offsets, [curve, f"{curve}-trans"]), grid, offsets)
    assert torch.equal(windows.index.reshape(-1)[windows.slot], torch.arange(n + 3))
    of = torch.bucketize(windows.index, offsets[2:], right=True)
    assert (of == of[:, :1]).all()
    if windows.valid is not None:
        assert windows.valid.reshape(-1)[windows.slot].all()


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_command_takes_any_cloud(cloud, worker, tmp_path):
    here = tmp_path / "here"
    (here / "scans").mkdir(parents=True)
    toy_checkpoint().save(here / "model.pt")
    (here / "scans/card.yaml").write_text(CARD)
    coord = CLOUDS[cloud].astype(np.float32)
    labels = {"a": np.full(len(coord), 6), "b": np.full(len(coord), 7)}  # one class; all void
    for name, label in labels.items():
        write(here / f"scans/{name}.ply", PointCloud(coord=coord, label=label))
    data = ["data=folder", "data.root=scans"]
    for command in (
        ["info", "scans/a.ply", "--json"],
        ["view", "scans/a.ply", "--render", "a.png", "--size", "320x240"],
        ["view", "scans/a.ply", "--html", "a.html"],
        ["predict", "model.pt", "scans/a.ply", "-o", "a.npz", "--device", "cpu"],
        ["predict", "model.pt", "scans/a.ply", "-o", "b.ply", "--tile", "5", "--views", "2"],
        ["prepare", *data, "data.cache=cache", "workers=0"],
        ["evaluate", *data, "data.splits={val:['*.ply']}", "checkpoint=model.pt", "split=val"],
        ["check", *data],
        ["card", "scans"],
    ):
        code, _, _, err = worker.run(command, here)
        assert code in (0, 1), (command, err)
        assert "Traceback" not in err and "internal error" not in err, (command, err)
        if command[0] in ("info", "view", "predict", "prepare", "evaluate"):
            assert code == 0, (command, err)
    assert len(read(here / "a.npz")) == len(read(here / "b.ply")) == len(coord)
