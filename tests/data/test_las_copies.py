"""Labelled LAS and LAZ: a copy differs from its source in the class alone."""

import struct
from dataclasses import replace

import laspy
import numpy as np
import pytest
from laspy.copc import CopcReader

from pctx.data.io.errors import ReadError
from pctx.data.io.formats import check_output, read, write
from pctx.data.io.las_file import read_las_file, write_las_file
from pctx.data.labels import LabelSet
from pctx.data.prediction import Prediction

LABELS = LabelSet(
    names=("ground", "wood", "roof"),
    colors=((160, 120, 80), (40, 120, 60), (220, 90, 80)),
    raw=((2,), (5,), (6,)),
)
CONVERTED = [
    "PDAL__PDAL/test/data/las/epsg_4326.las",
    "PDAL__PDAL/test/data/las/interesting.las",
    "PDAL__PDAL/test/data/las/wontcompress3.las",
    "PDAL__data_isprs/isprs/samp21-utm.laz",
    "IGNF__pdal-ign-plugin/test/data/mnx/input/68.laz",
    "IGNF__ign-pdal-tools/test/data/crop_duplicate.laz",
    "laspy__laspy/tests/data/1_4_w_evlr.laz",
]
COPC = [
    "laspy__laspy/tests/data/simple.copc.laz",
    "gadomski__las-rs/tests/data/autzen.copc.laz",
    "IGNF__ctview/data/las/classee/test_data_77050_627755_LA93_IGN69.copc.laz",
]
BEFORE_CHUNKS = "PDAL__PDAL/test/data/laz/simple-laszip-compressor-version-1.2r0.laz"


def predict(cloud, seed=0, labels=LABELS):
    rng = np.random.default_rng(seed)
    probability = rng.random((len(cloud), len(labels))).astype(np.float32)
    return Prediction(
        label=rng.integers(0, len(labels), len(cloud)),
        labels=labels,
        probability=probability,
        entropy=rng.random(len(cloud)).astype(np.float32),
    )


def header_fields(path):
    """Offset to the points, number of records, point format, record length, points."""
    data = path.read_bytes()
    start, records = struct.unpack_from("<II", data, 96)
    form, length, count = struct.unpack_from("<BHI", data, 104)
    if data[25] == 4:
        count = struct.unpack_from("<Q", data, 247)[0]
    return start, records, form, length, count


def raw_points(path):
    """Point records by laspy, an independent reader."""
    with laspy.open(path) as file:
        points = file.read_points(-1)
    length = points.array.dtype.itemsize
    return np.frombuffer(points.array.tobytes(), np.uint8).reshape(len(points), length).copy()


def without_class(points, form):
    """Blank the class: all its byte in the formats from 6 on, its low 5 bits before."""
    points = points.copy()
    if form & 0x3F >= 6:
        points[:, 16] = 0
    else:
        points[:, 15] &= 0xE0
    return points


def test_a_copy_differs_from_its_source_in_the_class_alone(las_file, tmp_path):
    source = las_file
    cloud = read(source)
    pred = predict(cloud)
    out = tmp_path / f"out{source.suffix}"
    before = source.read_bytes()
    write(out, cloud, prediction=pred, source=source)
    assert source.read_bytes() == before
    start, _, form, _, _ = header_fields(source)
    after = out.read_bytes()
    # Header, records and padding, except where the parts behind the points begin.
    moves = set(range(227, 243)) if before[25] >= 3 else set()
    changed = [i for i in range(start) if before[i] != after[i]]
    assert set(changed) <= moves
    assert np.array_equal(
        without_class(raw_points(source), form), without_class(raw_points(out), form)
    )
    assert np.array_equal(read(out).label, pred.raw)
    if form & 0x80 == 0:
        step, where = header_fields(source)[3], 16 if form >= 6 else 15
        places = {start + i * step + where for i in range(len(cloud))}
        assert len(before) == len(after)
        assert {i for i in range(len(before)) if before[i] != after[i]} <= places


def test_a_copy_with_its_own_classes_is_the_same_file(las_file, tmp_path):
    source = las_file
    out = tmp_path / f"out{source.suffix}"
    write(out, read(source), source=source)
    assert out.read_bytes() == source.read_bytes()


@pytest.mark.slow
def test_every_real_file_is_put_together_as_it_was(real_data, tmp_path):
    for path in sorted(real_data.rglob("*.la[sz]")):
        try:
            file = read_las_file(path)
        except ReadError:
            continue
        write_las_file(file, tmp_path / "out")
        if not path.match(BEFORE_CHUNKS):
            assert (tmp_path / "out").read_bytes() == path.read_bytes(), path


def test_flags_that_share_the_byte_of_the_class_stay(real_data, tmp_path):
    source = tmp_path / "flags.las"
    data = bytearray((real_data / "PDAL__PDAL/test/data/las/interesting.las").read_bytes())
    start, _, form, length, count = header_fields(
        real_data / "PDAL__PDAL/test/data/las/interesting.las"
    )
    assert form < 6
    rng = np.random.default_rng(0)
    for i in range(count):
        data[start + i * length + 15] |= int(rng.integers(8)) << 5
    source.write_bytes(data)
    cloud = read(source)
    assert cloud.label.max() <= 31
    write(tmp_path / "out.las", cloud, prediction=predict(cloud), source=source)
    flags = [d[start + 15 :: length][:count] for d in (data, (tmp_path / "out.las").read_bytes())]
    assert [f >> 5 for f in flags[0]] == [f >> 5 for f in flags[1]]


def test_records_and_what_follows_the_points_keep_their_bytes(real_data, tmp_path):
    source = real_data / "laspy__laspy/tests/data/1_4_w_evlr.laz"
    cloud = read(source)
    write(tmp_path / "out.laz", cloud, prediction=predict(cloud), source=source)
    with laspy.open(source) as a, laspy.open(tmp_path / "out.laz") as b:
        assert a.header.evlrs[0].record_data_bytes() == b.header.evlrs[0].record_data_bytes()
        assert len(b.header.evlrs) == 1
        assert [v.record_data_bytes() for v in a.header.vlrs] == [
            v.record_data_bytes() for v in b.header.vlrs
        ]


@pytest.mark.parametrize("suffix", [".las", ".laz"])
@pytest.mark.parametrize("name", CONVERTED)
def test_the_suffix_says_whether_points_are_compressed(name, suffix, real_data, tmp_path):
    source, out = real_data / name, tmp_path / f"out{suffix}"
    cloud = read(source)
    write(out, cloud, source=source)
    assert bool(header_fields(out)[2] & 0x80) == (suffix == ".laz")
    assert np.array_equal(raw_points(out), raw_points(source))
    back = tmp_path / f"back{source.suffix}"
    write(back, read(out), source=out)
    assert read_las_file(back).records[:1] == read_las_file(source).records[:1]
    assert np.array_equal(raw_points(back), raw_points(source))


def test_probabilities_and_entropy_go_to_extra_bytes(las_file, tmp_path):
    source = las_file
    cloud, out = read(source), tmp_path / "out.laz"
    pred = predict(cloud)
    write(out, cloud, prediction=pred, source=source, probabilities=True, entropy=True)
    back = read(out)
    # A column of that name and another type is left alone, and the new one gets a number.
    entropy = "entropy_2" if "entropy" in cloud.extra else "entropy"
    assert np.array_equal(back.extra[entropy], pred.entropy)
    for i, label in enumerate(LABELS.names):
        assert np.array_equal(back.extra[f"probability_{label}"], pred.probability[:, i])
    form = header_fields(source)[2]
    old, new = raw_points(source), raw_points(out)
    assert np.array_equal(without_class(old, form), without_class(new[:, : old.shape[1]], form))
    if source.name != "append-bug.laz":  # laspy reads one record of two
        file = laspy.read(out)
        assert np.array_equal(np.asarray(file[entropy]), pred.entropy)


def test_a_second_prediction_writes_into_the_columns_of_the_first(real_data, tmp_path):
    source = real_data / "IGNF__pdal-ign-plugin/test/data/mnx/input/68.laz"
    cloud = read(source)
    first, second = predict(cloud, 1), predict(cloud, 2)
    write(tmp_path / "1.laz", cloud, prediction=first, source=source, entropy=True)
    again = read(tmp_path / "1.laz")
    write(tmp_path / "2.laz", again, prediction=second, source=tmp_path / "1.laz", entropy=True)
    assert header_fields(tmp_path / "1.laz")[3] == header_fields(tmp_path / "2.laz")[3]
    assert np.array_equal(read(tmp_path / "2.laz").extra["entropy"], second.entropy)


def test_a_code_that_the_point_format_cannot_hold_is_refused_before_writing(real_data, tmp_path):
    source = real_data / "PDAL__PDAL/test/data/las/interesting.las"
    cloud = read(source)
    labels = replace(LABELS, raw=((2,), (5,), (64,)))
    with pytest.raises(ValueError, match=r"class 64 .*point format 3.*0 to 31"):
        write(tmp_path / "o.las", cloud, prediction=predict(cloud, labels=labels), source=source)
    with pytest.raises(ValueError, match=r"class 64 .*point format 3"):
        check_output(tmp_path / "o.las", labels, source=source)
    assert not list(tmp_path.iterdir())
    newer = real_data / "IGNF__pdal-ign-plugin/test/data/mnx/input/68.laz"
    cloud = read(newer)
    write(tmp_path / "o.laz", cloud, prediction=predict(cloud, labels=labels), source=newer)
    assert 64 in read(tmp_path / "o.laz").label


def test_another_number_of_points_than_the_source_is_refused(real_data, tmp_path):
    source = real_data / "PDAL__PDAL/test/data/las/interesting.las"
    with pytest.raises(ValueError, match="1065 points, the cloud to write 10"):
        write(tmp_path / "o.las", read(source).select(np.arange(10)), source=source)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("extra", [False, True])
@pytest.mark.parametrize("name", COPC)
def test_the_octree_of_a_copc_file_stays_true(name, extra, real_data, tmp_path):
    source, out = real_data / name, tmp_path / "out.copc.laz"
    cloud = read(source)
    pred = predict(cloud)
    write(out, cloud, prediction=pred, source=source, entropy=extra)
    with CopcReader.open(str(source)) as a, CopcReader.open(str(out)) as b:
        old, new = a.query(), b.query()  # through the octree, not through the chunk table
    assert len(new) == len(cloud)
    assert np.array_equal(np.asarray(old.X), np.asarray(new.X))
    assert sorted(np.asarray(new.classification).tolist()) == sorted(pred.raw.tolist())


def test_a_copc_file_without_chunks_says_that_it_is_none(real_data, tmp_path):
    source = real_data / COPC[0]
    write(tmp_path / "o.las", read(source), source=source)
    assert np.array_equal(raw_points(tmp_path / "o.las"), raw_points(source))
    with laspy.open(tmp_path / "o.las") as file:
        every = [*file.header.vlrs, *file.header.evlrs]
    assert not [record for record in every if record.user_id == "copc"]
