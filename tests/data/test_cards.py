"""Dataset cards: each is whole, and is found by name or by path."""

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
    assert len(set(found.labels.colors)) == len(found.labels)
    assert all(0 <= value <= 255 for color in found.labels.colors for value in color)
    # What is written without a class must not come back as one.
    assert found.labels.unlabeled not in {code for ids in found.labels.raw for code in ids}


def test_the_numbers_of_classes_are_those_of_the_benchmarks():
    sizes = {"ign_lidar_hd": 6, "isprs_filter": 2, "semantic_kitti": 19, "nuscenes": 16}
    assert {name: len(card(name).labels) for name in sizes} == sizes


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
