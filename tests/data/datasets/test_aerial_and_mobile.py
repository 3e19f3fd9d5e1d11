"""Toronto3DDataset and DALESDataset: maps in files of the formats that pctx reads anyway."""

import numpy as np
import pytest

from pctx.data.datasets.dales import DALESDataset
from pctx.data.datasets.toronto3d import Toronto3DDataset
from pctx.data.io.formats import write
from pctx.geometry.points import PointCloud


def write_section(path, n=9):
    """Write a section as released: doubles, scalar_ before the names, labels as float32."""
    kinds = [(axis, "<f8") for axis in "xyz"] + [(c, "u1") for c in ("red", "green", "blue")]
    kinds += [
        (f"scalar_{name}", "<f4") for name in ("Intensity", "GPSTime", "ScanAngleRank", "Label")
    ]
    table = np.zeros(n, kinds)
    table["x"], table["y"], table["z"] = 627285.05 + np.arange(n), 4841948.3, 91.25
    table["scalar_Label"] = np.arange(n)
    names = {"<f8": "double", "|u1": "uchar", "<f4": "float"}
    lines = [f"property {names[table.dtype[name].str]} {name}" for name in table.dtype.names]
    header = ["ply", "format binary_little_endian 1.0", f"element vertex {n}", *lines]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("\n".join([*header, "end_header\n"]).encode() + table.tobytes())


def test_sections_of_toronto_keep_their_coordinates_and_labels(tmp_path):
    for i in (1, 2, 3, 4):
        write_section(tmp_path / f"Toronto_3D/L00{i}.ply")
    data = Toronto3DDataset(tmp_path)
    assert data.scans("train") == ["L001.ply", "L003.ply", "L004.ply"]
    assert data.scans("val") == ["L002.ply"]
    cloud = data.read("L002.ply")
    assert np.abs(cloud.xyz[:, 0] - 627285.05 - np.arange(9)).max() < 1e-4
    assert data.card.labels.encode(cloud.label).tolist() == list(range(-1, 8))
    assert cloud.intensity is not None and cloud.color is not None
    with pytest.raises(ValueError, match=r"holds no L00\*\.ply"):
        Toronto3DDataset(tmp_path.parent)


@pytest.mark.parametrize("suffix", ["las", "ply"])
def test_tiles_of_dales_are_split_by_folder(tmp_path, suffix):
    xyz = np.c_[np.linspace(0, 500, 9), np.linspace(0, 500, 9), np.linspace(10, 20, 9)]
    cloud = PointCloud.from_xyz(xyz + np.array([500000, 5440000, 0]), label=np.arange(9))
    root = tmp_path / f"dales_{suffix}"
    for tile in ("train/5080_54435", "train/5085_54320", "test/5080_54400"):
        write(root / f"{tile}.{suffix}", cloud)
    data = DALESDataset(tmp_path)
    assert data.scans("train") == [f"train/5080_54435.{suffix}", f"train/5085_54320.{suffix}"]
    assert data.scans("val") == data.scans("test") == [f"test/5080_54400.{suffix}"]
    number = data.card.labels.encode(data.read(data.scans("test")[0]).label)
    assert number.tolist() == list(range(-1, 8))
    with pytest.raises(ValueError, match=r"holds no train/\*\.\*, nor in dales_las"):
        DALESDataset(root / "train")
