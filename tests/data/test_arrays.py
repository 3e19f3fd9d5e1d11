"""NumPy files: tables, range images, named fields and arrays."""

import zipfile

import numpy as np
import pytest

from pctx.data.io.errors import ReadError
from pctx.data.io.formats import find_scans, output_suffix, read, write
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
        (np.zeros((5, 17)), r"shape \(5, 17\)"),
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


def scene(folder, n=20, **arrays):
    rng = np.random.default_rng(0)
    arrays = {
        "coord": rng.random((n, 3)).astype(np.float32),
        "color": rng.integers(0, 256, (n, 3)).astype(np.uint8),
        "normal": np.tile(np.float32([0, 0, 1]), (n, 1)),
        "segment": rng.integers(-1, 13, (n, 1)),
        "instance": rng.integers(-1, 5, n).astype(np.int32),
    } | arrays
    folder.mkdir(parents=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return arrays


def test_a_folder_of_arrays_is_one_scan(tmp_path):
    arrays = scene(tmp_path / "train/scene0000_00", strength=np.linspace(0, 1, 20))
    cloud = read(tmp_path / "train/scene0000_00")
    assert np.array_equal(cloud.coord, arrays["coord"])
    assert np.array_equal(cloud.color, arrays["color"])
    assert np.array_equal(cloud.label, arrays["segment"][:, 0])
    assert np.array_equal(cloud.instance, arrays["instance"])
    assert np.array_equal(cloud.normal, arrays["normal"]) and cloud.intensity[-1] == 1


def test_folders_of_arrays_are_found_as_scans_and_not_their_files(tmp_path):
    scene(tmp_path / "train/b")
    scene(tmp_path / "train/a")
    np.save(tmp_path / "train/c.npy", np.zeros((4, 3)))
    assert find_scans(tmp_path) == [tmp_path / "train" / name for name in ("a", "b", "c.npy")]
    assert find_scans(tmp_path / "train/a") == [tmp_path / "train/a"]
    assert output_suffix(tmp_path / "train/a") == ".npz"


def test_the_classes_of_scannet20_are_the_label_where_there_is_no_other(tmp_path):
    label = np.arange(20)
    scene(tmp_path / "a", segment20=label, segment200=label + 100)
    (tmp_path / "a/segment.npy").unlink()
    cloud = read(tmp_path / "a")
    assert np.array_equal(cloud.label, label)
    assert np.array_equal(cloud.extra["segment200"], label + 100)


def test_an_array_of_another_number_of_points_is_named(tmp_path):
    scene(tmp_path / "a", color=np.zeros((19, 3), np.uint8))
    with pytest.raises(ReadError, match=r"a/color.npy: 19 rows for the 20 points of coord.npy"):
        read(tmp_path / "a")
    scene(tmp_path / "b", coord=np.zeros((20, 2)))
    with pytest.raises(ReadError, match=r"coord.npy: positions are \(n, 3\)"):
        read(tmp_path / "b")


def test_labels_of_a_folder_beside_are_those_of_the_table(tmp_path):
    for name, array in (("points", np.zeros((4, 3))), ("labels", np.arange(4)[:, None])):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "1.npy", array)
    assert read(tmp_path / "points/1.npy").label.tolist() == [0, 1, 2, 3]
    np.save(tmp_path / "labels/1.npy", np.arange(5))
    with pytest.raises(ReadError, match="5 labels for the 4 points"):
        read(tmp_path / "points/1.npy")


def test_the_only_table_of_real_numbers_holds_the_positions(tmp_path):
    arrays = {"scan": np.random.default_rng(0).random((9, 4)), "labels": np.arange(9)}
    np.savez(tmp_path / "a.npz", rgb=np.full((9, 3), 7, np.uint8), **arrays)
    cloud = read(tmp_path / "a.npz")
    assert np.array_equal(cloud.coord, arrays["scan"][:, :3].astype(np.float32))
    assert cloud.label.tolist() == list(range(9)) and (cloud.color == 7).all()
    np.savez(tmp_path / "b.npz", other=arrays["scan"], **arrays)
    with pytest.raises(ReadError, match=r"no coord.*it has .*scan \(9, 4\), labels \(9,\)"):
        read(tmp_path / "b.npz")


@pytest.mark.parametrize("name", ["arr_0", "points", "coord"])
def test_a_table_in_an_archive_is_read_as_one_by_itself(name, tmp_path):
    table = np.hstack([np.random.default_rng(0).random((9, 3)), np.full((9, 3), 200)])
    np.savez_compressed(tmp_path / "a.npz", **{name: table})
    cloud = read(tmp_path / "a.npz")
    assert np.array_equal(cloud.coord, table[:, :3].astype(np.float32))
    assert (cloud.color == 200).all()


def test_an_archive_that_unpacks_to_far_more_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", coord=np.zeros((20_000_000, 3), np.float32))
    with pytest.raises(ReadError, match=r"240000128 of arrays.*save it without compression"):
        read(tmp_path / "a.npz")


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_shape_that_lies_reserves_no_memory(suffix, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((10, 3)))
    whole = (tmp_path / "a.npy").read_bytes()
    data = whole.replace(b"(10, 3), }           ", b"(999999999999, 3), } ")
    assert len(data) == len(whole) and data != whole
    if suffix == ".npy":
        (tmp_path / "a.npy").write_bytes(data)
    else:
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr("coord.npy", data)
    with pytest.raises(ReadError, match=r"\(999999999999, 3\).*holds 240: it is truncated"):
        read(tmp_path / f"a{suffix}")


@pytest.mark.parametrize("kind", [">f4", ">i2", "<f2", "<f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_any_order_of_bytes_and_axes_is_read(kind, order, tmp_path):
    table = np.asarray(np.arange(12).reshape(4, 3), dtype=kind, order=order)
    cloud = saved(tmp_path, table)
    assert np.array_equal(cloud.coord, np.arange(12).reshape(4, 3))


def test_named_fields_of_many_numbers_are_positions_and_colours(tmp_path):
    array = np.zeros(5, [("xyz", ">f4", (3,)), ("rgb", "u1", (3,)), ("label", ">i4")])
    array["xyz"], array["label"] = np.arange(15).reshape(5, 3), 7
    cloud = saved(tmp_path, array)
    assert np.array_equal(cloud.coord, array["xyz"]) and cloud.color is not None
    assert cloud.label.tolist() == [7] * 5
