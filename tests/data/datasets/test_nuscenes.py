"""NuScenesDataset: key frames found by the tables, with the labels of lidarseg."""

import json
import shutil

import numpy as np
import pytest

from pctx.data.cards import card
from pctx.data.datasets.nuscenes import NuScenesDataset
from pctx.data.io.errors import ReadError

REAL = (
    "open-mmlab__mmdetection3d_HEAD/demo/data/nuscenes/"
    "n015-2018-07-24-11-22-45+0800__LIDAR_TOP__1532402927647951.pcd.bin"
)


def write_tables(root, scenes, version="v1.0-trainval", points=40, labelled=True):
    """Lay scenes of two key frames out, with a sweep and a picture that are none."""
    tables = root / version
    tables.mkdir(parents=True)
    (root / "samples/LIDAR_TOP").mkdir(parents=True, exist_ok=True)
    (root / "lidarseg" / version).mkdir(parents=True, exist_ok=True)
    scene_rows, samples, data, lidarseg = [], [], [], []
    rng = np.random.default_rng(0)
    for s, scene in enumerate(scenes):
        scene_rows.append({"token": f"s{s}", "name": scene, "nbr_samples": 2})
        for frame in (1, 0):
            token, time = f"{version}-{s}-{frame}", 1_500_000_000 + 10 * s + frame
            name = f"samples/LIDAR_TOP/n015__LIDAR_TOP__{scene}-{time}.pcd.bin"
            samples.append({"token": f"k{token}", "timestamp": time, "scene_token": f"s{s}"})
            row = {"sample_token": f"k{token}", "timestamp": time, "fileformat": "pcd"}
            data += [
                row | {"token": token, "is_key_frame": True, "filename": name},
                row
                | {"token": f"w{token}", "is_key_frame": False, "filename": f"sweeps/{time}.bin"},
                row
                | {"token": f"c{token}", "is_key_frame": True, "filename": f"samples/CAM/{time}"},
                row | {"token": f"x{token}", "is_key_frame": False, "filename": f"{name}.other"},
            ]
            table = np.c_[
                rng.uniform(-30, 30, (points, 3)),
                rng.integers(0, 256, points),
                np.arange(points) % 32,
            ]
            table.astype("<f4").tofile(root / name)
            label = f"lidarseg/{version}/{token}_lidarseg.bin"
            if labelled:
                lidarseg.append({"token": token, "sample_data_token": token, "filename": label})
                (np.arange(points) % 32).astype(np.uint8).tofile(root / label)
    named = {"scene": scene_rows, "sample": samples, "sample_data": data, "lidarseg": lidarseg}
    for table, rows in named.items():
        (tables / f"{table}.json").write_text(json.dumps(rows, indent=0))


def test_scenes_are_split_as_published(tmp_path):
    write_tables(tmp_path, ["scene-0001", "scene-0003", "scene-0061", "scene-9999"])
    data = NuScenesDataset(tmp_path)
    assert data.splits == ("train", "val")
    assert [scan.split("__")[2][:10] for scan in data.scans("train")] == [
        *("scene-0001", "scene-0001", "scene-0061", "scene-0061")
    ]
    times = [scan.split("-")[-1] for scan in data.scans("train")]
    assert times == sorted(times)
    assert len(data.scans("val")) == 2
    cloud = data.read(data.scans("val")[0])
    assert cloud.label.tolist() == [i % 32 for i in range(40)]
    assert cloud.extra["ring"].tolist() == cloud.label.tolist()


def test_the_mini_set_has_splits_of_its_own(tmp_path):
    # 0553 is for validation in the full set, and for training in the mini one.
    write_tables(tmp_path, ["scene-0553", "scene-0916"], "v1.0-mini")
    data = NuScenesDataset(tmp_path)
    assert [len(data.scans(split)) for split in ("train", "val")] == [2, 2]
    assert "scene-0553" in data.scans("train")[0]
    write_tables(tmp_path, ["scene-0001", "scene-0553"])
    assert "scene-0553" in NuScenesDataset(tmp_path).scans("val")[0]
    assert "scene-0553" in NuScenesDataset(tmp_path, version="v1.0-mini").scans("train")[0]


def test_scans_for_testing_have_no_labels(tmp_path):
    write_tables(tmp_path, ["scene-0077"], "v1.0-test", labelled=False)
    data = NuScenesDataset(tmp_path)
    assert data.splits == ("test",)
    assert data.read(data.scans("test")[0]).label is None


def test_what_is_missing_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"holds no v1\.0-\*"):
        NuScenesDataset(tmp_path)
    write_tables(tmp_path, ["scene-0001"])
    with pytest.raises(ValueError, match=r"no tables v1\.0-mini; there are v1\.0-trainval"):
        NuScenesDataset(tmp_path, version="v1.0-mini")
    data = NuScenesDataset(tmp_path)
    (tmp_path / "lidarseg/v1.0-trainval/v1.0-trainval-0-0_lidarseg.bin").write_bytes(bytes(3))
    with pytest.raises(ReadError, match="3 labels for the 40 points"):
        data.read(data.scans("train")[0])
    (tmp_path / "v1.0-trainval/sample.json").unlink()
    with pytest.raises(ValueError, match=r"sample\.json: this table of nuScenes is missing"):
        NuScenesDataset(tmp_path)
    (tmp_path / "v1.0-trainval/sample.json").write_text("{")
    with pytest.raises(ValueError, match="not a table of nuScenes"):
        NuScenesDataset(tmp_path)


def test_the_lists_of_scenes_are_whole_and_apart():
    splits = card("nuscenes").splits
    assert [len(splits[name]) for name in ("train", "val", "test")] == [700, 150, 150]
    assert len({*splits["train"], *splits["val"], *splits["test"]}) == 1000
    assert [len(splits[f"mini_{name}"]) for name in ("train", "val")] == [8, 2]
    assert {*splits["mini_train"], *splits["mini_val"]} < {*splits["train"], *splits["val"]}


def test_a_real_key_frame_is_read(real_data, tmp_path):
    write_tables(tmp_path, ["scene-0001"])
    data = NuScenesDataset(tmp_path)
    first = data.scans("train")[0]
    shutil.copy(real_data / REAL, tmp_path / first)
    np.full(34688, 24, np.uint8).tofile(
        tmp_path / "lidarseg/v1.0-trainval/v1.0-trainval-0-0_lidarseg.bin"
    )
    cloud = data.read(first)
    assert len(cloud) == 34688
    names = data.card.labels.names
    assert {names[i] for i in data.card.labels.encode(cloud.label)} == {"driveable surface"}
