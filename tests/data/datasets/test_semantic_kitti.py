"""SemanticKittiDataset: sequences by split, and scans put together by their poses."""

import numpy as np
import pytest

from pctx.data.datasets.semantic_kitti import SemanticKittiDataset
from pctx.data.io.errors import ReadError

TO_CAMERA = np.array([[0, -1, 0, 0.1], [0, 0, -1, -0.2], [1, 0, 0, 0.3], [0, 0, 0, 1.0]])


def pose(x, angle):
    """Where the scanner stands: x metres along, turned about its vertical axis."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s, 0, x], [s, c, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]])


def write_sequence(folder, world, poses, labels=True):
    """Lay a sequence out whose scans all see the same points of the world."""
    (folder / "velodyne").mkdir(parents=True)
    (folder / "labels").mkdir()
    rows = []
    for i, place in enumerate(poses):
        seen = (np.c_[world, np.ones(len(world))] @ np.linalg.inv(place).T)[:, :3]
        table = np.c_[seen, np.full(len(world), i / 10)].astype("<f4")
        table.tofile(folder / f"velodyne/{i:06d}.bin")
        if labels:
            word = (np.arange(len(world)) % 2 * 30 + 10 | i + 1 << 16).astype("<u4")
            word.tofile(folder / f"labels/{i:06d}.label")
        rows.append(TO_CAMERA @ place @ np.linalg.inv(TO_CAMERA))
    lines = [" ".join(f"{v:.12e}" for v in row[:3].ravel()) for row in rows]
    (folder / "poses.txt").write_text("\n".join(lines) + "\n")
    tr = " ".join(map(str, TO_CAMERA[:3].ravel()))
    (folder / "calib.txt").write_text(f"P0: 1 0 0 0 0 1 0 0 0 0 1 0\nTr: {tr}\n")


@pytest.fixture
def root(tmp_path):
    rng = np.random.default_rng(0)
    world = rng.uniform(-20, 20, (50, 3))
    poses = [pose(1.5 * i, 0.1 * i) for i in range(6)]
    for sequence in ("00", "08", "10"):
        write_sequence(tmp_path / "sequences" / sequence, world, poses)
    write_sequence(tmp_path / "sequences/11", world, poses, labels=False)
    return tmp_path


def test_sequences_are_split_as_published(root):
    data = SemanticKittiDataset(root)
    assert data.splits == ("train", "val", "test")
    assert {scan.split("/")[0] for scan in data.scans("train")} == {"00", "10"}
    assert data.scans("val") == [f"08/{i:06d}" for i in range(6)]
    assert data.read("08/000002").label.max() == 40
    assert data.read(data.scans("test")[0]).label is None
    assert SemanticKittiDataset(root / "sequences").scans("val") == data.scans("val")


def test_scans_before_lie_where_the_newest_sees_them(root):
    data = SemanticKittiDataset(root, num_scans=3, stride=2, label_past=True)
    cloud = data.read("00/000004")
    assert len(cloud) == 150
    own, before, oldest = cloud.coord.reshape(3, 50, 3)
    assert np.array_equal(own, SemanticKittiDataset(root).read("00/000004").coord)
    # The world stands still: float32 metres are good to micrometres at 40 m.
    assert np.abs(before - own).max() < 2e-5 and np.abs(oldest - own).max() < 2e-5
    assert np.unique(cloud.extra["age"], return_counts=True)[0].tolist() == [0, 2, 4]
    assert np.allclose(cloud.intensity.reshape(3, 50), [[0.4], [0.2], [0.0]])
    assert np.array_equal(cloud.label[:50], cloud.label[50:100])
    assert cloud.instance.reshape(3, 50)[:, 0].tolist() == [5, 3, 1]


def test_only_the_newest_scan_is_learned_and_counted_unless_asked(root):
    data = SemanticKittiDataset(root, card="semantic_kitti_multi", num_scans=2)
    number = data.card.labels.encode(data.read("00/000001").label)
    assert (number[:50] >= 0).all() and (number[50:] == -1).all()


def test_a_sequence_begins_with_what_there_is(root):
    data = SemanticKittiDataset(root, num_scans=4)
    assert [len(data.read(f"08/{i:06d}")) for i in range(5)] == [50, 100, 150, 200, 200]
    assert data.read("11/000003").label is None


def test_what_is_missing_is_one_sentence(root, tmp_path):
    with pytest.raises(ValueError, match="none: no such folder"):
        SemanticKittiDataset(tmp_path / "none")
    with pytest.raises(ValueError, match=r"holds no \*/velodyne"):
        SemanticKittiDataset(root / "sequences/00/labels")
    with pytest.raises(ValueError, match=r"num_scans must be 1 or more, found 0"):
        SemanticKittiDataset(root, num_scans=0)
    with pytest.raises(ValueError, match=r"no split 'dev'; there are train \(12\), val \(6\)"):
        SemanticKittiDataset(root).scans("dev")
    (root / "sequences/08/calib.txt").write_text("P0: 1\n")
    with pytest.raises(ValueError, match="calib.txt: it has no line Tr"):
        SemanticKittiDataset(root, num_scans=2)
    (root / "sequences/08/labels/000000.label").write_bytes(bytes(4))
    with pytest.raises(ReadError, match="1 labels for the 50 points"):
        SemanticKittiDataset(root).read("08/000000")


def test_a_scan_without_a_pose_is_named(root):
    path = root / "sequences/08/poses.txt"
    path.write_text("\n".join(path.read_text().splitlines()[:3]))
    data = SemanticKittiDataset(root, num_scans=2)
    with pytest.raises(ValueError, match="3 poses, scan 4 has none"):
        data.read("08/000004")


def test_the_real_scan_is_read(real_data):
    data = SemanticKittiDataset(real_data / "open-mmlab__mmdetection3d/tests/data/semantickitti")
    assert data.scans("train") == ["00/000000"]
    cloud = data.read("00/000000")
    assert len(cloud) == 124668
    assert np.bincount(data.card.labels.encode(cloud.label) + 1)[1] == 4234  # cars
