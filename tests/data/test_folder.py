"""FolderDataset: which scans of a folder are for what."""

import logging

import numpy as np
import pytest

from pctx.data.cards import find_card
from pctx.data.datasets.folder import FolderDataset
from pctx.data.io.formats import write
from pctx.data.labels import Card, LabelSet
from pctx.geometry.points import PointCloud

LABELS = LabelSet(names=("a", "b"), colors=((1, 1, 1), (2, 2, 2)), raw=((1,), (2,)))
CARD = Card(name="mine", labels=LABELS)


@pytest.fixture
def folder(tmp_path):
    def make(*names):
        for i, name in enumerate(names):
            cloud = PointCloud(coord=np.full((i + 1, 3), i, np.float32), label=np.arange(i + 1))
            write(tmp_path / name, cloud)
        return tmp_path

    return make


def test_given_splits_come_first(folder):
    root = folder("train/a.ply", "val/b.ply", "c.ply")
    card = Card(name="mine", labels=LABELS, splits={"train": ("c.ply",)})
    data = FolderDataset(root, card, {"train": ["**/b*", "c.ply"], "val": "train"})
    assert data.scans("train") == ["c.ply", "val/b.ply"]
    assert data.scans("val") == ["train/a.ply"]


def test_the_splits_of_the_card_come_before_subfolders(folder):
    root = folder("train/a.ply", "val/b.ply", "c.ply")
    card = Card(name="mine", labels=LABELS, splits={"train": ("c.ply",), "val": ("*/a.ply",)})
    data = FolderDataset(root, card)
    assert data.scans("train") == ["c.ply"] and data.scans("val") == ["train/a.ply"]


def test_splits_of_a_card_that_meet_nothing_here_are_passed_over(folder):
    root = folder("train/a.ply", "val/b.ply")
    card = Card(name="mine", labels=LABELS, splits={"train": ("tile_1*",), "val": ("tile_2*",)})
    assert FolderDataset(root, card).scans("train") == ["train/a.ply"]


def test_subfolders_come_before_every_fifth(folder):
    root = folder("train/x/a.ply", "train/b.ply", "val/c.ply", "test/d.ply", "train.ply")
    data = FolderDataset(root, CARD)
    assert data.scans("train") == ["train/b.ply", "train/x/a.ply"]
    assert data.scans("val") == ["val/c.ply"] and data.scans("test") == ["test/d.ply"]


def test_subfolders_count_at_any_depth(folder):
    root = folder("city/train/a.ply", "city/val/b.ply", "land/train/val/c.ply", "land/d.ply")
    data = FolderDataset(root, CARD)
    assert data.scans("train") == ["city/train/a.ply", "land/train/val/c.ply"]
    assert data.scans("val") == ["city/val/b.ply"]


@pytest.mark.parametrize("n", [2, 5, 11])
def test_else_every_fifth_is_for_validation_and_none_is_for_both(folder, n, caplog):
    caplog.set_level(logging.INFO)
    root = folder(*(f"{i:02}.ply" for i in range(n)))
    data = FolderDataset(root, CARD)
    assert data.scans("val") == [f"{i:02}.ply" for i in range(0, n, 5)]
    assert sorted(data.scans("train") + data.scans("val")) == [f"{i:02}.ply" for i in range(n)]
    assert len(caplog.records) == 1 and "every fifth" in caplog.text


def test_a_single_file_is_for_both_with_a_warning(folder, caplog):
    data = FolderDataset(folder("a.ply"), CARD)
    assert data.scans("train") == data.scans("val") == ["a.ply"]
    assert caplog.records[0].levelname == "WARNING"


def test_the_card_in_the_folder_is_taken_where_none_is_named(folder):
    root = folder("a.ply", "b.ply")
    with pytest.raises(ValueError, match=r"no card\.yaml in it; `pctx card .* writes one.*generic"):
        FolderDataset(root)
    text = find_card("generic").read_text(encoding="utf-8")
    (root / "card.yaml").write_text(text + "splits: {train: a.ply, val: b.ply}\n")
    data = FolderDataset(root)
    assert len(data.card.labels) == 20 and data.splits == ("train", "val")
    assert data.scans("val") == ["b.ply"]


def test_a_name_that_looks_like_a_pattern_is_a_name(folder):
    root = folder("a[1].ply", "a1.ply")
    data = FolderDataset(root, CARD, {"train": ["a[1].ply"], "val": ["a1*"]})
    assert data.scans("train") == ["a[1].ply"] and data.scans("val") == ["a1.ply"]


def test_scans_are_read_with_raw_ids(folder):
    data = FolderDataset(str(folder("a.ply", "deep/b.laz")), CARD, {"train": ["**/*.laz"]})
    assert data.read(data.scans("train")[0]).label.tolist() == [0, 1]
    assert data.card.labels is LABELS


def test_what_is_not_there_is_one_sentence_that_lists_what_is(folder, tmp_path):
    with pytest.raises(ValueError, match="none: no such folder"):
        FolderDataset(tmp_path / "none", CARD)
    with pytest.raises(ValueError, match=r"no scan below it.*\.laz"):
        FolderDataset(tmp_path, CARD)
    root = folder("a.ply", "b.ply")
    with pytest.raises(ValueError, match=r"no split 'test'; there are train \(1\), val \(1\)"):
        FolderDataset(root, CARD).scans("test")
    data = FolderDataset(root, CARD, {"train": ["*.ply"], "val": ["*.laz"]})
    with pytest.raises(ValueError, match=r"no scan is in the split 'val'.*train \(2\), val \(0\)"):
        data.scans("val")
    with pytest.raises(ValueError, match="is no pattern"):
        FolderDataset(root, CARD, {"train": ["/a.ply"]})


@pytest.mark.parametrize(
    ("root", "card", "sizes"),
    [
        ("IGNF__ign-pdal-tools/test/data", "ign_lidar_hd", (3, 1, 1)),
        ("PDAL__data_isprs", "isprs_filter", (7, 2, 2)),
        ("open-mmlab__mmdetection3d/tests/data/semantickitti", "semantic_kitti", (1, 0, 0)),
    ],
)
def test_real_folders_are_split_as_their_cards_say(root, card, sizes, real_data):
    data = FolderDataset(real_data / root, card)
    for split, size in zip(("train", "val", "test"), sizes, strict=True):
        if size:
            assert len(data.scans(split)) == size
            label = data.read(data.scans(split)[0]).label
            assert data.card.labels.encode(label).max() > 0
