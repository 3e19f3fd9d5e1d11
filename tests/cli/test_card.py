"""pctx card: a folder of scans gets a card that can be trained with as it stands."""

import shutil

import numpy as np
import pytest

from pctx.cli.draft import card_text, choose_splits, draft
from pctx.data.audit import ScanFacts
from pctx.data.cards import card as named_card
from pctx.data.datasets.folder import FolderDataset
from pctx.data.io.formats import write
from pctx.data.labels import read_card
from pctx.geometry.points import PointCloud


def scan(path, codes, seed=0, points=30):
    rng = np.random.default_rng([seed, *path.name.encode()])
    label = np.repeat(codes, points)
    write(path, PointCloud(coord=rng.random((len(label), 3), dtype=np.float32), label=label))


def fact(scan, codes, points=100):
    return ScanFacts(split="all", scan=scan, points=points, codes=codes, digest=scan)


def test_las_codes_have_the_names_of_asprs(pctx, tmp_path):
    for i in range(5):
        scan(tmp_path / f"scans/{i}.laz", [1, 2, 6, 7, 64])
    code, out, _ = pctx("card", "scans")
    assert code == 0 and "building" in out and "next: pctx train data=folder data.root=scans" in out
    card = read_card(tmp_path / "scans/card.yaml")
    assert card.name == "scans"
    assert card.labels.names == ("unclassified", "ground", "building", "class 64")
    assert card.labels.raw == ((1,), (2,), (6,), (64,))
    assert card.labels.ignore == (0, 7) and card.labels.unlabeled == 0
    assert len(set(card.labels.colors)) == 4


def test_the_splits_are_exact_names_and_always_the_same(pctx, tmp_path):
    for i in range(10):
        scan(tmp_path / f"scans/north [{i}].ply", [3, 4])
    pctx("card", "scans")
    first = (tmp_path / "scans/card.yaml").read_text()
    assert pctx("card", "scans", "--overwrite")[0] == 0
    assert (tmp_path / "scans/card.yaml").read_text() == first
    data = FolderDataset(tmp_path / "scans")
    assert [len(data.scans(split)) for split in ("train", "val", "test")] == [7, 2, 1]
    every = {name for split in data.splits for name in data.scans(split)}
    assert every == {f"north [{i}].ply" for i in range(10)}


@pytest.mark.slow
def test_the_card_is_enough_to_check_and_to_train(pctx, tmp_path):
    for i in range(3):
        scan(tmp_path / f"my scans/{i}.laz", [2, 5, 6], points=400)
    assert pctx("card", "my scans")[0] == 0
    code, out, err = pctx("check", "data=folder", "data.root='my scans'", "data.grid_size=0.1")
    assert code == 0, out + err
    tiny = ["trainer.max_epochs=1", "data.samples_per_epoch=1", "data.grid_size=0.1"]
    code, _, err = pctx("train", "data=folder", "data.root='my scans'", *tiny, "hydra.run.dir=run")
    assert code == 0, err
    assert (tmp_path / "run/model.pt").is_file()


def test_an_existing_card_is_kept_and_the_input_is_untouched(pctx, tmp_path):
    scan(tmp_path / "a.ply", [1, 2])
    before = (tmp_path / "a.ply").read_bytes()
    assert pctx("card", ".", "-o", "mine.yaml", "--name", "Mine: all")[0] == 0
    assert read_card(tmp_path / "mine.yaml").name == "Mine: all"
    code, _, err = pctx("card", ".", "-o", "mine.yaml")
    assert code == 1 and "mine.yaml: exists already; --overwrite replaces it" in err
    assert (tmp_path / "a.ply").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.ply", "mine.yaml"]


def test_broken_files_are_named_and_the_others_make_the_card(pctx, tmp_path):
    scan(tmp_path / "s/a.ply", [1, 2])
    scan(tmp_path / "s/b.ply", [1, 2])
    (tmp_path / "s/c.laz").write_bytes(b"LASF")
    code, out, err = pctx("card", "s")
    assert code == 1 and "c.laz" in err and "written" in out
    assert read_card(tmp_path / "s/card.yaml").splits.keys() == {"train", "val"}


@pytest.mark.parametrize(
    ("codes", "says"),
    [([5], "only the raw id 5 occurs"), ([], "no scan has labels"), (None, "no such folder")],
)
def test_a_folder_with_nothing_to_tell_apart_is_refused(pctx, tmp_path, codes, says):
    if codes is not None:
        (tmp_path / "s").mkdir()
        label = np.repeat(codes, 30) if codes else None
        write(tmp_path / "s/a.ply", PointCloud(coord=np.zeros((30, 3), np.float32), label=label))
    code, _, err = pctx("card", "s")
    assert code == 1 and says in err
    assert not (tmp_path / "s/card.yaml").exists()


def test_many_scans_are_listed_beside_the_card(pctx, tmp_path):
    for i in range(101):
        scan(tmp_path / f"s/{i:03}.ply", [1, 2], points=1)
    assert pctx("card", "s")[0] == 0
    assert {path.name for path in (tmp_path / "s/splits").iterdir()} == {
        *("train.txt", "val.txt", "test.txt")
    }
    assert len(FolderDataset(tmp_path / "s").scans("val")) == 20


def test_ids_that_mean_no_class_are_left_out_where_others_remain():
    found = draft([fact("a.ply", {-1: 5, 0: 5, 1: 5, 255: 5}), fact("b.ply", {0: 1, 1: 1})])
    assert found.labels.raw == ((0,), (1,)) and found.labels.ignore == (-1, 255)
    assert found.labels.unlabeled == -1
    # Bare earth and objects, as ISPRS has them: 0 is a class.
    found = draft([fact("a.las", {0: 5, 2: 5}), fact("b.las", {0: 5, 2: 5})])
    assert found.labels.raw == ((0,), (2,)) and found.labels.names == ("class 0", "ground")
    assert found.labels.unlabeled == 1


def test_files_without_labels_are_in_no_split():
    facts = [fact("a.las", {1: 5, 2: 5}), fact("b.las", {1: 9, 2: 1}), fact("c.las", {1: 90})]
    found = draft([*facts, fact("d.las", None)])
    assert found.unlabeled == ["c.las", "d.las"]
    assert {name for names in found.splits.values() for name in names} == {"a.las", "b.las"}
    assert "want of labels: c.las, d.las" in card_text(found, "x", "")


def test_every_class_is_learned_and_evaluated_where_that_can_be():
    # One draw in many has the two scans of the rare class on either side.
    facts = [fact(f"{i}.ply", {1: 50, 2: 50, **({3: 9} if i in (3, 8) else {})}) for i in range(9)]
    splits, _ = choose_splits(facts)
    rare = {"3.ply", "8.ply"}
    assert len(rare & set(splits["train"])) == len(rare & set(splits["val"])) == 1


def test_copies_stay_on_one_side():
    facts = [fact(f"{i}.ply", {1: 5, 2: 5}) for i in range(6)]
    twin = ScanFacts(split="all", scan="copy.ply", points=10, codes={1: 5, 2: 5}, digest="0.ply")
    splits, _ = choose_splits([*facts, twin])
    assert any({"0.ply", "copy.ply"} <= set(names) for names in splits.values())


def test_frames_of_one_drive_are_cut_in_time():
    facts = [fact(f"velodyne/{i:06}.bin", {1: 5, 2: 5}) for i in range(10)]
    splits, why = choose_splits(facts)
    assert splits["val"] == ["velodyne/000008.bin", "velodyne/000009.bin"]
    assert len(splits["train"]) == 8 and "drive" in why
    facts = [fact(f"{s}/velodyne/{i:06}.bin", {1: 5, 2: 5}) for s in range(5) for i in range(4)]
    splits, _ = choose_splits(facts)
    assert len({name.split("/")[0] for name in splits["val"]}) == 1 and len(splits["val"]) == 4


def test_subfolders_say_what_is_for_what():
    names = ["x/train/a.ply", "x/train/b.ply", "x/val/c.ply"]
    splits, _ = choose_splits([fact(name, {1: 5, 2: 5}) for name in names])
    assert splits == {"train": names[:2], "val": names[2:]}


@pytest.mark.parametrize("suffix", [".laz", ".ply"])
def test_as_many_classes_as_may_be_have_colours_of_their_own(suffix):
    found = draft([fact(f"{i}{suffix}", dict.fromkeys(range(120), 9)) for i in range(3)])
    assert len(set(found.labels.colors)) == len(found.labels) >= 115


def test_semantic_kitti_is_recognised(pctx, real_data, tmp_path):
    source = real_data / "open-mmlab__mmdetection3d/tests/data/semantickitti/sequences/00"
    for sequence in ("00", "08"):
        shutil.copytree(source, tmp_path / f"kitti/sequences/{sequence}")
    code, out, _ = pctx("card", "kitti")
    assert code == 0
    assert "as published: pctx check data=semantic_kitti data.root=kitti" in out
    card = read_card(tmp_path / "kitti/card.yaml")
    assert card.labels == named_card("semantic_kitti").labels
    assert card.splits["val"] == ("sequences/08/velodyne/000000.bin",)


def test_real_aerial_tiles_get_a_card(pctx, real_data, tmp_path):
    for path in (real_data / "IGNF__ign-pdal-tools/test/data").glob("test_data_770*.laz"):
        shutil.copy(path, tmp_path)
    code, out, _ = pctx("card", ".")
    assert code == 0
    card = read_card(tmp_path / "card.yaml")
    assert card.labels.raw == tuple((i,) for i in range(1, 7)) and card.labels.ignore == (0, 64)
    assert [len(card.splits[split]) for split in ("train", "val")] == [4, 1]
    assert "data.features.fields=[terrain_height,intensity,returns,shape]" in out
    assert "141,923 points (41 %), 5 files" in (tmp_path / "card.yaml").read_text()
