"""NumPy files: tables, range images, named fields and arrays."""

import zipfile

import numpy as np
import pytest

from pctx.data.io.errors import ReadError
from pctx.data.io.formats import read, write
from pctx.geometry.points import PointCloud


def saved(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    return read(tmp_path / "a.npy")


def test_three_and_four_columns_are_positions_and_intensity(tmp_path):
    table = np.random.default_rng(0).random((10, 4)).astype(np.float32)
    assert np.array_equal(saved(tmp_path, table[:, :3]).coord, table[:, :3])
    assert np.array_equal(saved(tmp_path, table).intensity, table[:, 3])


def test_six_columns_are_colours_or_normals_by_what_they_hold(tmp_path):
    rng = np.random.default_rng(0)
    xyz = rng.random((50, 3))
    color = rng.integers(0, 256, (50, 3))
    normal = rng.normal(size=(50, 3))
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    assert np.array_equal(saved(tmp_path, np.hstack([xyz, color])).color, color)
    assert np.array_equal(saved(tmp_path, np.hstack([xyz, color / 255])).color, color)
    found = saved(tmp_path, np.hstack([xyz, normal])).normal
    assert np.allclose(found, normal, atol=1e-6)
    found = saved(tmp_path, np.hstack([xyz, np.abs(normal)]))
    assert found.normal is not None and found.color is None


def test_seven_columns_end_with_the_label(tmp_path):
    table = np.random.default_rng(0).integers(0, 256, (10, 7)).astype(float)
    cloud = saved(tmp_path, table)
    assert np.array_equal(cloud.color, table[:, 3:6]) and np.array_equal(cloud.label, table[:, 6])


def test_a_range_image_gives_the_pixels_that_hold_a_point(real_data):
    path = next(real_data.glob("ika*semantic_kitti/dataset_samples/semantic_kitti/val/4.npy"))
    image = np.load(path)
    cloud = read(path)
    there = image[..., 4] != 0
    assert len(cloud) == there.sum() == 50865
    assert np.allclose(cloud.coord, image[there][:, :3], atol=1e-5)
    assert np.array_equal(cloud.label, image[there][:, 5])


def test_named_fields_go_by_their_names(real_data):
    cloud = read(real_data / "daavoo__pyntcloud/tests/data/diamond.npy")
    assert len(cloud) == 6 and cloud.normal is not None and cloud.color is not None
    assert "alpha" in cloud.extra
    assert len(read(real_data / "daavoo__pyntcloud/tests/data/diamond.npz")) == 6


@pytest.mark.parametrize(
    "names", [("coord", "color", "segment"), ("xyz", "rgb", "label"), ("points", "colors", "class")]
)
def test_usual_names_of_arrays_are_known(names, tmp_path):
    rng = np.random.default_rng(0)
    arrays = [rng.random((9, 3)), rng.integers(0, 256, (9, 3)), rng.integers(0, 5, (9, 1))]
    np.savez(tmp_path / "a.npz", **dict(zip(names, arrays, strict=True)), name=np.array("x"))
    cloud = read(tmp_path / "a.npz")
    assert np.allclose(cloud.coord, arrays[0], atol=1e-7)
    assert np.array_equal(cloud.color, arrays[1])
    assert np.array_equal(cloud.label, arrays[2][:, 0])
    assert not cloud.extra


def test_single_columns_of_an_archive_are_positions_too(tmp_path):
    x = np.arange(5.0)
    np.savez(tmp_path / "a.npz", x=x, y=x, z=x, intensity=x)
    assert read(tmp_path / "a.npz").coord[4].tolist() == [4, 4, 4]


def test_an_archive_gives_back_every_bit_of_a_cloud(tmp_path):
    rng = np.random.default_rng(0)
    cloud = PointCloud(
        coord=rng.normal(size=(9, 3)).astype(np.float32),
        origin=np.array([1e6, 2e6, 3.5]),
        color=rng.integers(0, 256, (9, 3)).astype(np.uint8),
        intensity=rng.random(9).astype(np.float32),
        normal=rng.normal(size=(9, 3)).astype(np.float32),
        label=rng.integers(-1, 10**6, 9),
        instance=rng.integers(0, 10**6, 9),
        extra={"file": rng.random(9), "a/b": rng.random((9, 2)), "Intensity": rng.random(9)},
    )
    cloud.coord[3] = np.nan
    write(tmp_path / "a.npz", cloud)
    back = read(tmp_path / "a.npz")
    assert np.array_equal(back.coord, cloud.coord, equal_nan=True)
    for name in ("origin", "color", "intensity", "normal", "label", "instance"):
        assert np.array_equal(getattr(back, name), getattr(cloud, name)), name
    for name, column in cloud.extra.items():
        assert np.array_equal(back.extra[name.replace("/", "_")], column), name


def test_the_same_cloud_gives_the_same_archive(tmp_path):
    cloud = PointCloud(coord=np.ones((2, 3), np.float32))
    write(tmp_path / "a.npz", cloud)
    write(tmp_path / "b.npz", cloud)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.zeros((5, 1), np.int32), r"shape \(5, 1\)"),
        (np.zeros((5, 5)), r"shape \(5, 5\)"),
        (np.zeros((2, 3), "U4"), "<U4"),
        (np.zeros(3), r"shape \(3,\)"),
        (np.array([(1, 2)], [("x", "f4"), ("y", "f4")]), "no column z"),
    ],
)
def test_an_array_that_is_no_cloud_is_refused_with_its_shape(array, says, tmp_path):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(ReadError, match=says):
        read(tmp_path / "a.npy")


def test_pickled_objects_are_never_loaded(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ReadError, match="a.npy"):
        read(tmp_path / "a.npy")


def test_an_archive_of_something_else_is_refused(real_data, tmp_path):
    name = "Amsterdam-AI-Team__Urban_PointCloud_Processing/datasets/ahn/ahn_2386_9702.npz"
    with pytest.raises(ReadError, match="no column z"):
        read(real_data / name)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("readme.txt", "no arrays")
    with pytest.raises(ReadError, match="a.npz"):
        read(tmp_path / "a.npz")
    write(tmp_path / "b.npz", PointCloud(coord=np.zeros((100, 3), np.float32)))
    (tmp_path / "b.npz").write_bytes((tmp_path / "b.npz").read_bytes()[:300])
    with pytest.raises(ReadError, match="b.npz"):
        read(tmp_path / "b.npz")
