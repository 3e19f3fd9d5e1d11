"""LAS and LAZ: what is read of a file, and new files."""

import struct
import subprocess
import sys
from pathlib import Path

import laspy
import numpy as np
import pytest

from pctx.data.io import las_points
from pctx.data.io.columns import color_to_uint8
from pctx.data.io.errors import ReadError
from pctx.data.io.formats import read, write
from pctx.data.io.las_crs import read_crs
from pctx.data.io.las_file import read_las_file
from pctx.geometry.points import PointCloud

PLAIN = "PDAL__PDAL/test/data/las/interesting.las"
SAME_BUT_PLAIN = "PDAL__PDAL/test/data/las/1.2-with-color.las"
CHUNKED = "PDAL__PDAL/test/data/laszip/laszip-generated_with2bytespadding.laz"
LAYERED = "IGNF__pdal-ign-plugin/test/data/mnx/input/68.laz"
WITH_EVLR = "laspy__laspy/tests/data/1_4_w_evlr.laz"
COPC = "laspy__laspy/tests/data/simple.copc.laz"


def test_fields_are_those_that_laspy_reads(las_file):
    cloud, file = read(las_file), laspy.read(las_file)
    assert len(cloud) == len(file.points)
    exact = np.stack([np.asarray(file.x), np.asarray(file.y), np.asarray(file.z)], axis=1)
    spread = float(np.abs(cloud.coord).max(initial=1))
    assert np.allclose(cloud.xyz, exact, rtol=0, atol=spread * 2.0**-23)
    assert np.array_equal(cloud.label, np.asarray(file.classification))
    assert np.array_equal(cloud.intensity, np.asarray(file.intensity))
    for name in ("return_number", "number_of_returns", "point_source_id"):
        assert np.array_equal(cloud.extra[name], np.asarray(file[name]))
    if "gps_time" in file.point_format.dimension_names:
        assert np.array_equal(cloud.extra["gps_time"], np.asarray(file.gps_time), equal_nan=True)
    for name in set(file.point_format.extra_dimension_names) - {"ExtraBytes", "Intensity"}:
        assert np.array_equal(cloud.extra[name], np.asarray(file[name]))


def test_survey_coordinates_do_not_collapse(real_data):
    name = "IGNF__ign-pdal-tools/test/data/test_data_77050_627760_LA93_IGN69.laz"
    cloud = read(real_data / name)
    file = laspy.read(real_data / name)
    for axis, whole in enumerate((file.X, file.Y, file.Z)):
        assert len(np.unique(cloud.coord[:, axis])) == len(np.unique(np.asarray(whole)))
    assert np.abs(cloud.origin).max() > 1e6


def test_colours_in_8_and_16_bits_come_out_the_same():
    eight = np.array([[0, 17, 255]], np.uint16)
    for color in (eight, eight * 256, eight * 257):
        assert color_to_uint8(color).tolist() == [[0, 17, 255]]


def test_colours_that_are_all_0_are_absent(real_data):
    grey = read(real_data / "eEcoLiDAR__laserchicken/testdata/AHN3.laz")
    assert grey.color is None
    colored = read(real_data / "PDAL__PDAL/test/data/las/interesting.las")
    assert colored.color.dtype == np.uint8 and colored.color.max() == 249


def test_extra_bytes_named_as_colours_are_colours(real_data):
    cloud = read(real_data / "IGNF__pacasam/tests/data/laz/792000_6272000-50mx100m-left.laz")
    assert cloud.color is not None and cloud.color.any()
    assert not {"Red", "Green", "Blue"} & set(cloud.extra)


def test_files_of_before_the_chunks_of_laszip_are_read_and_copied(real_data, tmp_path):
    name = "PDAL__PDAL/test/data/laz/simple-laszip-compressor-version-1.2r0.laz"
    old, plain = read_las_file(real_data / name), read_las_file(real_data / SAME_BUT_PLAIN)
    assert np.array_equal(old.points, plain.points)
    write(tmp_path / "o.laz", read(real_data / name), source=real_data / name)
    assert len(laspy.read(tmp_path / "o.laz").points) == len(old.points)
    assert np.array_equal(read_las_file(tmp_path / "o.laz").points, old.points)


@pytest.mark.parametrize("suffix", [".las", ".laz"])
def test_a_new_file_holds_every_field(suffix, tmp_path):
    rng = np.random.default_rng(0)
    n = 1000
    cloud = PointCloud(
        coord=rng.uniform(-200, 200, (n, 3)).astype(np.float32),
        origin=np.array([770500.0, 6277500.0, 20.0]),
        color=rng.integers(0, 256, (n, 3)).astype(np.uint8),
        intensity=rng.integers(0, 65536, n).astype(np.float32),
        normal=rng.normal(size=(n, 3)).astype(np.float32),
        label=rng.integers(0, 256, n),
        instance=rng.integers(0, 10**6, n),
        extra={
            "gps_time": rng.random(n) * 1e9,
            "nir": rng.integers(1, 65536, n).astype(np.uint16),
            "return_number": rng.integers(1, 5, n).astype(np.uint8),
            "height above ground": rng.random(n),
            "ring": rng.integers(0, 64, n).astype(np.int16),
            "wide": rng.random((n, 2)).astype(np.float32),
        },
    )
    out = tmp_path / f"o{suffix}"
    write(out, cloud)
    back = read(out)
    # Half of a millimetre, and what float32 leaves at 200 m.
    assert np.allclose(back.xyz, cloud.xyz, rtol=0, atol=0.0005 + 200 * 2.0**-23)
    for name in ("color", "intensity", "normal", "label", "instance"):
        assert np.array_equal(getattr(back, name), getattr(cloud, name)), name
    for name in ("gps_time", "nir", "return_number", "height above ground", "ring"):
        assert np.array_equal(back.extra[name], cloud.extra[name]), name
    assert np.array_equal(back.extra["wide_1"], cloud.extra["wide"][:, 1])
    file = laspy.read(out)
    assert file.header.version == "1.4" and file.header.point_format.id == 8
    assert np.allclose(file.header.mins, [file.x.min(), file.y.min(), file.z.min()])
    counts = np.bincount(cloud.extra["return_number"], minlength=16)[1:16]
    assert file.header.number_of_points_by_return.tolist() == counts.tolist()


def test_a_new_file_keeps_a_row_for_points_that_are_not_finite(tmp_path):
    coord = np.array([[1, 2, 3], [np.nan, 0, 0], [4, 5, np.inf]], np.float32)
    write(tmp_path / "o.laz", PointCloud(coord=coord, label=np.array([1, 2, 3])))
    back, file = read(tmp_path / "o.laz"), laspy.read(tmp_path / "o.laz")
    assert back.label.tolist() == [1, 2, 3]
    assert np.asarray(file.withheld).tolist() == [0, 1, 1]


def test_a_new_empty_file_can_be_read(tmp_path):
    empty = PointCloud(coord=np.zeros((0, 3), np.float32))
    for suffix in (".las", ".laz"):
        write(tmp_path / f"o{suffix}", empty)
        assert len(read(tmp_path / f"o{suffix}")) == 0


@pytest.mark.parametrize("name", [PLAIN, CHUNKED, LAYERED, WITH_EVLR, COPC])
def test_a_truncated_file_is_an_error_that_names_it(name, real_data, tmp_path):
    data = (real_data / name).read_bytes()
    path = tmp_path / Path(name).name
    for size in np.linspace(1, len(data) - 1, 40).astype(int):
        path.write_bytes(data[:size])
        with pytest.raises(ReadError, match=path.name):
            read(path)


@pytest.mark.parametrize("change", [-900, -1, 5, 1000, 10**9])
@pytest.mark.parametrize("name", [CHUNKED, LAYERED])
def test_a_count_that_is_not_that_of_the_chunks_is_an_error(name, change, real_data, tmp_path):
    data = bytearray((real_data / name).read_bytes())
    form, at = ("<Q", 247) if data[25] == 4 else ("<I", 107)
    struct.pack_into(form, data, at, struct.unpack_from(form, data, at)[0] + change)
    path = tmp_path / "count.laz"
    path.write_bytes(data)
    with pytest.raises(ReadError, match="points"):
        read(path)


def test_reading_works_in_a_fork_of_a_process_that_has_read(real_data):
    source = real_data / "PDAL__data_isprs/isprs/samp21-utm.laz"
    script = (
        "import os, signal, sys, pathlib\n"
        "from pctx.data.io.las_file import read_las_file\n"
        "read_las_file(pathlib.Path(sys.argv[1]))\n"
        "if os.fork():\n"
        "    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
        "signal.alarm(20)\n"
        "read_las_file(pathlib.Path(sys.argv[1]))\n"
    )
    assert subprocess.run([sys.executable, "-c", script, source], timeout=60).returncode == 0


def test_the_reference_system_is_told(real_data):
    assert read_crs(real_data / "PDAL__data_isprs/isprs/samp21-utm.laz") == "EPSG:32632"
    assert read_crs(real_data / "IGNF__pdal-ign-plugin/test/data/mnx/input/68.laz") == "EPSG:2154"
    assert read_crs(real_data / "PDAL__PDAL/test/data/las/sample_c.las") is None


def test_the_fields_of_a_format_fill_its_record():
    sizes = [las_points.point_dtype(form).itemsize for form in range(11)]
    assert sizes == [20, 28, 26, 34, 57, 63, 30, 36, 38, 59, 67]
