"""Every dataset names the files that a scan is read from, so that caches know when they change."""

import numpy as np

from pctx.data.datasets.folder import FolderDataset
from pctx.data.datasets.nuscenes import NuScenesDataset
from pctx.data.datasets.s3dis import S3DISDataset
from pctx.data.datasets.scannet import ScanNetDataset
from pctx.data.datasets.semantic_kitti import SemanticKittiDataset
from pctx.data.datasets.waymo import WaymoDataset
from tests.data.datasets import (
    test_nuscenes,
    test_s3dis,
    test_scannet,
    test_semantic_kitti,
    test_waymo,
)


def names(dataset, scan):
    found = dataset.files(scan)
    assert found and all(path.is_file() for path in found)
    return sorted(path.relative_to(dataset.root).as_posix() for path in found)


def test_a_scan_and_its_labels(tmp_path):
    world = np.random.default_rng(0).uniform(-9, 9, (20, 3))
    poses = [test_semantic_kitti.pose(i, 0.0) for i in range(4)]
    test_semantic_kitti.write_sequence(tmp_path / "00", world, poses)
    own = ["00/labels/000003.label", "00/velodyne/000003.bin"]
    assert names(SemanticKittiDataset(tmp_path), "00/000003") == own
    assert names(FolderDataset(tmp_path, "semantic_kitti"), "00/velodyne/000003.bin") == own
    several = SemanticKittiDataset(tmp_path, num_scans=2, stride=2)
    earlier = ["00/labels/000001.label", "00/velodyne/000001.bin"]
    motion = ["00/poses.txt", "00/calib.txt"]
    assert names(several, "00/000003") == sorted([*own, *earlier, *motion])
    assert names(several, "00/000001") == earlier


def test_a_key_frame_and_its_labels(tmp_path):
    test_nuscenes.write_tables(tmp_path, ["scene-0001"])
    data = NuScenesDataset(tmp_path)
    scan = data.scans("train")[0]
    label = "lidarseg/v1.0-trainval/v1.0-trainval-0-0_lidarseg.bin"
    assert names(data, scan) == sorted([scan, label])


def test_the_arrays_of_a_folder(tmp_path):
    test_waymo.write_frame(tmp_path / "training/s/1")
    arrays = [f"training/s/1/{name}.npy" for name in ("coord", "pose", "segment", "strength")]
    assert names(WaymoDataset(tmp_path), "training/s/1") == arrays


def test_the_things_of_a_room_and_of_a_scene(tmp_path):
    test_s3dis.write_room(tmp_path / "Area_1/office_1")
    found = names(S3DISDataset(tmp_path), "Area_1/office_1")
    assert found == [f"Area_1/office_1/Annotations/{t}.txt" for t in sorted(test_s3dis.THINGS)]
    test_scannet.write_scene(tmp_path, test_scannet.TRAIN)
    found = names(ScanNetDataset(tmp_path), test_scannet.TRAIN)
    kinds = {name.rpartition(test_scannet.TRAIN)[2] for name in found}
    assert kinds == {
        *("_vh_clean_2.ply", "_vh_clean_2.0.010000.segs.json", ".aggregation.json"),
        "scannetv2-labels.combined.tsv",
    }
