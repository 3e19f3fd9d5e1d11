"""The tutorials run: on small real files where they are, else on what they make."""

import runpy
import sys

import pytest
import yaml

from tests.docs.pages import ROOT

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's, which the command hides
SHORT = ("--epochs", "1", "--samples", "2")


@pytest.fixture
def tutorial(tmp_path, monkeypatch):
    def run(name, *arguments):
        path = ROOT / "docs" / "tutorials" / name
        given = [str(path), *map(str, arguments), "--out", str(tmp_path / "out"), *SHORT]
        monkeypatch.setattr(sys, "argv", given)
        monkeypatch.chdir(tmp_path)
        runpy.run_path(str(path), run_name="__main__")
        return tmp_path / "out"

    return run


def test_the_aerial_survey(tutorial, real_data, tmp_path):
    tiles = sorted((real_data / "IGNF__ign-pdal-tools" / "test" / "data").glob("test_data_770*"))
    (tmp_path / "tiles").mkdir()
    for path in tiles[:3]:
        (tmp_path / "tiles" / path.name).symlink_to(path)
    out = tutorial("aerial.py", tmp_path / "tiles")
    for name in ("model.pt", "labelled.laz", "height.png", "prediction.png", "error.png"):
        assert (out / name).is_file(), name


def test_the_driving_scan_simulated(tutorial):
    out = tutorial("driving.py", "--streets", "2")
    assert (out / "labelled.label").is_file() and (out / "prediction.png").is_file()


def test_the_driving_scan_labels_a_real_one(tutorial, real_data, tmp_path):
    source = real_data / "mit-han-lab__spvnas" / "assets"
    for sequence in ("00", "08"):
        place = tmp_path / "kitti" / "sequences" / sequence
        for folder, suffix in (("velodyne", "bin"), ("labels", "label")):
            (place / folder).mkdir(parents=True)
            (place / folder / f"000000.{suffix}").symlink_to(source / f"000000.{suffix}")
    scan = source / "000000.bin"
    out = tutorial("driving.py", tmp_path / "kitti", "--scan", scan)
    assert (out / "labelled.label").stat().st_size == scan.stat().st_size // 4


def test_the_room_made(tutorial):
    assert (tutorial("room.py") / "prediction.png").is_file()


def test_the_room_of_real_tables(tutorial, real_data, tmp_path):
    """Table tops seen by a depth camera: 1 is the table, from 20 on are objects."""
    classes = [
        {"name": "table", "color": [150, 100, 50], "raw": [1]},
        {"name": "object", "color": [60, 80, 200], "raw": list(range(20, 100))},
    ]
    card = {"name": "tables", "classes": classes, "ignore": [0], "unlabeled": 0}
    card["splits"] = {"train": ["learn/*.pcd"], "val": ["test/*.pcd"]}
    (tmp_path / "card.yaml").write_text(yaml.safe_dump(card))
    folder = real_data / "PointCloudLibrary__data" / "segmentation" / "mOSD"
    out = tutorial("room.py", folder, tmp_path / "card.yaml", "--grid", "0.01")
    assert (out / "prediction.png").is_file()


def test_their_page_shows_every_script():
    page = (ROOT / "docs" / "tutorials" / "index.md").read_text()
    for path in (ROOT / "docs" / "tutorials").glob("*.py"):
        assert f'\n--8<-- "docs/tutorials/{path.name}"\n' in page
