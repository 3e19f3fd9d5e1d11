"""PLY: any usual names, types and orders; what is no vertex is passed over."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pctx.data.io.errors import ReadError
from pctx.data.io.formats import read, write
from pctx.data.labels import LabelSet
from pctx.data.prediction import Prediction
from pctx.geometry.points import PointCloud

ORDERS = ["ascii", "binary_little_endian", "binary_big_endian"]
POINTS = [
    (1.0, 2.0, 3.0, 10, 20, 30, 7),
    (4.0, 5.0, 6.0, 40, 50, 60, -1),
    (7.5, 8.5, 9.5, 255, 0, 1, 65),
]
COLUMNS = ["float x", "float y", "float z", "uchar red", "uchar green", "uchar blue", "int label"]


def header(order, *elements, newline="\n"):
    lines = ["ply", f"format {order} 1.0", "comment made for a test", "obj_info none"]
    for name, count, columns in elements:
        lines += [f"element {name} {count}", *(f"property {c}" for c in columns)]
    return newline.join([*lines, "end_header", ""]).encode()


def rows(order, kinds, values):
    """Values as an element's body; a list is given as a list."""
    if order == "ascii":
        words = [
            " ".join(
                f"{len(v)} " + " ".join(map(str, v)) if isinstance(v, list) else str(v) for v in row
            )
            for row in values
        ]
        return ("\n".join(words) + "\n").encode()
    end = "<" if "little" in order else ">"
    out = b""
    for row in values:
        for kind, value in zip(kinds, row, strict=True):
            if isinstance(value, list):
                out += np.array(len(value), end + "u1").tobytes()
                out += np.array(value, end + kind).tobytes()
            else:
                out += np.array(value, end + kind).tobytes()
    return out


KINDS = ["f4", "f4", "f4", "u1", "u1", "u1", "i4"]


def check(cloud):
    assert cloud.coord.tolist() == [list(p[:3]) for p in POINTS]
    assert cloud.color.tolist() == [list(p[3:6]) for p in POINTS]
    assert cloud.label.tolist() == [p[6] for p in POINTS]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("order", ORDERS)
def test_orders_and_line_ends_give_the_same_cloud(order, newline, tmp_path):
    path = tmp_path / "a.ply"
    path.write_bytes(
        header(order, ("vertex", 3, COLUMNS), newline=newline) + rows(order, KINDS, POINTS)
    )
    check(read(path))


@pytest.mark.parametrize("corners", [[[0, 1, 2]] * 4, [[0, 1, 2], [], [0, 1], [2, 1, 0, 2]]])
@pytest.mark.parametrize("order", ORDERS)
def test_elements_and_lists_before_and_behind_are_passed_over(order, corners, tmp_path):
    faces = ("face", 4, ["list uchar int vertex_indices", "uchar flags"])
    face_rows = rows(order, ["i4", "u1"], [(c, 9) for c in corners])
    camera = ("camera", 1, ["double fov", "double far"])
    camera_row = rows(order, ["f8", "f8"], [(0.5, 100.0)])
    path = tmp_path / "a.ply"
    path.write_bytes(
        header(order, camera, faces, ("vertex", 3, COLUMNS), faces)
        + camera_row + face_rows + rows(order, KINDS, POINTS) + face_rows
    )  # fmt: skip
    check(read(path))


@pytest.mark.parametrize("lengths", [(2, 2, 2), (0, 3, 1)])
@pytest.mark.parametrize("order", ORDERS)
def test_lists_of_the_vertices_themselves_are_passed_over(order, lengths, tmp_path):
    columns = [*COLUMNS[:3], "list uchar float weights", *COLUMNS[3:]]
    values = [(*p[:3], [0.5] * n, *p[3:]) for p, n in zip(POINTS, lengths, strict=True)]
    path = tmp_path / "a.ply"
    path.write_bytes(
        header(order, ("vertex", 3, columns)) + rows(order, [*KINDS[:3], "f4", *KINDS[3:]], values)
    )
    check(read(path))


@pytest.mark.parametrize(
    ("names", "field"),
    [
        ("label", "label"),
        ("class", "label"),
        ("scalar_Classification", "label"),
        ("scalar_Label", "label"),
        ("sem_class", "label"),
        ("instance_id", "instance"),
        ("scalar_Intensity", "intensity"),
        ("reflectance", "intensity"),
    ],
)
def test_usual_names_are_known(names, field, tmp_path):
    path = tmp_path / "a.ply"
    columns = ["double X", "double Y", "double Z", f"float {names}"]
    path.write_bytes(header("ascii", ("vertex", 2, columns)) + b"0 0 0 3\n1 1 1 4\n")
    cloud = read(path)
    assert getattr(cloud, field).tolist() == [3, 4]
    assert not cloud.extra


@pytest.mark.parametrize(
    ("kind", "values"),
    [("uchar", "0 51 255"), ("ushort", "0 13107 65535"), ("float", "0 0.2 1.0")],
)
@pytest.mark.parametrize("names", [("red", "green", "blue"), ("r", "g", "b")])
def test_colours_of_every_range_become_8_bit(kind, values, names, tmp_path):
    columns = [*COLUMNS[:3], *(f"{kind} {name}" for name in names)]
    path = tmp_path / "a.ply"
    path.write_bytes(header("ascii", ("vertex", 1, columns)) + f"0 0 0 {values}\n".encode())
    assert read(path).color.tolist() == [[0, 51, 255]]


def test_columns_of_no_usual_name_are_kept(tmp_path):
    path = tmp_path / "a.ply"
    columns = [*COLUMNS[:3], "float nx", "float ny", "float nz", "float omega", "short ring"]
    path.write_bytes(header("ascii", ("vertex", 1, columns)) + b"0 0 0 0 0 1 2.5 -3\n")
    cloud = read(path)
    assert cloud.normal.tolist() == [[0, 0, 1]]
    assert cloud.extra["omega"].tolist() == [2.5]
    assert cloud.extra["ring"].tolist() == [-3] and cloud.extra["ring"].dtype == np.int16


def test_a_column_of_fractions_is_no_label(tmp_path):
    path = tmp_path / "a.ply"
    columns = [*COLUMNS[:3], "float class"]
    path.write_bytes(header("ascii", ("vertex", 2, columns)) + b"0 0 0 0.5\n0 0 0 nan\n")
    cloud = read(path)
    assert cloud.label is None and "class" in cloud.extra


def test_big_coordinates_in_text_keep_their_centimetres(tmp_path):
    path = tmp_path / "a.ply"
    y = 5_000_000 + 0.05 * np.arange(1000)
    body = "\n".join(f"500000 {v:.2f} 10" for v in y)
    path.write_bytes(header("ascii", ("vertex", 1000, COLUMNS[:3])) + body.encode())
    cloud = read(path)
    assert len(np.unique(cloud.coord[:, 1])) == 1000
    assert np.abs(cloud.xyz[:, 1] - y).max() < 1e-4


def test_real_files_hold_what_their_makers_say(real_data):
    training = read(real_data / "CGAL_debian-libcgal-demo/data/points_3/b9_training.ply")
    assert np.bincount(training.label + 1).tolist() == [19853, 1567, 314, 566]
    text = read(real_data / "nmwsharp__happly/test/sampledata/platonic_shelf_ascii.ply")
    big = read(real_data / "nmwsharp__happly/test/sampledata/platonic_shelf_big_endian.ply")
    assert np.allclose(text.coord, big.coord, rtol=1e-5)  # the text has six digits
    lists = read(real_data / "mikedh__trimesh/models/points_ascii_with_lists.ply")
    assert len(lists) == 5
    for name in ("empty.ply", "emptyIO/ply_empty_bin.ply"):
        assert len(read(real_data / "mikedh__trimesh/models" / name)) == 0


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"x y q\n1 2 3\n", "no PLY file"),
        (b"ply\nformat ascii 1.0\nelement vertex 1\n", "no end"),
        (header("ascii", ("face", 0, ["list uchar int i"])), "no vertices.*face"),
        (header("ascii", ("vertex", 1, ["float x", "float y"])) + b"1 2\n", "no column z"),
        (header("ascii", ("vertex", 2, COLUMNS[:3])) + b"1 2 3\n", "2 rows of vertex.*holds 1"),
        (header("ascii", ("vertex", 1, COLUMNS[:3])) + b"1 2 three\n", "no number"),
        (header(ORDERS[1], ("vertex", 9, COLUMNS[:3])) + b"\0" * 25, "9 rows.*holds 2"),
        (header(ORDERS[1], ("vertex", 10**15, COLUMNS[:3])) + b"\0" * 25, "rows.*holds 2"),
        (header("ascii", ("vertex", 1, ["bool x"])), "bool x"),
        (header("ascii", ("face", 2, ["list uchar int i"]), ("vertex", 1, COLUMNS[:3]))
         + b"1 0\ninf 1\n1 2 3\n", "2 rows of face"),
        (b"ply\nelement vertex 0\nproperty float x\nend_header\n", "text or bytes"),
        (header("binary_little_endian", ("vertex", 3, [*COLUMNS[:3], "list char int i"]))
         + b"\0" * 12 + b"\xff" * 30, "list of -1"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_is_one_sentence(data, says, tmp_path):
    path = tmp_path / "wrong.ply"
    path.write_bytes(data)
    with pytest.raises(ReadError, match=says) as error:
        read(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_prediction_is_painted_in_the_colours_of_its_classes(tmp_path):
    labels = LabelSet(names=("a", "b"), colors=((250, 1, 2), (3, 240, 5)), raw=((40,), (70, 71)))
    cloud = PointCloud(
        coord=np.zeros((3, 3), np.float32), color=np.full((3, 3), 9, np.uint8), label=np.arange(3)
    )
    pred = Prediction(
        label=np.array([1, -1, 0]), labels=labels, entropy=np.array([0, 1, 0.5], np.float32)
    )
    write(tmp_path / "o.ply", cloud, prediction=pred, entropy=True)
    back = read(tmp_path / "o.ply")
    assert back.label.tolist() == [70, 0, 40]
    assert back.color[[0, 2]].tolist() == [[3, 240, 5], [250, 1, 2]]
    assert back.extra["entropy"].tolist() == [0, 1, 0.5]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 30), st.integers(0, 2**31), st.booleans())
def test_reading_what_was_written_gives_the_cloud(tmp_path_factory, n, seed, far):
    rng = np.random.default_rng(seed)
    xyz = rng.uniform(-50, 50, (n, 3)) + (np.array([6e5, 5e6, 100]) if far else 0)
    cloud = PointCloud.from_xyz(
        xyz,
        label=rng.integers(-1, 300, n),
        intensity=rng.random(n).astype(np.float32),
        extra={
            "name with blanks": rng.random(n),
            "Label": rng.integers(0, 2**40, n),
            "flag": rng.random(n) < 0.5,
        },
    )
    path = tmp_path_factory.mktemp("ply") / "a.ply"
    write(path, cloud)
    back = read(path)
    assert np.array_equal(back.coord, cloud.coord) and np.array_equal(back.origin, cloud.origin)
    assert np.array_equal(back.label, cloud.label)
    assert np.array_equal(back.intensity, cloud.intensity)
    for name, kept in (
        ("name with blanks", "name_with_blanks"),
        ("Label", "Label"),
        ("flag", "flag"),
    ):
        assert np.array_equal(back.extra[kept], cloud.extra[name]), name
