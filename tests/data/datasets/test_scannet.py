"""ScanNetDataset: scenes as released and as prepared, with 20 and 200 classes."""

import json

import numpy as np
import pytest

from pctx.data.cards import card
from pctx.data.datasets.scannet import ScanNetDataset
from pctx.data.io.errors import ReadError
from pctx.data.io.formats import write
from pctx.geometry.points import PointCloud

TRAIN, VAL = "scene0191_00", "scene0568_00"
NAMES = "".join(
    "\t".join(row.split()) + "\n"
    for row in (
        "id raw_category category count nyu40id",
        "1 wall wall 8277 1",
        "2 chair chair 4646 5",
        "26 box box 775 29",
        "1191 mattress mattress 5 39",
    )
)
THINGS = {"wall": [0, 3], "chair": [1], "box": [4]}


def write_scene(root, scene, labelled=True):
    """Lay a scene of ten vertices out as released: five segments of two vertices."""
    folder = root / "scans" / scene
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    cloud = PointCloud(
        coord=rng.uniform(0, 5, (10, 3)).astype(np.float32),
        color=rng.integers(0, 256, (10, 3)).astype(np.uint8),
    )
    write(folder / f"{scene}_vh_clean_2.ply", cloud)
    segments = {"sceneId": scene, "segIndices": np.repeat(np.arange(5), 2).tolist()}
    (folder / f"{scene}_vh_clean_2.0.010000.segs.json").write_text(json.dumps(segments))
    groups = [
        {"id": i, "objectId": i, "segments": listed, "label": name}
        for i, (name, listed) in enumerate(THINGS.items())
    ]
    if labelled:
        (folder / f"{scene}.aggregation.json").write_text(json.dumps({"segGroups": groups}))
    (root / "scannetv2-labels.combined.tsv").write_text(NAMES)
    return cloud


def test_things_give_raw_ids_of_either_card(tmp_path):
    cloud = write_scene(tmp_path, TRAIN)
    for name, ids in {"scannet": (1, 5, 29), "scannet200": (1, 2, 26)}.items():
        data = ScanNetDataset(tmp_path, name)
        assert data.scans("train") == [TRAIN] and data.splits == ("train",)
        found = data.read(TRAIN)
        assert np.array_equal(found.color, cloud.color)
        wall, chair, box = ids
        assert found.label.tolist() == [wall] * 2 + [chair] * 2 + [0] * 2 + [wall] * 2 + [box] * 2
        assert found.instance.tolist() == [0, 0, 1, 1, -1, -1, 0, 0, 2, 2]
        names = np.array([*data.card.labels.names, "none"])
        # A box is no class of the benchmark of twenty.
        expected = "none" if name == "scannet" else "box"
        assert names[data.card.labels.encode(found.label)][-1] == expected


def test_the_labelled_mesh_comes_first(tmp_path):
    cloud = write_scene(tmp_path, TRAIN)
    path = tmp_path / f"scans/{TRAIN}/{TRAIN}_vh_clean_2.labels.ply"
    write(path, PointCloud(coord=cloud.coord, label=np.full(10, 39)))
    assert ScanNetDataset(tmp_path).read(TRAIN).label.tolist() == [39] * 10
    assert set(ScanNetDataset(tmp_path, "scannet200").read(TRAIN).label) == {0, 1, 2, 26}


def test_scenes_without_labels_are_scans(tmp_path):
    write_scene(tmp_path, "scene0707_00", labelled=False)
    (tmp_path / "scans").rename(tmp_path / "scans_test")
    data = ScanNetDataset(tmp_path)
    assert data.scans("test") == ["scene0707_00"]
    assert data.read("scene0707_00").label is None


def test_prepared_scenes_hold_class_numbers(tmp_path):
    folder = tmp_path / "val" / VAL
    folder.mkdir(parents=True)
    np.save(folder / "coord.npy", np.zeros((4, 3), np.float32))
    np.save(folder / "normal.npy", np.zeros((4, 3), np.float32))
    np.save(folder / "segment20.npy", np.array([0, 19, -1, 12]))
    np.save(folder / "segment200.npy", np.array([0, 199, -1, 1]))
    data = ScanNetDataset(tmp_path)
    assert data.scans("val") == [VAL]
    assert data.read(VAL).label.tolist() == [1, 39, 0, 14]
    assert ScanNetDataset(tmp_path, "scannet200").read(VAL).label.tolist() == [1, 1191, 0, 2]
    np.save(folder / "segment200.npy", np.array([0, 199]))
    with pytest.raises(ReadError, match=r"segment200\.npy: it has no class number for each of 4"):
        ScanNetDataset(tmp_path, "scannet200").read(VAL)
    (folder / "segment200.npy").unlink()
    assert ScanNetDataset(tmp_path, "scannet200").read(VAL).label is None


def test_the_splits_are_the_benchmarks():
    splits = card("scannet").splits
    assert {name: len(scenes) for name, scenes in splits.items()} == {
        **{"train": 1201, "val": 312, "test": 100}
    }
    assert len({scene for scenes in splits.values() for scene in scenes}) == 1613
    # No room is on both sides.
    rooms = {name: {scene[:9] for scene in scenes} for name, scenes in splits.items()}
    assert not rooms["train"] & rooms["val"] and len(rooms["train"] | rooms["val"]) == 707
    assert card("scannet200").splits == splits


def test_what_is_wrong_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="no folder scene… in scans"):
        ScanNetDataset(tmp_path)
    write_scene(tmp_path, TRAIN)
    with pytest.raises(ValueError, match="card must be one of scannet, scannet200, found s3dis"):
        ScanNetDataset(tmp_path, "s3dis")
    data = ScanNetDataset(tmp_path)
    names = tmp_path / "scannetv2-labels.combined.tsv"
    names.write_text(NAMES.replace("chair", "stool"))
    with pytest.raises(ReadError, match=r"aggregation\.json: 'chair' is not in scannetv2"):
        data.read(TRAIN)
    names.unlink()
    with pytest.raises(ReadError, match="combined.tsv is missing"):
        data.read(TRAIN)
    names.write_text(NAMES)
    segments = tmp_path / f"scans/{TRAIN}/{TRAIN}_vh_clean_2.0.010000.segs.json"
    segments.write_text(json.dumps({"segIndices": [0, 1]}))
    with pytest.raises(ReadError, match="segments of 2 vertices, not 10"):
        data.read(TRAIN)
    segments.write_text("[")
    with pytest.raises(ReadError, match=r"segs\.json"):
        data.read(TRAIN)
