"""Every field of every LAS version and point format, beside what laspy says of the same file."""

import laspy
import numpy as np
import pytest

from pctx.data.io.columns import color_to_uint8
from pctx.data.io.errors import ReadError
from pctx.data.io.formats import read, write
from pctx.geometry.points import PointCloud

VERSIONS = {0: "1.1", 1: "1.2", 2: "1.2", 3: "1.2", 4: "1.3", 5: "1.3"}
FLAGS = (
    *("synthetic", "key_point", "withheld", "overlap", "scanner_channel"),
    *("scan_direction_flag", "edge_of_flight_line", "user_data"),
)
WAVE = ("wavepacket_index", "wavepacket_offset", "wavepacket_size", "x_t", "y_t", "z_t")
CASES = [(form, suffix) for form in range(11) for suffix in (".las", ".laz")]


def made(path, form, n=70):
    """A file whose every field is of random numbers, with extra dimensions of all kinds."""
    rng = np.random.default_rng(form)
    header = laspy.LasHeader(point_format=form, version=VERSIONS.get(form, "1.4"))
    header.scales, header.offsets = [0.001, 0.01, 1e-5], [7e5, 6e6, -10]
    header.add_extra_dims(
        [
            laspy.ExtraBytesParams("plain", np.float32),
            laspy.ExtraBytesParams("big", np.uint64),
            laspy.ExtraBytesParams("triple", "3u1"),
            laspy.ExtraBytesParams("scaled", np.int16, offsets=[5.0], scales=[0.25]),
            laspy.ExtraBytesParams("pair", "2i4", offsets=[1.0, -1.0], scales=[0.5, 0.125]),
            laspy.ExtraBytesParams("three", "3f4", offsets=[0.0, 1, 2], scales=[1.0, 2, 4]),
        ]
    )
    file = laspy.LasData(header)
    file.points = laspy.ScaleAwarePointRecord.zeros(n, header=header)
    raw = file.points.array
    for name in raw.dtype.names:
        part = raw[name]
        if part.dtype.kind == "f":
            raw[name] = rng.normal(size=part.shape)
        else:
            largest = min(np.iinfo(part.dtype).max, 2**40)
            raw[name] = rng.integers(0, largest, part.shape, dtype=part.dtype, endpoint=True)
    if form in (9, 10) and path.suffix == ".laz":
        file.scanner_channel = np.ones(n, np.uint8)
    file.write(path)
    return laspy.read(path)


@pytest.mark.parametrize(("form", "suffix"), CASES)
def test_every_field_is_that_of_laspy(form, suffix, tmp_path):
    path = tmp_path / f"a{suffix}"
    file, cloud = made(path, form), read(path)
    there = set(file.point_format.dimension_names)
    spread = np.abs(cloud.coord).max() * 2.0**-23
    assert np.allclose(cloud.xyz, file.xyz, rtol=0, atol=spread)
    assert np.array_equal(cloud.label, np.asarray(file.classification))
    assert np.array_equal(cloud.intensity, np.asarray(file.intensity))
    same = {"return_number", "number_of_returns", "point_source_id", "gps_time", "nir"}
    for name in (same | {*FLAGS, *WAVE}) & there:
        assert np.array_equal(cloud.extra[name], np.asarray(file[name])), name
    assert not ({*FLAGS, *WAVE} & set(cloud.extra)) - there
    angle = np.asarray(file.scan_angle) * 0.006 if form > 5 else np.asarray(file.scan_angle_rank)
    assert np.allclose(cloud.extra["scan_angle"], angle, atol=1e-4)
    if "red" in there:
        color = np.stack([file.red, file.green, file.blue], axis=1)
        assert np.array_equal(cloud.color, color_to_uint8(np.asarray(color)))
    for name in file.point_format.extra_dimension_names:
        assert np.array_equal(cloud.extra[name], np.asarray(file[name])), name


@pytest.mark.parametrize(("form", "suffix"), CASES)
def test_a_copy_differs_in_the_class_only(form, suffix, tmp_path):
    path, copy = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    before, cloud = made(path, form), read(path)
    label = np.arange(len(cloud)) % 32
    write(copy, type(cloud)(coord=cloud.coord, origin=cloud.origin, label=label), source=path)
    after = laspy.read(copy)
    assert np.array_equal(np.asarray(after.classification), label)
    for name in before.point_format.dimension_names:
        if name != "classification":
            assert np.array_equal(np.asarray(after[name]), np.asarray(before[name])), name
    assert after.header.version == before.header.version
    assert [v.record_data_bytes() for v in after.vlrs] == [
        v.record_data_bytes() for v in before.vlrs
    ]


@pytest.mark.parametrize("form", [9, 10])
def test_wave_packets_that_would_be_lost_are_not_compressed(form, tmp_path, caplog):
    before = made(tmp_path / "a.las", form)
    write(tmp_path / "b.las", read(tmp_path / "a.las"), source=tmp_path / "a.las")
    assert (tmp_path / "b.las").read_bytes() == (tmp_path / "a.las").read_bytes()
    with pytest.raises(ValueError, match=r"wave packets of several scanner channels.*\.las"):
        write(tmp_path / "b.laz", read(tmp_path / "a.las"), source=tmp_path / "a.las")
    before.write(tmp_path / "c.laz")
    read(tmp_path / "c.laz")
    assert "several channels" in caplog.text


@pytest.mark.parametrize("form", [1, 5, 7])
def test_flags_and_user_data_go_into_new_files(form, tmp_path):
    made(tmp_path / "a.las", form)
    cloud = read(tmp_path / "a.las")
    write(tmp_path / "b.laz", cloud)
    after = laspy.read(tmp_path / "b.laz")
    for name in set(FLAGS) & set(cloud.extra):
        assert np.array_equal(np.asarray(after[name]), cloud.extra[name]), name
    back = read(tmp_path / "b.laz")
    for name in set(WAVE) & set(cloud.extra):
        assert np.array_equal(back.extra[name], cloud.extra[name]), name


def test_flags_that_are_0_are_absent(real_data):
    cloud = read(real_data / "laspy__laspy/tests/data/plane.laz")
    assert not {*FLAGS, *WAVE} & set(cloud.extra) - {"user_data", "scan_direction_flag"}


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import os; os.abort()", "they are corrupt"),
        (
            "import sys; sys.stderr.write('panicked\\nno such symbol'); sys.exit(1)",
            "no such symbol",
        ),
        ("import sys; sys.stdout.write('x' * 99)", "they are corrupt"),
    ],
)
def test_the_end_of_the_process_that_decompresses_is_a_sentence(code, says, tmp_path, monkeypatch):
    made(tmp_path / "a.laz", 6)
    (tmp_path / "child.py").write_text(f"import sys; sys.stdin.buffer.read()\n{code}\n")
    monkeypatch.setattr("pctx.data.io.laz_decoder._CHILD", tmp_path / "child.py")
    with pytest.raises(ReadError, match=rf"a\.laz: its points cannot be decompressed \({says}\)"):
        read(tmp_path / "a.laz")


def test_a_count_and_a_chunk_that_lie_reserve_nothing(tmp_path):
    made(tmp_path / "a.laz", 1)
    data = bytearray((tmp_path / "a.laz").read_bytes())
    many = (2**32 - 2).to_bytes(4, "little")
    data[107:111] = many
    size = data.index(b"laszip encoded") - 2 + 54 + 12
    assert int.from_bytes(data[size : size + 4], "little") == 50_000
    data[size : size + 4] = many
    (tmp_path / "a.laz").write_bytes(data)
    with pytest.raises(ReadError, match=r"a\.laz: its points cannot be decompressed") as error:
        read(tmp_path / "a.laz")
    assert not isinstance(error.value.__cause__, MemoryError)


@pytest.mark.parametrize("form", [1, 6])
def test_points_that_the_header_does_not_count_are_told_of(form, tmp_path, caplog):
    made(tmp_path / "a.las", form)
    data = bytearray((tmp_path / "a.las").read_bytes())
    at, size = (107, 4) if form == 1 else (247, 8)
    data[at : at + size] = (60).to_bytes(size, "little")
    (tmp_path / "a.las").write_bytes(data)
    assert len(read(tmp_path / "a.las")) == 60
    assert form == 6 or "60 points, and the file holds 10 more" in caplog.text


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scales_and_offsets_that_are_no_numbers_are_refused(at, value, tmp_path):
    made(tmp_path / "a.las", 1)
    data = bytearray((tmp_path / "a.las").read_bytes())
    data[131 + 8 * at : 139 + 8 * at] = np.float64(value).tobytes()
    (tmp_path / "a.las").write_bytes(data)
    with pytest.raises(ReadError, match=f"a.las: its header scales.*{value}.*corrupt"):
        read(tmp_path / "a.las")


def test_intensities_of_fractions_come_back_and_other_programs_see_whole_numbers(tmp_path):
    intensity = np.linspace(0, 1, 11, dtype=np.float32)
    cloud = PointCloud.from_xyz(np.zeros((11, 3)), intensity=intensity)
    write(tmp_path / "a.laz", cloud)
    back = read(tmp_path / "a.laz")
    np.testing.assert_allclose(back.intensity, intensity, atol=1 / 65535)
    assert laspy.read(tmp_path / "a.laz").intensity.max() == 65535
    write(tmp_path / "b.las", back)
    assert np.array_equal(read(tmp_path / "b.las").intensity, back.intensity)


def test_whole_intensities_stay_as_they_are(tmp_path):
    cloud = PointCloud.from_xyz(np.zeros((3, 3)), intensity=np.float32([0, 1, 1]))
    write(tmp_path / "a.las", cloud)
    assert np.array_equal(read(tmp_path / "a.las").intensity, cloud.intensity)
