"""KITTI and nuScenes scans, and the labels beside them."""

import numpy as np
import pytest

from pctx.data.io.errors import ReadError
from pctx.data.io.formats import read, write
from pctx.data.labels import LabelSet
from pctx.data.prediction import Prediction
from pctx.geometry.points import PointCloud

KITTI = "open-mmlab__mmdetection3d/tests/data/semantickitti/sequences/00"
NUSCENES = (
    "open-mmlab__mmdetection3d_HEAD/demo/data/nuscenes/"
    "n015-2018-07-24-11-22-45+0800__LIDAR_TOP__1532402927647951.pcd.bin"
)


def scan(n, columns=4, seed=0):
    rng = np.random.default_rng(seed)
    table = rng.uniform(-40, 40, (n, columns)).astype("<f4")
    table[:, 3] = rng.random(n)
    if columns == 5:
        table[:, 3] = rng.integers(0, 256, n)
        table[:, 4] = rng.integers(0, 32, n)
    return table


def test_labels_of_the_labels_folder_are_split_into_class_and_instance(real_data):
    cloud = read(real_data / KITTI / "velodyne/000000.bin")
    word = np.fromfile(real_data / KITTI / "labels/000000.label", np.uint32)
    assert len(cloud) == 124668
    assert np.array_equal(cloud.label, word % 2**16)
    assert np.array_equal(cloud.instance, word // 2**16)
    assert (cloud.label == 40).sum() == 34228
    assert cloud.intensity.min() >= 0 and cloud.intensity.max() <= 1
    assert not cloud.origin.any()


def test_nuscenes_has_rings_and_an_intensity_up_to_1(real_data):
    cloud = read(real_data / NUSCENES)
    assert len(cloud) == 34688
    assert cloud.intensity.max() == 1
    assert np.unique(cloud.extra["ring"]).tolist() == list(range(32))


@pytest.mark.parametrize("n", [4, 50, 1000])
def test_five_columns_are_told_from_four(n, tmp_path):
    for columns in (4, 5):
        scan(n, columns).tofile(tmp_path / f"{columns}.bin")
        cloud = read(tmp_path / f"{columns}.bin")
        assert len(cloud) == n
        assert ("ring" in cloud.extra) == (columns == 5)


def test_points_without_an_echo_are_rows(tmp_path):
    table = scan(80)
    table[3] = np.nan
    table[5, 0] = np.inf
    table[7] = 0
    table.tofile(tmp_path / "a.bin")
    cloud = read(tmp_path / "a.bin")
    assert len(cloud) == 80
    assert np.flatnonzero(~cloud.finite).tolist() == [3, 5]


def test_a_file_of_zeros_has_four_columns(tmp_path):
    np.zeros((20, 4), "<f4").tofile(tmp_path / "a.bin")
    assert len(read(tmp_path / "a.bin")) == 20


def test_six_columns_hold_colours(real_data):
    room = read(
        real_data / "open-mmlab__mmdetection3d_HEAD/tests/data/s3dis/points/Area_1_office_2.bin"
    )
    assert len(room) == 100 and room.color.max() == 255
    block = read(
        real_data / "open-mmlab__mmdetection3d_sensaturban/tests/data/sensaturban/train/points"
        "/birmingham_block_0_0002.bin"
    )
    assert len(block) == 60095 and block.color.max() == 250  # 0.98 of 255


@pytest.mark.parametrize(
    "name",
    [
        "daavoo__pyntcloud/tests/data/diamond.bin",
        "PDAL__PDAL/test/data/terrasolid/20020715-time-color.bin",
        "open-mmlab__mmdetection3d_HEAD/tests/data/s3dis/semantic_mask/Area_1_office_2.bin",
    ],
)
def test_bytes_of_another_meaning_are_refused_with_their_number(name, real_data):
    size = (real_data / name).stat().st_size
    with pytest.raises(ReadError, match=f"{size} bytes .* 4 float32 columns"):
        read(real_data / name)


def test_a_nuscenes_name_with_other_columns_is_refused(tmp_path):
    scan(10).tofile(tmp_path / "a.pcd.bin")
    with pytest.raises(ReadError, match="5 float32 columns"):
        read(tmp_path / "a.pcd.bin")


@pytest.mark.parametrize("n", [60, 600, 6000])
@pytest.mark.parametrize(
    "kind", ["xyz", "xyz in a unit cube", "with a time", "with ring and time", "in a unit cube"]
)
def test_columns_of_another_width_are_never_read_in_silence(kind, n, tmp_path):
    """All numbers are above 0, as of a cloud moved to its corner: each would pass for another."""
    rng = np.random.default_rng(n)
    xyz = rng.random((n, 3)) * ([1, 1, 1] if "cube" in kind else [50, 40, 5])
    intensity, ring, time = rng.random(n), rng.integers(0, 32, n), 0.1 * rng.random(n)
    more = {
        "with a time": [intensity, time],
        "with ring and time": [intensity, ring, time],
        "in a unit cube": [intensity],
    }
    table = np.column_stack([xyz, *more.get(kind, [])]).astype("<f4")
    table.tofile(tmp_path / "a.bin")
    with pytest.raises(ReadError, match=r"a\.bin: .* a point has 3 or .* do not look like [46]"):
        read(tmp_path / "a.bin")


@pytest.mark.parametrize("n", [60, 600, 6000])
def test_positions_above_0_are_read_with_intensities_and_colours(n, tmp_path):
    rng = np.random.default_rng(n)
    xyz = rng.random((n, 3)) * [50, 40, 5]
    for more in (rng.random((n, 1)), rng.integers(0, 256, (n, 1)), rng.random((n, 3)), [[0]] * n):
        np.column_stack([xyz, more]).astype("<f4").tofile(tmp_path / "a.bin")
        assert len(read(tmp_path / "a.bin")) == n


def test_labels_of_another_number_name_both(tmp_path):
    scan(10).tofile(tmp_path / "a.bin")
    np.zeros(7, "<u4").tofile(tmp_path / "a.label")
    with pytest.raises(ReadError, match=r"a.label: 7 labels for the 10 points of a.bin"):
        read(tmp_path / "a.bin")
    np.zeros(9, np.uint8).tofile(tmp_path / "a.label")
    with pytest.raises(ReadError, match="9 bytes are no labels of the 10 points of a.bin"):
        read(tmp_path / "a.bin")


LABELS = LabelSet(
    names=("car", "road"), colors=((1, 1, 1), (2, 2, 2)), raw=((10, 252), (40,)), ignore=(0,)
)


def test_written_labels_are_read_back_beside_the_scan(tmp_path):
    scan(6).tofile(tmp_path / "a.bin")
    cloud = read(tmp_path / "a.bin")
    instance = np.array([0, 1, 2, 65535, 4, 5])
    cloud = PointCloud(coord=cloud.coord, intensity=cloud.intensity, instance=instance)
    pred = Prediction(label=np.array([0, 1, -1, 0, 1, 1]), labels=LABELS)
    write(tmp_path / "a.label", cloud, prediction=pred, source=tmp_path / "a.bin")
    assert (tmp_path / "a.label").stat().st_size == 24
    back = read(tmp_path / "a.bin")
    assert back.label.tolist() == [10, 40, 0, 10, 40, 40]
    assert np.array_equal(back.instance, instance)


def test_written_lidarseg_labels_are_read_back_beside_the_scan(tmp_path):
    scan(5, 5).tofile(tmp_path / "a.pcd.bin")
    pred = Prediction(label=np.array([0, 1, 1, 0, -1]), labels=LABELS)
    write(tmp_path / "a_lidarseg.bin", read(tmp_path / "a.pcd.bin"), prediction=pred)
    assert read(tmp_path / "a.pcd.bin").label.tolist() == [10, 40, 40, 10, 0]


def test_what_a_label_file_cannot_hold_is_refused(tmp_path):
    cloud = PointCloud(coord=np.zeros((2, 3), np.float32), label=np.array([1, 70000]))
    with pytest.raises(ValueError, match="70000"):
        write(tmp_path / "a.label", cloud)
    with pytest.raises(ValueError, match="no labels"):
        write(tmp_path / "a.label", PointCloud(coord=np.zeros((2, 3), np.float32)))
    pred = Prediction(label=np.zeros(2, np.int64), labels=LABELS, entropy=np.zeros(2))
    with pytest.raises(ValueError, match="no room for entropy"):
        write(tmp_path / "a.label", cloud, prediction=pred, entropy=True)
    assert not list(tmp_path.iterdir())


def test_labels_of_one_byte_or_of_masks_are_read_beside_a_folder_of_points(tmp_path):
    (tmp_path / "points").mkdir()
    scan(6).tofile(tmp_path / "points/a.bin")
    label = np.array([0, 3, 250, 1, 2, 2])
    (tmp_path / "labels").mkdir()
    label.astype(np.uint8).tofile(tmp_path / "labels/a.label")
    assert np.array_equal(read(tmp_path / "points/a.bin").label, label)
    (tmp_path / "labels/a.label").unlink()
    for name in ("semantic_mask", "instance_mask"):
        (tmp_path / name).mkdir()
        label.astype(np.int64).tofile(tmp_path / name / "a.bin")
    cloud = read(tmp_path / "points/a.bin")
    assert np.array_equal(cloud.label, label) and np.array_equal(cloud.instance, label)
    label[:5].astype(np.int64).tofile(tmp_path / "semantic_mask/a.bin")
    with pytest.raises(ReadError, match=r"5 labels for the 6 points of a.bin"):
        read(tmp_path / "points/a.bin")
