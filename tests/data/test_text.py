"""Points in text: separators, headers, comments, columns without names, and PTS and PTX."""

import logging

import numpy as np
import pytest

from pctx.data.io.errors import ReadError
from pctx.data.io.formats import find_scans, read, write
from pctx.geometry.points import PointCloud

POINTS = [[1.5, 2, -3e-7], [4, 5.25, 6], [7, 8, 9]]


def opened(tmp_path, text, name="a.txt"):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return read(tmp_path / name)


def lines(separator, rows=POINTS):
    return "\n".join(separator.join(map(str, row)) for row in rows) + "\n"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("separator", [" ", "   ", "\t", ",", ", ", " , ", ";", "; ", "|", " ,\t"])
def test_separators_and_line_ends_give_the_same_cloud(separator, end, tmp_path):
    cloud = opened(tmp_path, lines(separator).replace("\n", end))
    assert np.allclose(cloud.coord, POINTS, atol=1e-9)


@pytest.mark.parametrize("separator", [" ", "\t", ";", "; "])
def test_decimal_commas_are_told_from_separators(separator, tmp_path):
    rows = [["1,5", "2,25", "-3"], ["4", "5,5", "6,125"]]
    cloud = opened(tmp_path, lines(separator, rows))
    assert cloud.coord.tolist() == [[1.5, 2.25, -3], [4, 5.5, 6.125]]


@pytest.mark.parametrize(
    "header",
    [
        "x y z intensity class", "X,Y,Z,Intensity,Classification", "//X Y Z Intensity class",
        "# x y z intensity label", "% x\ty\tz\tintensity\tlabel", '"x" "y" "z" "Intensity" "label"',
        "'X';'Y';'Z';'scalar_Intensity';'scalar_Label'", "x[m] y[m] z (m) intensity label",
        "# made by hand\n\n#x y z intensity label\n", "\ufeffx y z intensity label",
        "Points:0,Points:1,Points:2,reflectance,segment", "easting northing height i label",
        "x y z intensity label\n3", "//X Y Z intensity label\n3",
    ],
)  # fmt: skip
def test_headers_name_the_columns(header, tmp_path):
    rows = [[1, 2, 3, 0.5, 7], [4, 5, 6, 0.25, 8], [7, 8, 9, 0, 9]]
    cloud = opened(tmp_path, f"{header}\n" + lines(" ", rows))
    assert cloud.coord[1].tolist() == [4, 5, 6]
    assert cloud.intensity.tolist() == [0.5, 0.25, 0] and cloud.label.tolist() == [7, 8, 9]
    assert not cloud.extra


def test_names_decide_in_any_order_and_others_are_kept(tmp_path):
    cloud = opened(tmp_path, "id,z,blue,green,red,y,x\n5,3,10,20,255,2,1\n")
    assert cloud.coord.tolist() == [[1, 2, 3]] and cloud.color.tolist() == [[255, 20, 10]]
    assert cloud.extra["id"].tolist() == [5]


def test_comments_and_blank_lines_are_passed_over_anywhere(tmp_path):
    text = "# one\n\n1 2 3 # the first\n\n// two\n4 5 6\n  \n% three\n7 8 9"
    assert opened(tmp_path, text).coord.tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_missing_numbers_are_nan_and_their_points_stay(tmp_path):
    text = "x,y,z,intensity\n1,2,3,\n,5,6,1\nnan,NaN,inf,-1.#IND\n 7 , 8 , 9 , 1e-007\n"
    cloud = opened(tmp_path, text, "a.csv")
    assert len(cloud) == 4 and cloud.finite.tolist() == [True, False, False, True]
    assert np.isnan(cloud.intensity[[0, 2]]).all() and cloud.intensity[3] == np.float32(1e-7)


def test_numbers_may_stand_in_quotes(tmp_path):
    assert opened(tmp_path, '"1.5","2","3"\n"4","5","6"\n').coord[0].tolist() == [1.5, 2, 3]
    cloud = opened(tmp_path, '"X";"Y";"Z"\n"1,5";"2";"3"\n')
    assert cloud.coord.tolist() == [[1.5, 2, 3]]


def test_commas_at_the_end_of_each_line_mean_nothing(tmp_path):
    assert opened(tmp_path, "1,2,3,\n4,5,6,\n").coord.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert not opened(tmp_path, "1,2,3,\n4,5,6,\n").extra


@pytest.mark.parametrize(
    ("columns", "fields"),
    [
        ("7", {"intensity": [7]}),
        ("10 20 30", {"color": [[10, 20, 30]]}),
        ("117.0 73.0 49.0 255.0", {"color": [[117, 73, 49]]}),
        ("10 20 30 5", {"color": [[10, 20, 30]], "label": [5]}),
        ("0 -1 0", {"normal": [[0, -1, 0]]}),
        ("0 0 1 4", {"normal": [[0, 0, 1]], "label": [4]}),
        ("-1035 97 59 38", {"intensity": [-1035], "color": [[97, 59, 38]]}),
        ("-900 97 59 38 3", {"intensity": [-900], "color": [[97, 59, 38]], "label": [3]}),
        ("10 20 30 0 0 1", {"color": [[10, 20, 30]], "normal": [[0, 0, 1]]}),
    ],
)
def test_columns_without_names_are_told_by_what_they_hold(columns, fields, tmp_path):
    cloud = opened(tmp_path, f"1 2 3 {columns}\n4 5 6 {columns}\n")
    for name in ("color", "normal", "intensity", "label"):
        found = getattr(cloud, name)
        assert (found is None) == (name not in fields), name
        assert found is None or found[:1].tolist() == fields[name]


def test_pts_has_intensity_before_colours_and_a_count(tmp_path):
    body = "1 2 3 100 10 20 30\n4 5 6 101 40 50 60\n"
    cloud = opened(tmp_path, "2\n" + body, "a.pts")
    assert cloud.intensity.tolist() == [100, 101] and cloud.color[1].tolist() == [40, 50, 60]
    with pytest.raises(ReadError, match="3 points, it holds 2: it is truncated"):
        opened(tmp_path, "3\n" + body, "a.pts")


def ptx(size, rows, matrix="1 0 0 0\n0 1 0 0\n0 0 1 0\n10 20 30 1"):
    return f"{size}\n1\n0 0 0\n1 0 0\n0 1 0\n0 0 1\n{matrix}\n" + lines(" ", rows)


def test_ptx_scans_are_moved_to_their_places(tmp_path):
    turned = "0 1 0 0\n-1 0 0 0\n0 0 1 0\n0 0 0 1"
    text = ptx(1, [[1, 2, 3, 0.5]]) + ptx(2, [[1, 2, 3, 0.5], [0, 0, 0, 0]], turned)
    cloud = opened(tmp_path, text, "a.ptx")
    assert cloud.coord.tolist() == [[11, 22, 33], [-2, 1, 3], [0, 0, 0]]
    assert cloud.intensity.tolist() == [0.5, 0.5, 0] and cloud.extra["scan"].tolist() == [0, 1, 1]
    for wrong, says in (
        (text[:-9], "1: it is trunc"),
        ("1 2 3\n", "begins no scan"),
        ("x", "begins"),
    ):
        with pytest.raises(ReadError, match=says):
            opened(tmp_path, wrong, "a.ptx")


def test_numbers_beyond_the_named_columns_are_passed_over_with_a_notice(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        cloud = opened(tmp_path, "x y z\n1 2 3 27\n4 5 6\n")
    assert cloud.coord.tolist() == [[1, 2, 3], [4, 5, 6]] and "passed over" in caplog.text


def test_text_of_any_length_is_read_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("pctx.data.io.numbers._PIECE", 64)
    rows = np.random.default_rng(0).normal(size=(200, 4)).round(4)
    for end in ("\n", "\r\n", "\r"):
        cloud = opened(tmp_path, lines(",", rows).replace("\n", end))
        assert np.array_equal(cloud.coord, rows[:, :3].astype(np.float32))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("This is prose of no points.\n", "does not name x, y and z"),
        ("X,Y,X\n1,2,3\n", "does not name x, y and z"),
        ("1 2 3\n4 five 6\n", "line 2 holds 'five', which is no number"),
        ("1 2 3\n4 5\n", "line 2 holds 2 numbers, where each point has 3"),
        ("1 2\n3 4\n", "line 1 holds 2 numbers; a point has 3 to 16"),
        ("x y z w\n1 2 3\n", "names 4 columns, line 2 holds 3 numbers"),
        ("one two\nthree four\n1 2 3\n", "where numbers should be|does not name"),
        ("2!1 2 3\n4 5 6\n", "2 points, it holds 1"),
        ("9" * 5000 + "\n1 2 3\n", "line 1 holds 1 numbers"),
        ("1 2 3\n4-5 6 7\n", "'4-5', which is no number"),
        ("1 2 3\n0x10 1_0 3\n", "'0x10'"),
        ("# nothing here\n", "names no column|no numbers"),
        ("1 2 3".encode("utf-16"), "UTF-16"),
        (b"\0\1\2\3" * 40, "no text"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe" * 9, "does not name|no text|numbers should be"),
    ],
)
def test_a_file_that_is_wrong_is_one_sentence(text, says, tmp_path):
    with pytest.raises(ReadError, match=says) as error:
        opened(tmp_path, text)
    assert str(tmp_path / "a.txt") in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("suffix", [".txt", ".xyz", ".csv"])
def test_every_number_is_read_back_exactly(suffix, tmp_path):
    rng = np.random.default_rng(0)
    cloud = PointCloud.from_xyz(
        rng.normal(size=(100, 3)) * 1000 + [3e5, 5e6, 0],
        intensity=rng.random(100).astype(np.float32),
        label=rng.integers(-1, 9, 100),
        extra={"gps, time;": rng.random(100) * 1e9, "#n": rng.integers(0, 2**50, 100)},
    )
    write(tmp_path / f"a{suffix}", cloud)
    back = read(tmp_path / f"a{suffix}")
    assert np.array_equal(back.coord, cloud.coord) and np.array_equal(back.origin, cloud.origin)
    assert np.array_equal(back.intensity, cloud.intensity)
    assert np.array_equal(back.label, cloud.label)
    assert np.array_equal(back.extra["gps_time"], cloud.extra["gps, time;"])
    assert np.array_equal(back.extra["n"], cloud.extra["#n"])


def test_only_texts_of_points_are_scans_of_a_folder(tmp_path):
    for name, text in (
        ("a.txt", "1 2 3\n"), ("b.csv", "x,y,z\n1,2,3\n"), ("notes.txt", "read me first\n"),
        ("split.txt", "scan_1\nscan_2\n"), ("ids.txt", "1\n2\n3\n"),
        ("log.csv", "step,loss\n1,2\n"),
    ):  # fmt: skip
        (tmp_path / name).write_text(text)
    assert [path.name for path in find_scans(tmp_path)] == ["a.txt", "b.csv"]
