"""WaymoDataset: prepared frames of both kinds give the same raw ids."""

import numpy as np
import pytest

from pctx.data.datasets.waymo import WaymoDataset
from pctx.data.io.errors import ReadError
from pctx.data.io.formats import write
from pctx.geometry.points import PointCloud


def write_frame(folder, n=30, label=True):
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    np.save(folder / "coord.npy", rng.uniform(-50, 50, (n, 3)).astype(np.float32))
    np.save(folder / "strength.npy", np.tanh(rng.random((n, 1))).astype(np.float32))
    np.save(folder / "pose.npy", np.eye(4, dtype=np.float32))
    if label:
        np.save(folder / "segment.npy", np.arange(n) % 23 - 1)


def test_class_numbers_of_folders_become_raw_ids(tmp_path):
    write_frame(tmp_path / "training/segment-1/1550083467346370")
    write_frame(tmp_path / "validation/segment-2/1550083467346371")
    write_frame(tmp_path / "testing/segment-3/1550083467346372", label=False)
    data = WaymoDataset(tmp_path)
    assert data.scans("train") == ["training/segment-1/1550083467346370"]
    cloud = data.read(data.scans("train")[0])
    assert cloud.label.tolist() == [i % 23 for i in range(30)]  # 0 undefined, 1 car, 22 sidewalk
    assert data.card.labels.encode(cloud.label).tolist() == [i % 23 - 1 for i in range(30)]
    assert cloud.intensity.shape == (30,)
    assert data.read(data.scans("test")[0]).label is None


def test_npz_frames_hold_raw_ids(tmp_path):
    cloud = PointCloud(coord=np.zeros((23, 3), np.float32), label=np.arange(23))
    write(tmp_path / "waymo/training/segment-1/15.npz", cloud)
    data = WaymoDataset(tmp_path)
    assert data.splits == ("train",)
    assert data.read("training/segment-1/15.npz").label.tolist() == list(range(23))


def test_what_is_wrong_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"holds no \*ing/\*"):
        WaymoDataset(tmp_path)
    frame = tmp_path / "training/segment-1/15"
    write_frame(frame)
    data = WaymoDataset(tmp_path)
    with pytest.raises(ValueError, match="no scan is in the split 'val'"):
        data.scans("val")
    np.save(frame / "segment.npy", np.zeros(7))
    with pytest.raises(ReadError, match=r"segment\.npy: 7 rows for the 30 points"):
        data.read("training/segment-1/15")
    np.save(frame / "segment.npy", np.full(30, 22))
    with pytest.raises(ReadError, match="class numbers run from 22 to 22, the card has 22"):
        data.read("training/segment-1/15")
    np.save(frame / "coord.npy", np.zeros((30, 2)))
    with pytest.raises(ReadError, match=r"coord\.npy: positions are \(n, 3\), found \(30, 2\)"):
        data.read("training/segment-1/15")
    (frame / "coord.npy").write_bytes(b"")
    with pytest.raises(ReadError, match="coord.npy"):
        data.read("training/segment-1/15")
