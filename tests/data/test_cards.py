"""Dataset cards: each is whole, and is found by name or by path."""

import csv
import importlib.util
from pathlib import Path

import pytest
import yaml

from pctx.data.cards import card, cards_folder, find_card, list_cards
from pctx.data.labels import read_card

CARDS = list_cards()


@pytest.mark.parametrize("name", CARDS)
def test_a_card_is_whole(name):
    found = card(name)
    assert found.name == name
    assert found.description and found.licence and found.source
    assert found.download and found.layout
    assert len(set(found.labels.colors)) == len(found.labels)
    assert all(0 <= value <= 255 for color in found.labels.colors for value in color)
    # What is written without a class must not come back as one.
    assert found.labels.unlabeled not in {code for ids in found.labels.raw for code in ids}


def test_the_numbers_of_classes_are_those_of_the_benchmarks():
    sizes = {"ign_lidar_hd": 6, "isprs_filter": 2, "semantic_kitti": 19, "nuscenes": 16}
    sizes |= {"semantic_kitti_multi": 25, "waymo": 22, "s3dis": 13, "scannet": 20}
    sizes |= {"scannet200": 200, "toronto3d": 8, "dales": 8}
    assert {name: len(card(name).labels) for name in sizes} == sizes


@pytest.fixture
def open3d_tables():
    """The tables of datasets that Open3D carries."""
    found = importlib.util.find_spec("open3d")
    folder = Path(found.origin or "").parent / "_ml3d/datasets/_resources" if found else None
    if folder is None or not (folder / "semantic-kitti.yaml").is_file():
        pytest.skip("Open3D is not installed, or its tables have moved")
    return folder


def test_semantic_kitti_is_as_its_authors_map_it(open3d_tables):
    table = yaml.safe_load((open3d_tables / "semantic-kitti.yaml").read_text())
    labels = card("semantic_kitti").labels
    assert labels.numbers == {raw: number - 1 for raw, number in table["learning_map"].items()}
    back = table["learning_map_inv"]
    assert [ids[0] for ids in labels.raw] == [back[i + 1] for i in range(19)]
    assert list(labels.names) == [table["labels"][ids[0]] for ids in labels.raw]
    assert [list(c) for c in labels.colors] == [table["color_map"][ids[0]] for ids in labels.raw]


def test_several_scans_tell_moving_things_and_agree_on_the_rest():
    single, multi = card("semantic_kitti").labels, card("semantic_kitti_multi").labels
    assert multi.names[:19] == single.names and multi.colors[:19] == single.colors
    assert set(multi.numbers) == set(single.numbers)
    standing = {raw: number for raw, number in multi.numbers.items() if raw < 252}
    assert standing == {raw: number for raw, number in single.numbers.items() if raw < 252}
    assert all(multi.numbers[raw] >= 19 for raw in range(252, 260))


def test_scannet_has_the_ids_and_the_scenes_of_its_authors(open3d_tables):
    with (open3d_tables / "scannet/scannetv2-labels.combined.tsv").open() as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    names: dict[int, set[str]] = {}
    for row in rows:
        names.setdefault(int(row["id"]), set()).update((row["raw_category"], row["category"]))
    labels = card("scannet200").labels
    assert set(labels.numbers) == {0, *names}
    strange = [n for n, (raw,) in zip(labels.names, labels.raw, strict=True) if n not in names[raw]]
    assert strange == ["crate"]  # which the table spells "create"
    nyu = {row["nyu40class"]: int(row["nyu40id"]) for row in rows}
    twenty = card("scannet").labels
    for name, (raw,) in zip(twenty.names, twenty.raw, strict=True):
        assert nyu[name] == raw
    assert set(twenty.numbers) == set(range(41))
    for split, scenes in card("scannet").splits.items():
        assert (
            list(scenes) == (open3d_tables / f"scannet/scannetv2_{split}.txt").read_text().split()
        )


def test_lists_of_another_card_may_be_shared(tmp_path):
    source = find_card("isprs_filter").read_text(encoding="utf-8").split("splits:")[0]
    (tmp_path / "a").mkdir()
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/val.txt").write_text("b\n")
    (tmp_path / "lists/train.txt").write_text("a\n")
    path = tmp_path / "a/card.yaml"
    path.write_text(source + "splits: ../lists\n")
    assert list(read_card(path).splits.items()) == [("train", ("a",)), ("val", ("b",))]
    path.write_text(source + "splits: ../none\n")
    with pytest.raises(ValueError, match="splits: there is no folder"):
        read_card(path)


def test_every_raw_id_of_nuscenes_and_semantic_kitti_has_a_place():
    def every(name):
        labels = card(name).labels
        return {*labels.ignore, *(code for ids in labels.raw for code in ids)}

    assert every("nuscenes") == set(range(32))
    ids = {0, 1, 10, 11, 13, 15, 16, 18, 20, 30, 31, 32, 40, 44, 48, 49, 50, 51, 52, 60, 70, 71, 72}
    assert every("semantic_kitti") == ids | {80, 81, 99} | set(range(252, 260))


def test_a_card_is_found_by_name_folder_or_file(tmp_path):
    by_name = find_card("semantic_kitti")
    assert by_name == find_card(by_name) == find_card(by_name.parent)
    with pytest.raises(ValueError, match=r"'kitti'; known: .*ign_lidar_hd.*semantic_kitti"):
        find_card("kitti")
    with pytest.raises(FileNotFoundError, match=r"card.yaml: no such dataset card"):
        find_card(tmp_path / "card.yaml")


def test_the_readme_lists_the_cards():
    text = (cards_folder() / "README.md").read_text(encoding="utf-8")
    assert [name for name in CARDS if f"`{name}`" not in text] == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"clases": []}, "unknown key 'clases'"),
        ({"classes": None}, "classes"),
        ({"classes": [{"name": "a", "raw": [1]}]}, "missing key 'color'"),
        (
            {
                "classes": [
                    {"name": "a", "color": [1, 2, 300], "raw": [1]},
                    {"name": "b", "color": [1, 2, 3], "raw": [2]},
                ]
            },
            "color of a must be three",
        ),
        ({"classes": [{"name": "a", "color": "red", "raw": [1]}]}, "color of a must be a list"),
        ({"classes": [{"name": "a", "color": [1, 2, 3], "raw": 1}]}, "raw of a must be a list"),
        ({"classes": [{"name": "a", "color": [1, 2, 3], "raw": [1.5]}]}, "whole numbers"),
        ({"classes": ["a", "b"]}, "each of the list must be"),
        ({"unlabeled": None}, "unlabeled must be"),
        ({"ignore": 1}, "ignore must be"),
        ({"splits": ["a"]}, "splits: must be"),
        ({"splits": {"train": 5}}, "splits: train must be"),
        ({"ignore": [1]}, r"named twice: \[1\]"),
    ],
)
def test_a_card_that_is_wrong_names_the_file_and_the_key(change, says, tmp_path):
    data = {
        "classes": [
            {"name": "a", "color": [1, 2, 3], "raw": [1]},
            {"name": "b", "color": [4, 5, 6], "raw": [2]},
        ]
    }
    path = tmp_path / "card.yaml"
    path.write_text(yaml.safe_dump(data))
    assert len(read_card(path).labels) == 2
    path.write_text(yaml.safe_dump(data | change))
    with pytest.raises(ValueError, match=says) as error:
        read_card(path)
    assert str(path) in str(error.value)


def test_splits_may_lie_beside_a_card(tmp_path):
    source = find_card("isprs_filter").read_text(encoding="utf-8").split("splits:")[0]
    (tmp_path / "card.yaml").write_text(source)
    (tmp_path / "splits").mkdir()
    (tmp_path / "splits/val.txt").write_text("a*.laz\n\nb/*.laz\n")
    assert read_card(tmp_path / "card.yaml").splits == {"val": ("a*.laz", "b/*.laz")}
