"""PCD: three encodings, every type, packed colours, padding, and what is no such file."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pctx.data.io import lzf
from pctx.data.io.errors import ReadError
from pctx.data.io.formats import read, write
from pctx.data.io.labelled import Labelled
from pctx.data.io.pcd import write_pcd
from pctx.data.io.pcd_header import read_header
from pctx.geometry.points import PointCloud

ENCODINGS = ["ascii", "binary", "binary_compressed"]


def pcd(table, encoding="binary", head="", **changes):
    """A file of a structured array."""
    names = [n.rstrip("0123456789") if n.startswith("_") else n for n in table.dtype.names]
    kinds = [table.dtype[n] for n in table.dtype.names]
    lines = {
        "VERSION": "0.7",
        "FIELDS": " ".join(names),
        "SIZE": " ".join(str(k.base.itemsize) for k in kinds),
        "TYPE": " ".join({"f": "F", "i": "I", "u": "U"}[k.base.kind] for k in kinds),
        "COUNT": " ".join(str(int(np.prod(k.shape))) for k in kinds),
        "WIDTH": str(len(table)),
        "HEIGHT": "1",
        "VIEWPOINT": "0 0 0 1 0 0 0",
        "POINTS": str(len(table)),
        "DATA": encoding,
    } | changes
    lines["DATA"] = lines.pop("DATA")
    data = head + "".join(f"{k} {v}\n" for k, v in lines.items() if v is not None)
    if encoding == "ascii":
        rows = [" ".join(str(v) for c in row.tolist() for v in np.ravel(c)) for row in table]
        return data.encode() + ("\n".join(rows) + "\n").encode()
    if encoding == "binary":
        return data.encode() + table.tobytes()
    whole = b"".join(np.ascontiguousarray(table[n]).tobytes() for n in table.dtype.names)
    block = lzf.compress(whole)
    return data.encode() + struct.pack("<II", len(block), len(whole)) + block


def opened(tmp_path, data):
    (tmp_path / "a.pcd").write_bytes(data)
    return read(tmp_path / "a.pcd")


def table(n=40, extra=()):
    rng = np.random.default_rng(0)
    out = np.zeros(n, [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), *extra])
    for name in "xyz":
        out[name] = rng.normal(size=n).round(3)
    return out


@pytest.mark.parametrize("head", ["# .PCD v.7 - Point Cloud Data file format\n", "", "# mine\n"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_encodings_and_types_give_the_same_cloud(encoding, head, tmp_path):
    kinds = ["<i1", "<u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8"]
    data = table(extra=[(f"c{kind[1:]}", kind) for kind in kinds] + [("label", "<u4")])
    for i, kind in enumerate(kinds):
        data[f"c{kind[1:]}"] = np.arange(40) * (i + 1) % 100
    data["label"] = np.arange(40) % 7
    cloud = opened(tmp_path, pcd(data, encoding, head))
    assert np.array_equal(cloud.coord, np.stack([data[a] for a in "xyz"], axis=1))
    assert np.array_equal(cloud.label, data["label"])
    for kind in kinds:
        assert np.array_equal(cloud.extra[f"c{kind[1:]}"], data[f"c{kind[1:]}"])
        assert kind[1] == "f" or cloud.extra[f"c{kind[1:]}"].dtype == np.dtype(kind)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_fields_of_many_numbers_are_kept_and_padding_is_not(encoding, tmp_path):
    data = table(extra=[("_", "u1", (4,)), ("fpfh", "<f4", (33,)), ("_2", "<f4")])
    data["fpfh"] = np.arange(40 * 33).reshape(40, 33)
    cloud = opened(tmp_path, pcd(data, encoding))
    assert list(cloud.extra) == ["fpfh"] and np.array_equal(cloud.extra["fpfh"], data["fpfh"])


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_points_without_a_return_stay_rows_of_an_organised_cloud(encoding, tmp_path):
    data = table()
    data["y"][3], data["x"][5] = np.nan, np.inf
    cloud = opened(tmp_path, pcd(data, encoding, WIDTH="8", HEIGHT="5"))
    assert len(cloud) == 40 and np.flatnonzero(~cloud.finite).tolist() == [3, 5]


@pytest.mark.parametrize("name", ["rgb", "rgba", "RGB"])
@pytest.mark.parametrize("opacity", [0, 255])
@pytest.mark.parametrize("kind", ["<u4", "<i4", "<f4"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_packed_colours_are_unpacked(encoding, kind, opacity, name, tmp_path):
    if encoding == "ascii" and kind == "<f4" and opacity:
        pytest.skip("the text of such a float is nan")
    color = np.random.default_rng(1).integers(0, 256, (40, 3))
    word = (color @ [1 << 16, 1 << 8, 1] + (opacity << 24)).astype("<u4")
    data = table(extra=[(name, kind)])
    data[name] = word.view(kind)
    cloud = opened(tmp_path, pcd(data, encoding))
    assert np.array_equal(cloud.color, color) and not cloud.extra


def test_a_float_that_is_a_whole_number_in_text_is_the_colour(tmp_path):
    data = table(2, [("rgb", "<f4")])
    data["rgb"] = [0x404040, 0x0000FF]
    assert opened(tmp_path, pcd(data, "ascii")).color.tolist() == [[64] * 3, [0, 0, 255]]


@pytest.mark.parametrize("separator", ["\t", ",", ", ", ";", "   "])
def test_text_may_have_any_separator_and_line_end(separator, tmp_path):
    text = pcd(table(3)[:0], "ascii", WIDTH="3", POINTS="3").decode()
    lines = [separator.join(row) + " " for row in (("1.5", "2", "nan"), ("4", "5", "6"), "789")]
    for end in ("\n", "\r\n"):
        cloud = opened(tmp_path, (text + "\n".join(lines)).replace("\n", end).encode())
        assert cloud.coord[[0, 2]].tolist()[1] == [7, 8, 9] and np.isnan(cloud.coord[0, 2])


def test_big_coordinates_in_text_keep_their_centimetres(tmp_path):
    text = pcd(table(0), "ascii", WIDTH="2", POINTS="2").decode()
    cloud = opened(tmp_path, f"{text}289814.15 4320978.61 1\n289814.16 4320978.62 2\n".encode())
    assert (
        np.abs(cloud.xyz[:, :2] - [[289814.15, 4320978.61], [289814.16, 4320978.62]]).max() < 1e-3
    )


def test_old_headers_need_no_points_count_or_viewpoint(tmp_path):
    missing = {"POINTS": None, "COUNT": None, "VIEWPOINT": None, "HEIGHT": None, "VERSION": ".5"}
    assert len(opened(tmp_path, pcd(table(), **missing))) == 40


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (pcd(table())[:-5], "40 points, the file holds 39: it is truncated"),
        (pcd(table(), "ascii")[:-30], "truncated|where each point"),
        (pcd(table(), "binary_compressed")[:-3], "cut short"),
        (pcd(table(), "binary_compressed").split(b"compressed\n")[0]
         + b"compressed\n" + b"\xff" * 20, "cut short"),
        (pcd(table(), POINTS="41"), "41 POINTS, WIDTH x HEIGHT is 40"),
        (pcd(table(), POINTS="9" * 15, WIDTH="9" * 15), "holds 40"),
        (pcd(table(), "binary_compressed", POINTS="9" * 9, WIDTH="9" * 9), "480 are compressed"),
        (pcd(table(), SIZE="4 4 3"), "TYPE F and SIZE 3"),
        (pcd(table(), SIZE="4 4"), "3 FIELDS.* 2 of SIZE"),
        (pcd(table(), COUNT="1 1 0"), "COUNT of 0"),
        (pcd(table(), FIELDS="x y w"), "no column z"),
        (pcd(table(), DATA="zip"), "'zip'"),
        (pcd(table(), WIDTH="-4"), "WIDTH -4"),
        (pcd(table(), COLOUR="1"), "COLOUR"),
        (pcd(table()).split(b"DATA")[0], "no header of PCD"),
        (pcd(table(), "ascii").replace(b"\n0.126", b"\nO.126"), "line 11 holds 'O.126.*no number"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_is_one_sentence(data, says, tmp_path):
    with pytest.raises(ReadError, match=says) as error:
        opened(tmp_path, data)
    assert str(tmp_path / "a.pcd") in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_is_written_is_read_back(encoding, tmp_path):
    rng = np.random.default_rng(0)
    cloud = PointCloud.from_xyz(
        rng.normal(size=(300, 3)) + np.array([7e5, 6e6, 0]),
        color=rng.integers(0, 256, (300, 3)).astype(np.uint8),
        intensity=rng.random(300).astype(np.float32),
        label=rng.integers(-1, 400, 300),
        extra={"two words": rng.random((300, 2)), "big": rng.integers(0, 2**62, 300)},
    )
    if encoding == "ascii":  # whose numbers are read as doubles
        cloud.extra["big"] >>= 10
    write_pcd(tmp_path / "a.pcd", Labelled(cloud=cloud), encoding=encoding)
    assert read_header(tmp_path / "a.pcd").encoding == encoding
    back = read(tmp_path / "a.pcd")
    assert np.array_equal(back.coord, cloud.coord) and np.array_equal(back.origin, cloud.origin)
    for name in ("color", "intensity", "label"):
        assert np.array_equal(getattr(back, name), getattr(cloud, name))
    assert np.array_equal(back.extra["two_words_1"], cloud.extra["two words"][:, 1])
    assert np.array_equal(back.extra["big"], cloud.extra["big"])
    write(tmp_path / "b.pcd", back, source=tmp_path / "a.pcd")
    assert read_header(tmp_path / "b.pcd").encoding == encoding


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(0, 3000), st.sampled_from([1, 2, 5, 256]))
def test_compression_and_back_is_identity(seed, n, letters):
    data = np.random.default_rng(seed).integers(0, letters, n).astype(np.uint8).tobytes()
    block = lzf.compress(data)
    assert lzf.decompress(block, n) == data
    assert n < 300 or letters > 5 or len(block) < len(data)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 500))
def test_any_block_is_decompressed_to_its_size_or_refused(block, size):
    try:
        assert len(lzf.decompress(block, size)) == size
    except ValueError as error:
        assert "compressed block" in str(error)
