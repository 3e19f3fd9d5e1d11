"""S3DISDataset: rooms as released and as prepared, with the same points and labels."""

import numpy as np
import pytest

from pctx.data.datasets.s3dis import S3DISDataset
from pctx.data.io.errors import ReadError

THINGS = {"ceiling_1": 5, "chair_1": 3, "chair_2": 4, "stairs_1": 2, "bookcase_1": 6}


def write_room(folder, seed=0):
    """Write the text files of a room as released; give its points in the order of the things."""
    (folder / "Annotations").mkdir(parents=True)
    rng = np.random.default_rng(seed)
    tables = []
    for thing in sorted(THINGS):
        table = np.c_[
            rng.uniform(-20, 20, (THINGS[thing], 3)).round(3),
            rng.integers(0, 256, (THINGS[thing], 3)),
        ]
        lines = [" ".join(f"{v:g}" for v in row) for row in table]
        (folder / f"Annotations/{thing}.txt").write_text("\n".join(lines) + "\n")
        tables.append(table)
    (folder / "Annotations/.DS_Store").write_bytes(bytes(10))
    return np.concatenate(tables)


def test_things_give_class_and_instance(tmp_path):
    table = write_room(tmp_path / "Area_1/office_1")
    data = S3DISDataset(tmp_path)
    assert data.scans("train") == ["Area_1/office_1"]
    cloud = data.read("Area_1/office_1")
    assert np.allclose(cloud.coord, table[:, :3], atol=1e-6)
    assert np.array_equal(cloud.color, table[:, 3:])
    # bookcase, ceiling, two chairs, and stairs, which count as clutter.
    assert cloud.label.tolist() == [10] * 6 + [0] * 5 + [8] * 7 + [12] * 2
    assert cloud.instance.tolist() == [0] * 6 + [1] * 5 + [2] * 3 + [3] * 4 + [4] * 2


def test_a_control_character_between_numbers_is_a_blank(tmp_path):
    write_room(tmp_path / "Area_5/hallway_6")
    path = tmp_path / "Area_5/hallway_6/Annotations/ceiling_1.txt"
    path.write_bytes(b"1 2 3 185\x10187 182\n4 5 6 1 2 3\n")
    cloud = S3DISDataset(tmp_path).read("Area_5/hallway_6")
    assert cloud.color[6:8].tolist() == [[185, 187, 182], [1, 2, 3]]


def test_any_area_is_for_validation(tmp_path):
    for area in range(1, 7):
        write_room(tmp_path / f"Stanford3dDataset_v1.2_Aligned_Version/Area_{area}/office_1")
    assert S3DISDataset(tmp_path).scans("val") == ["Area_5/office_1"]
    assert len(S3DISDataset(tmp_path).scans("train")) == 5
    data = S3DISDataset(tmp_path, test_area=2)
    assert data.scans("val") == ["Area_2/office_1"]
    assert data.scans("train") == [f"Area_{area}/office_1" for area in (1, 3, 4, 5, 6)]


def test_prepared_rooms_have_the_same_numbers(tmp_path):
    folder = tmp_path / "Area_1/office_2"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    table = np.c_[rng.random((13, 3)), rng.integers(0, 256, (13, 3)), np.arange(13)]
    np.save(folder / "coord.npy", table[:, :3].astype(np.float32))
    np.save(folder / "color.npy", table[:, 3:6].astype(np.uint8))
    np.save(folder / "normal.npy", np.tile([[0, 0, 1.0]], (13, 1)))
    np.save(folder / "segment.npy", np.arange(13).reshape(-1, 1))
    np.save(folder / "instance.npy", np.arange(13).reshape(-1, 1))
    np.save(tmp_path / "Area_1_office_3.npy", table)
    data = S3DISDataset(tmp_path)
    assert data.scans("train") == ["Area_1/office_2", "Area_1_office_3.npy"]
    for scan in data.scans("train"):
        cloud = data.read(scan)
        assert cloud.label.tolist() == list(range(13))
        assert np.array_equal(cloud.color, table[:, 3:6])
    assert data.read("Area_1/office_2").normal.shape == (13, 3)


def test_a_real_prepared_room_is_read(real_data):
    data = S3DISDataset(real_data / "open-mmlab__mmdetection3d_HEAD/tests/data/s3dis")
    assert data.scans("train") == ["Area_1_office_2.bin"]
    cloud = data.read("Area_1_office_2.bin")
    counts = np.bincount(cloud.label, minlength=13).tolist()
    assert counts == [19, 14, 39, 2, 2, 2, 6, 4, 2, 2, 3, 0, 5]
    assert cloud.color is not None and len(data.files("Area_1_office_2.bin")) == 2


def test_what_is_wrong_is_one_sentence(tmp_path):
    write_room(tmp_path / "Area_1/office_1")
    with pytest.raises(ValueError, match="test_area must be 1 to 6, found 7"):
        S3DISDataset(tmp_path, test_area=7)
    data = S3DISDataset(tmp_path)
    path = tmp_path / "Area_1/office_1/Annotations/chair_1.txt"
    path.write_text("1 2 3 4 5\n")
    with pytest.raises(ReadError, match=r"chair_1\.txt: 5 numbers are no rows"):
        data.read("Area_1/office_1")
    path.write_text("1 2 3 x 5 6\n")
    with pytest.raises(ReadError, match=r"chair_1\.txt: it should hold numbers only"):
        data.read("Area_1/office_1")
    with pytest.raises(ValueError, match=r"holds no Area_\*, nor in Stanford3d"):
        S3DISDataset(tmp_path / "Area_1/office_1")
