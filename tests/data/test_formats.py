"""The table of formats: reading what was written, and refusals."""

import os

import numpy as np
import pytest

import pctx
from pctx.data.io.errors import ReadError
from pctx.data.io.formats import (
    FORMATS,
    READABLE,
    WRITABLE,
    check_output,
    find_scans,
    output_suffix,
    read,
    write,
)
from pctx.data.labels import LabelSet
from pctx.data.prediction import Prediction
from pctx.geometry.points import PointCloud

BOTH = [suffix for suffix in READABLE if suffix in WRITABLE]
LABELS = LabelSet(names=("a", "b"), colors=((255, 0, 0), (0, 0, 255)), raw=((2,), (6,)))


def full_cloud(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return PointCloud.from_xyz(
        rng.uniform(-50, 50, (n, 3)) + np.array([7e5, 6e6, 100]),
        color=rng.integers(1, 256, (n, 3)).astype(np.uint8),
        intensity=rng.integers(2, 60000, n).astype(np.float32),
        normal=rng.normal(size=(n, 3)).astype(np.float32),
        label=rng.integers(0, 32, n),
        instance=rng.integers(0, 1000, n),
        extra={"ring": rng.integers(0, 64, n).astype(np.int16), "omega": rng.random(n)},
    )


@pytest.mark.parametrize("suffix", BOTH)
@pytest.mark.parametrize("n", [0, 1, 200])
def test_reading_what_was_written_gives_the_cloud(suffix, n, tmp_path):
    cloud = full_cloud(n)
    path = tmp_path / f"cloud{suffix}"
    write(path, cloud)
    back = read(path)
    assert np.allclose(back.xyz, cloud.xyz, rtol=0, atol=0.0006)
    for name in ("color", "intensity", "normal", "label", "instance"):
        found = getattr(back, name)
        if n or found is not None:  # colours that are all 0, as none are, are absent in LAS
            assert np.array_equal(found, getattr(cloud, name)), name
    for name, column in cloud.extra.items():
        assert np.array_equal(back.extra[name], column), name


@pytest.mark.parametrize("suffix", BOTH)
def test_a_prediction_is_written_with_what_is_asked_for(suffix, tmp_path):
    cloud = full_cloud(50)
    rng = np.random.default_rng(0)
    pred = Prediction(
        label=rng.integers(-1, 2, 50),
        labels=LABELS,
        probability=rng.random((50, 2)).astype(np.float32),
        entropy=rng.random(50).astype(np.float32),
    )
    for probabilities in (False, True):
        for entropy in (False, True):
            path = tmp_path / f"{probabilities}{entropy}{suffix}"
            write(path, cloud, prediction=pred, probabilities=probabilities, entropy=entropy)
            back = read(path)
            assert np.array_equal(back.label, pred.raw)
            assert ("probability_b" in back.extra) == probabilities
            assert ("entropy" in back.extra) == entropy
            if entropy:
                assert np.array_equal(back.extra["entropy"].astype(np.float32), pred.entropy)


def test_the_public_names_are_these():
    assert pctx.read is read and pctx.write is write


def test_nothing_is_replaced_unless_asked(tmp_path):
    cloud = full_cloud(5)
    path = tmp_path / "a.ply"
    path.write_bytes(b"mine")
    with pytest.raises(FileExistsError, match=r"a.ply.*--overwrite"):
        write(path, cloud)
    assert path.read_bytes() == b"mine"
    write(path, cloud, overwrite=True)
    assert len(read(path)) == 5
    assert [p.name for p in tmp_path.iterdir()] == ["a.ply"]


@pytest.mark.parametrize("link", [None, "symlink", "hardlink"])
def test_the_input_is_never_the_output(link, tmp_path):
    source = tmp_path / "a.laz"
    write(source, full_cloud(5))
    before, target = source.read_bytes(), tmp_path / ("b.laz" if link else "a.laz")
    if link == "symlink":
        target.symlink_to(source)
    elif link == "hardlink":
        os.link(source, target)
    with pytest.raises(ValueError, match="is the file that is read"):
        write(target, read(source), source=source, overwrite=True)
    assert source.read_bytes() == before


def test_a_write_that_fails_leaves_nothing(tmp_path):
    cloud = PointCloud(coord=np.zeros((2, 3), np.float32), label=np.array([0, 256]))
    for suffix in (".las", ".laz", "_lidarseg.bin"):
        with pytest.raises(ValueError, match="256"):
            write(tmp_path / "new" / f"a{suffix}", cloud)
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_unknown_suffixes_list_the_known_ones(tmp_path):
    (tmp_path / "a.dat").write_bytes(b"1 2 3")
    with pytest.raises(ReadError, match=r"a.dat: its suffix is not known.*\.las, .*\.npz"):
        read(tmp_path / "a.dat")
    (tmp_path / "a.label").write_bytes(b"1234")
    with pytest.raises(ReadError, match=r"a .label file holds no points"):
        read(tmp_path / "a.label")
    with pytest.raises(ValueError, match=r"cannot be written.*\.las.*\.label"):
        write(tmp_path / "a.bin", full_cloud(3))


@pytest.mark.parametrize("suffix", READABLE)
def test_what_is_no_file_of_points_is_one_sentence(suffix, tmp_path):
    path = tmp_path / f"a{suffix}"
    with pytest.raises(FileNotFoundError, match="no such file"):
        read(path)
    path.write_bytes(b"")
    with pytest.raises(ReadError, match="empty"):
        read(path)
    path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR and more of it than seven bytes")
    with pytest.raises(ReadError, match=path.name):
        read(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ReadError, match="is a folder"):
        read(path)
    with pytest.raises((FileExistsError, ValueError)):
        write(path, full_cloud(3), overwrite=True)


@pytest.mark.parametrize("suffix", BOTH)
@pytest.mark.parametrize("wrong", BOTH)
def test_contents_are_believed_before_the_suffix(suffix, wrong, tmp_path):
    write(tmp_path / f"a{suffix}", full_cloud(7))
    (tmp_path / f"a{suffix}").rename(tmp_path / f"b{wrong}")
    assert len(read(tmp_path / f"b{wrong}")) == 7


@pytest.mark.parametrize("suffix", [*BOTH, ".npy"])
def test_a_damaged_file_is_read_or_is_an_error_and_nothing_else(suffix, tmp_path):
    path = tmp_path / f"a{suffix}"
    if suffix == ".npy":
        np.save(path, np.random.default_rng(0).random((50, 4)))
    else:
        write(path, full_cloud(50))
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(150):
        data = bytearray(whole)
        for at in rng.integers(0, min(len(data), 600), rng.integers(1, 4)):
            data[at] = rng.integers(256)
        if rng.random() < 0.3:
            del data[rng.integers(1, len(data)) :]
        path.write_bytes(data)
        try:
            read(path)
        except ReadError as error:
            assert str(path) in str(error) and "\n" not in str(error)


def test_a_prediction_of_other_points_is_refused(tmp_path):
    pred = Prediction(label=np.zeros(4, np.int64), labels=LABELS)
    with pytest.raises(ValueError, match="4 points, the cloud 5"):
        write(tmp_path / "a.ply", full_cloud(5), prediction=pred)
    with pytest.raises(ValueError, match="no entropy"):
        write(tmp_path / "a.ply", full_cloud(4), prediction=pred, entropy=True)
    with pytest.raises(ValueError, match="no probabilities"):
        write(tmp_path / "a.ply", full_cloud(4), prediction=pred, probabilities=True)


def test_kept_labels_keep_their_colours(tmp_path):
    pred = Prediction(label=np.array([0, 1, 0]), labels=LABELS, kept=np.array([-1, 2, 99]))
    write(tmp_path / "a.ply", full_cloud(3), prediction=pred)
    back = read(tmp_path / "a.ply")
    assert back.label.tolist() == [2, 2, 99]
    assert back.color[:2].tolist() == [[255, 0, 0], [255, 0, 0]]
    assert back.color[2].tolist() not in [[255, 0, 0], [0, 0, 255]]


def test_refusals_come_before_anything_is_computed(tmp_path):
    write(tmp_path / "a.ply", full_cloud(3))
    with pytest.raises(FileExistsError):
        check_output(tmp_path / "a.ply")
    with pytest.raises(ValueError, match="cannot be written"):
        check_output(tmp_path / "a.dat")
    with pytest.raises(ValueError, match="is the file that is read"):
        check_output(tmp_path / "a.ply", source=tmp_path / "a.ply", overwrite=True)
    check_output(tmp_path / "b.ply", LABELS, source=tmp_path / "a.ply")


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("a.las", ".las"),
        ("A.LAZ", ".laz"),
        ("a.copc.laz", ".laz"),
        ("a.bin", ".label"),
        ("a.pcd.bin", "_lidarseg.bin"),
        ("a.npy", ".npz"),
        ("a.ply", ".ply"),
    ],
)
def test_labels_go_to_a_format_that_holds_them(name, suffix, tmp_path):
    assert output_suffix(tmp_path / name) == suffix
    assert FORMATS[suffix].write is not None


def test_scans_are_found_sorted_and_without_their_labels(tmp_path):
    for name in (
        "velodyne/000001.bin", "velodyne/000000.bin", "labels/000000.label", "b.LAZ", "a.ply",
        "notes.txt", ".hidden.laz", ".cache/x.laz", "deep/er/c.npz", "d.pcd.bin",
        "d_lidarseg.bin", "npy/points/1.npy", "npy/labels/1.npy", "my/labels/e.laz",
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "deep" / "loop").symlink_to(tmp_path)
    found = [p.relative_to(tmp_path).as_posix() for p in find_scans(tmp_path)]
    assert found == [
        "a.ply", "b.LAZ", "d.pcd.bin", "deep/er/c.npz", "my/labels/e.laz", "npy/points/1.npy",
        "velodyne/000000.bin", "velodyne/000001.bin",
    ]  # fmt: skip


@pytest.mark.parametrize("suffix", WRITABLE)
def test_features_are_written_where_they_fit_and_else_refused_beforehand(tmp_path, suffix):
    path, cloud = tmp_path / f"out{suffix}", full_cloud(5)
    features = np.arange(15, dtype=np.float32).reshape(5, 3)
    prediction = Prediction(label=np.zeros(5, np.int64), labels=LABELS, features=features)
    if suffix == ".npz":
        write(path, cloud, prediction=prediction, features=True)
        np.testing.assert_array_equal(read(path).extra["feat"], features)
        return
    with pytest.raises(ValueError, match=r"features do not fit into this format; write \.npz"):
        check_output(path, LABELS, features=True)
    with pytest.raises(ValueError, match="features do not fit"):
        write(path, cloud, prediction=prediction, features=True)
    assert not path.exists()


def test_features_need_a_prediction_that_has_them(tmp_path):
    cloud = full_cloud(5)
    bare = Prediction(label=np.zeros(5, np.int64), labels=LABELS)
    with pytest.raises(ValueError, match="the prediction has no features"):
        write(tmp_path / "a.npz", cloud, prediction=bare, features=True)
    with pytest.raises(ValueError, match="only a prediction has"):
        write(tmp_path / "a.npz", cloud, features=True)
