"""E57: every field and pose of real and made files, and a sentence where the library is missing."""

import sys

import numpy as np
import pytest

from pctx.data.io.errors import ReadError
from pctx.data.io.formats import output_suffix, read

pye57 = pytest.importorskip("pye57", reason="the extra e57 is not installed")


def made(path, *scans):
    with pye57.E57(str(path), mode="w") as file:
        for scan in scans:
            file.write_scan_raw(**scan)
    return read(path)


def scan(n, seed=0):
    rng = np.random.default_rng(seed)
    data = {f"cartesian{axis}": rng.normal(size=n) for axis in "XYZ"}
    data["intensity"] = rng.random(n).astype(np.float32)
    for name in ("colorRed", "colorGreen", "colorBlue"):
        data[name] = rng.integers(0, 256, n).astype(np.uint8)
    return data


def test_scans_are_moved_to_their_poses_and_numbered(tmp_path):
    one, two = scan(20), scan(30, 1)
    half = np.sqrt(0.5)
    cloud = made(
        tmp_path / "a.e57",
        {"data": one, "translation": np.array([6e5, 5e6, 10])},
        {"data": two, "rotation": np.array([half, 0, 0, half]), "translation": np.zeros(3)},
    )
    x, y, z = (two[f"cartesian{axis}"].astype(np.float32) for axis in "XYZ")
    assert np.allclose(cloud.xyz[20:], np.stack([-y, x, z], axis=1), atol=0.5)
    assert np.allclose(cloud.xyz[:20, 2], one["cartesianZ"] + 10, atol=1e-5)
    assert np.array_equal(cloud.color[:20, 1], one["colorGreen"])
    assert np.array_equal(cloud.extra["scan"], np.repeat([0, 1], [20, 30]))


def test_intensity_is_brought_to_0_to_1_by_the_limits_of_the_scan(tmp_path):
    data = scan(50)
    data["intensity"] = np.linspace(-100, 4000, 50).astype(np.float32)
    cloud = made(tmp_path / "a.e57", {"data": data})
    assert np.allclose(cloud.intensity, np.linspace(0, 1, 50), atol=1e-6)


def test_invalid_points_are_rows_that_are_not_finite(tmp_path):
    data = scan(10)
    data["cartesianInvalidState"] = (np.arange(10) % 3 == 0).astype(np.int8)
    cloud = made(tmp_path / "a.e57", {"data": data})
    assert np.flatnonzero(~cloud.finite).tolist() == [0, 3, 6, 9]


def test_normals_of_the_extension_are_read(real_data):
    cloud = read(real_data / "davidcaron__pye57/tests/test_data/testWithNormals.e57")
    assert np.allclose(np.linalg.norm(cloud.normal, axis=1), 1, atol=1e-3)


def test_a_count_that_lies_is_refused_without_reserving_memory(tmp_path):
    made(tmp_path / "a.e57", {"data": scan(10)})
    data = (tmp_path / "a.e57").read_bytes()
    with pytest.raises(ReadError, match="checksum"):
        (tmp_path / "a.e57").write_bytes(data.replace(b'recordCount="10"', b'recordCount="99"'))
        read(tmp_path / "a.e57")


def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "a.e57").write_bytes(b"ASTM-E57 and more")
    monkeypatch.setitem(sys.modules, "pye57", None)
    with pytest.raises(ReadError, match=r"a.e57: .*pip install 'pctx\[e57\]'"):
        read(tmp_path / "a.e57")


def test_labels_go_to_a_format_that_can_be_written(tmp_path):
    assert output_suffix(tmp_path / "a.e57") == ".laz"
