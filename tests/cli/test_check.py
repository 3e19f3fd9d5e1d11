"""pctx check: a whole dataset is read, and every fault is one line and exit code 1."""

import json

import numpy as np
import pytest
import yaml

from pctx.data.io.formats import write
from pctx.geometry.points import PointCloud

CARD = {
    "name": "mine",
    "classes": [
        {"name": "ground", "color": [150, 100, 50], "raw": [2]},
        {"name": "house", "color": [200, 0, 0], "raw": [6]},
    ],
    "ignore": [7],
}


@pytest.fixture
def root(tmp_path):
    """Two sound scans and a card."""
    root = tmp_path / "scans"
    for seed, name in enumerate(("train/a.laz", "val/b.laz")):
        write(root / name, tile(seed))
    (root / "card.yaml").write_text(yaml.safe_dump(CARD))
    return root


def tile(seed, n=4000):
    rng = np.random.default_rng(seed)
    xyz = rng.uniform([770500, 6277500, 20], [770550, 6277550, 30], (n, 3))
    return PointCloud.from_xyz(
        xyz,
        label=np.where(xyz[:, 2] < 22, 2, 6),
        intensity=rng.integers(0, 900, n).astype(np.float32),
    )


def wrong(err):
    return [line.removeprefix("pctx: ") for line in err.splitlines() if line.startswith("pctx: ")]


def test_a_sound_set_ends_with_0_and_advice(pctx, root, tmp_path):
    code, out, err = pctx("check", "data=folder", f"data.root={root}", "data.grid_size=1")
    assert code == 0 and wrong(err) == []
    assert "4,000" in out and "house" in out and "nothing is wrong" in out
    assert "2 m is a grid size to start with" in out
    # Nothing is left behind.
    assert {path.name for path in tmp_path.iterdir()} == {"scans"}


def test_every_fault_is_named_in_one_line(pctx, root):
    strange = tile(2)
    strange.label[:5] = 65
    write(root / "train/strange.laz", strange)
    far = tile(3)
    far.coord[7] += 4e4
    write(root / "train/far.ply", far)
    (root / "train/empty.las").write_bytes(b"")
    (root / "train/cut.laz").write_bytes((root / "train/a.laz").read_bytes()[:900])
    (root / "val/a_copy.laz").write_bytes((root / "train/a.laz").read_bytes())
    write(root / "val/none.ply", PointCloud(coord=np.zeros((0, 3), np.float32)))
    np.zeros((50, 4), "<f4").tofile(root / "train/short.bin")
    np.zeros(49, "<u4").tofile(root / "train/short.label")
    fields = "data.features.fields=[height,intensity,color]"
    code, _, err = pctx("check", "data=folder", f"data.root={root}", fields)
    found = wrong(err)
    assert code == 1
    expected = [
        "empty.las: the file is empty",
        "cut.laz",
        "49 labels for the 50 points",
        "val/none.ply: it holds no point",
        "train/far.ply: 1 stray point",
        "val/a_copy.laz (val) holds the same points as train/a.laz (train)",
        "raw id 65 (5 points in train/strange.laz) is in no class",
        "lack color, which data.features names",
    ]
    for part in expected:
        assert len([line for line in found if part in line]) == 1, (part, found)
    assert len(found) == len(expected), found


def test_json_tells_the_same(pctx, root):
    code, out, _ = pctx("check", "data=folder", f"data.root={root}", "json=true", "workers=0")
    told = json.loads(out)
    assert code == 0 and told["wrong"] == []
    assert told["splits"]["val"] == {"scans": 1, "points": 4000}
    assert sum(told["classes"]["train"].values()) == 4000
    assert sum(told["codes"].values()) == 8000
    assert told["suggested_grid_size"] == 2.0


def test_a_file_of_two_splits_is_wrong(pctx, root):
    splits = "data.splits={train: ['**/*.laz'], val: [val]}"
    code, _, err = pctx("check", "data=folder", f"data.root={root}", splits)
    assert code == 1
    assert wrong(err) == ["val/b.laz: it is in the splits train and val at once"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["data=folder"], 2, "data.root is needed"),
        (["data=foldr"], 2, "folder"),
        (["data=folder", "data.root=none"], 1, "none: no such folder"),
        (["data=street", "workers=-1"], 2, "workers must be 0 or more"),
        (["data=street", "data.grid_size=0"], 2, "grid_size must be a number above 0"),
        (["splt=val"], 2, "no key 'splt'"),
    ],
)
def test_a_wrong_call_is_one_sentence(pctx, arguments, code, says):
    found, _, err = pctx("check", *arguments)
    assert found == code and len(wrong(err)) == 1 and says in err


def test_real_tiles_are_sound(pctx, real_data):
    root = real_data / "PDAL__data_isprs"
    code, out, err = pctx(
        "check", "data=folder", f"data.root={root}", "data.card=isprs_filter", "data.grid_size=2"
    )
    assert code == 0, err
    assert "nothing is wrong" in out and "2 m is a grid size" in out
