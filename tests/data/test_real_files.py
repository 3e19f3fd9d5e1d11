"""Every real file is read to what the manifest says of it, or refused; and what is read is kept."""

import ast
import csv
import re
from pathlib import Path

import numpy as np
import pytest

from pctx.data.io.errors import ReadError
from pctx.data.io.formats import read, write
from pctx.data.io.labelled import Labelled
from pctx.data.io.las_file import read_las_file
from pctx.data.io.pcd import write_pcd

ROOT = Path(__file__).resolve().parents[3] / "shared" / "data" / "real"
SUFFIXES = (".las", ".laz", ".ply", ".pcd", ".npz", ".txt", ".csv")
SLOW_READ, SLOW_WRITE = 700_000, 60_000
"""Bytes of a file from which on its test is for CI."""
READ_BUT_NOT_BY_OTHERS = {
    # Files that the tools with which the manifest was made could not read, and their points.
    "simple-laszip-compressor-version-1.2r0.laz": 1065,
    "simple_text.ply": 3,
    "PLYascii.ply": 4,
}
REFUSED = ("BROKEN: truncated", "BROKEN: header says", "BROKEN text header", "no x/y/z triple")
"""In the notes of files whose points can be counted and yet are no scan."""
PROSE = "text.txt"
NORMALS = ("nx", "ny", "nz", "normal_x", "normal_y", "normal_z")
COLORS = ("red", "green", "blue", "rgb", "rgba")


def rows():
    if not ROOT.is_dir():
        return []
    with (ROOT / "MANIFEST.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def params(slow_from, rows):
    return [
        pytest.param(
            row, id=row["path"], marks=[pytest.mark.slow] * (int(row["bytes"]) > slow_from)
        )
        for row in rows
    ]


def holds_labels_only(row):
    folder = Path(row["path"]).parent.name
    return (
        folder in ("labels", "semantic_mask")
        or "labels" in row["format"]
        or (row["path"].endswith(".label"))
    )


def is_refused(row):
    if Path(row["path"]).name in READ_BUT_NOT_BY_OTHERS:
        return False
    bad = not row["points"] or any(note in row["notes"] for note in REFUSED)
    return bad or Path(row["path"]).name == PROSE or holds_labels_only(row)


MANIFEST = rows()
WHOLE = [row for row in MANIFEST if not is_refused(row)]


def histogram(label):
    codes, counts = np.unique(label, return_counts=True)
    return dict(zip(codes.tolist(), counts.tolist(), strict=True))


@pytest.mark.parametrize("row", params(SLOW_READ, MANIFEST))
def test_a_real_file_is_read_to_what_is_said_of_it_or_is_refused_in_a_sentence(row, real_data):
    path = real_data / row["path"]
    if is_refused(row):
        with pytest.raises(ReadError) as error:
            read(path)
        assert str(path) in str(error.value) and "\n" not in str(error.value)
        return
    cloud = read(path)
    assert len(cloud) == READ_BUT_NOT_BY_OTHERS.get(path.name, int(row["points"] or 0))
    if row["has_labels"] == "yes":
        assert histogram(cloud.label) == ast.literal_eval(row["label_histogram"])
    names = re.search(r"\[(.*)\]", row["format"])
    for name in names[1].lower().split() if names else ():
        check_field(cloud, name)
    if (dims := re.search(r"extra dims: ([^;]*)", row["notes"])) and ".la" in path.suffix:
        check_extra(cloud, dims[1].split(","))
    if (color := re.search(r"RGB max (\d+)", row["notes"])) and not cloud.extra.get("Red"):
        assert (cloud.color is not None) == (int(color[1]) > 0)
    if bounds := re.search(r"bounds ((?:[-\d.]+ ?){6})", row["notes"]):
        low, high = np.array(bounds[1].split(), float).reshape(2, 3)
        xyz = cloud.xyz[cloud.finite]
        assert np.abs(xyz.min(axis=0) - low).max() < 0.11
        assert np.abs(xyz.max(axis=0) - high).max() < 0.11


def check_field(cloud, name):
    """A column of the file is a field of the cloud, or one of its other columns."""
    if name in COLORS:
        assert cloud.color is not None
    elif name in NORMALS:
        assert cloud.normal is not None
    elif name in ("label", "classification"):
        assert cloud.label is not None
    elif name in ("intensity", "i"):
        assert cloud.intensity is not None
    elif name not in ("x", "y", "z", "_"):
        assert name in {other.lower() for other in cloud.extra}


def check_extra(cloud, names):
    for name in names:
        if name not in ("ExtraBytes", "Intensity", "Red", "Green", "Blue"):
            assert name in cloud.extra, name


LABELLED = [
    row
    for row in MANIFEST
    if holds_labels_only(row) and row["label_histogram"] and "WITHOUT" not in row["notes"]
]


@pytest.mark.parametrize("row", params(10**9, [r for r in LABELLED if "_labels_" not in r["path"]]))
def test_files_of_labels_are_those_of_the_scan_beside_them(row, real_data):
    path = real_data / row["path"]
    folders = [path.parent, *(path.parent.parent / name for name in ("velodyne", "points"))]
    places = [folder / f"{path.stem}{suffix}" for folder in folders for suffix in (".bin", ".npy")]
    scan = next(place for place in places if place.is_file() and place != path)
    assert histogram(read(scan).label) == ast.literal_eval(row["label_histogram"])


def test_a_scan_has_no_labels_of_another(real_data):
    assert read(real_data / "unmannedlab__RELLIS-3D/utils/example/vel000104.bin").label is None


@pytest.mark.parametrize("row", params(SLOW_WRITE, WHOLE))
def test_what_is_read_of_a_real_file_is_kept_by_every_format(row, real_data, tmp_path):
    cloud = read(real_data / row["path"])
    for suffix in SUFFIXES:
        path = tmp_path / f"a{suffix}"
        if suffix in (".las", ".laz") and cloud.label is not None and (cloud.label < 0).any():
            with pytest.raises(ValueError, match="class -1 does not fit"):
                write(path, cloud)
            continue
        write(path, cloud)
        check_same(read(path), cloud, path)
    for encoding in ("ascii", "binary_compressed"):
        path = tmp_path / f"{encoding}.pcd"
        write_pcd(path, Labelled(cloud=cloud), encoding=encoding)
        check_same(read(path), cloud, path)


def check_same(back, cloud, path):
    las, there = path.suffix in (".las", ".laz"), cloud.finite
    assert len(back) == len(cloud), path
    # Points that are not finite lie at the origin of a LAS file, whose numbers are whole.
    kept = there if las else slice(None)
    step = 0.5e-3 * max(1, np.abs(cloud.coord[there]).max(initial=0) / 2e6) if las else 0
    spread = np.abs(cloud.coord[there]).max(initial=1) * 2.0**-22
    assert np.allclose(back.xyz[kept], cloud.xyz[kept], 0, step + spread, equal_nan=True), path
    for name in ("color", "normal", "label", "instance"):
        found, wanted = getattr(back, name), getattr(cloud, name)
        if las and wanted is not None and not wanted.any():
            continue  # colours and labels that are all 0 are as absent in LAS
        if las and name == "label" and wanted is None:
            assert not found.any()
            continue
        if not len(cloud):
            continue
        assert (found is None) == (wanted is None), (path, name)
        assert wanted is None or np.array_equal(found, wanted, equal_nan=True), (path, name)
    check_intensity(back.intensity, cloud.intensity, las)
    for name, column in cloud.extra.items():
        if name in back.extra and not (las and name == "scan_angle"):
            again = back.extra[name].astype(column.dtype)  # text does not say of how many bytes
            assert np.array_equal(again, column, equal_nan=True), (path, name)


def check_intensity(found, wanted, las):
    if wanted is None:
        assert not las or not found.any()
    elif not las:
        assert np.array_equal(found, wanted, equal_nan=True)
    elif wanted.max(initial=0) <= 1:
        assert np.allclose(found, np.clip(np.nan_to_num(wanted), 0, 1), atol=1 / 65535)
    else:
        assert np.array_equal(found, np.clip(np.rint(np.nan_to_num(wanted)), 0, 65535))


LAS = [row for row in WHOLE if row["path"].endswith((".las", ".laz"))]


@pytest.mark.parametrize("row", params(SLOW_READ, LAS))
def test_a_copy_of_a_real_las_file_has_its_points_and_records(row, real_data, tmp_path):
    source = real_data / row["path"]
    copy = tmp_path / f"copy{source.suffix}"
    write(copy, read(source), source=source)
    if source.suffix == ".las":
        assert copy.read_bytes() == source.read_bytes()
    before, after = read_las_file(source), read_las_file(copy)
    assert np.array_equal(before.points, after.points)
    assert before.records == after.records and len(before.tail) == len(after.tail)


def test_labels_of_real_scans_are_written_as_they_were(real_data, tmp_path):
    for name in (
        "mit-han-lab__spvnas/assets/000000",
        "unmannedlab__RELLIS-3D/utils/example/000104",
    ):
        write(tmp_path / f"{Path(name).name}.label", read(real_data / f"{name}.bin"))
        written = (tmp_path / f"{Path(name).name}.label").read_bytes()
        assert written == (real_data / f"{name}.label").read_bytes()
