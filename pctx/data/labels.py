"""LabelSet, the classes of a dataset, and Card, the page that describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

IGNORE_INDEX = -1
"""The class number of points that are neither learned nor counted."""

SPLITS = ("train", "val", "test")
"""The usual splits, in their order."""

_UNKNOWN = -2
_TEXTS = ("description", "licence", "source", "download", "layout")
_WIDEST_TABLE = 2**20
"""Raw ids further apart are looked up by sorting, which takes ten times as long."""


@dataclass(frozen=True, kw_only=True)
class LabelSet:
    """Class names and colours, and the way between a file's raw ids and class numbers.

    Attributes:
        names: one a class.
        colors: one RGB triple 0..255 a class.
        raw: the raw ids of each class; the first one is written back.
        ignore: raw ids that are neither learned nor counted.
        unlabeled: the raw id written for points without a predicted class.
    """

    names: tuple[str, ...]
    colors: tuple[tuple[int, int, int], ...]
    raw: tuple[tuple[int, ...], ...]
    ignore: tuple[int, ...] = ()
    unlabeled: int = 0

    def __post_init__(self) -> None:
        if len(self.names) < 2:
            raise ValueError(f"a label set needs at least 2 classes, found {len(self.names)}")
        if not len(self.names) == len(self.colors) == len(self.raw):
            raise ValueError(
                f"{len(self.names)} names, {len(self.colors)} colours and "
                f"{len(self.raw)} lists of raw ids do not agree"
            )
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"class names repeat: {', '.join(self.names)}")
        for name, color in zip(self.names, self.colors, strict=True):
            if len(color) != 3 or not all(0 <= value <= 255 for value in color):
                raise ValueError(
                    f"the color of {name} must be three numbers 0 to 255, found {list(color)}"
                )
        if any(len(ids) == 0 for ids in self.raw):
            raise ValueError(
                f"class {self.names[[len(r) for r in self.raw].index(0)]} has no raw id"
            )
        every = [code for ids in self.raw for code in ids] + list(self.ignore)
        if len(set(every)) < len(every):
            twice = sorted({code for code in every if every.count(code) > 1})
            raise ValueError(f"raw ids named twice: {twice}")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def numbers(self) -> dict[int, int]:
        """The class number of every raw id of the set, -1 of those that are ignored."""
        known = {code: i for i, ids in enumerate(self.raw) for code in ids}
        return known | dict.fromkeys(self.ignore, IGNORE_INDEX)

    def encode(self, raw: np.ndarray) -> np.ndarray:
        """Turn raw ids (n,) into class numbers (n,) int64, -1 where ignored.

        Raises:
            ValueError: a raw id is in no class and not ignored; the message lists the ids.
        """
        if len(raw) == 0:
            return np.zeros(0, dtype=np.int64)
        numbers, low = self.numbers, int(raw.min())
        span = int(raw.max()) - low + 1
        if span > _WIDEST_TABLE:
            codes, place = np.unique(raw, return_inverse=True)
            table = np.array([numbers.get(int(code), _UNKNOWN) for code in codes])
            label = table[place.reshape(-1)]
        else:
            table = np.full(span, _UNKNOWN, dtype=np.int64)
            for code, number in numbers.items():
                if 0 <= code - low < span:
                    table[code - low] = number
            label = table[raw.astype(np.int64) - low]
        if (unknown := label == _UNKNOWN).any():
            codes, counts = np.unique(raw[unknown], return_counts=True)
            pairs = zip(codes.tolist(), counts.tolist(), strict=True)
            unmapped = [f"{code} ({count} points)" for code, count in pairs]
            raise ValueError(
                f"raw ids {', '.join(unmapped)} are in no class of the card; "
                "give each to a class or to `ignore`"
            )
        return label

    def decode(self, label: np.ndarray) -> np.ndarray:
        """Turn class numbers (n,) into the raw ids to write (n,) int64; -1 gives `unlabeled`."""
        table = np.array([*(ids[0] for ids in self.raw), self.unlabeled], dtype=np.int64)
        return table[label]

    def to_dict(self) -> dict[str, Any]:
        """Give plain lists and numbers, the form of a card and of a model file."""
        classes = [
            {"name": name, "color": list(color), "raw": list(raw)}
            for name, color, raw in zip(self.names, self.colors, self.raw, strict=True)
        ]
        return {"classes": classes, "ignore": list(self.ignore), "unlabeled": self.unlabeled}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LabelSet:
        """Read the form that `to_dict` gives.

        Raises:
            KeyError, ValueError: a key is missing, or of the wrong kind.
        """
        classes = data["classes"]
        if not isinstance(classes, list) or not all(isinstance(c, Mapping) for c in classes):
            raise ValueError("each of the list must be {name: …, color: [r, g, b], raw: [ids]}")
        names = [str(c["name"]) for c in classes]
        colors = [_integers(c["color"], f"color of {c['name']}") for c in classes]
        unlabeled = data.get("unlabeled", 0)
        return cls(
            names=tuple(names),
            colors=tuple(colors),  # type: ignore[arg-type]  # three each, or refused
            raw=tuple(_integers(c["raw"], f"raw of {c['name']}") for c in classes),
            ignore=_integers(data.get("ignore") or [], "ignore"),
            unlabeled=_integers([unlabeled], "unlabeled")[0],
        )


@dataclass(frozen=True, kw_only=True)
class Card:
    """A dataset's page: what it is, its classes, and which scans are for what.

    Attributes:
        source: the page of the dataset.
        download: how to get it.
        layout: where its files lie and what they hold.
        splits: by split name, glob patterns relative to the dataset's root, or the names of its
            scenes.
    """

    name: str
    labels: LabelSet
    description: str = ""
    licence: str = ""
    source: str = ""
    download: str = ""
    layout: str = ""
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_card(path: Path) -> Card:
    """Read `card.yaml`, and `splits/NAME.txt` beside it (one pattern a line).

    `splits` may also be the folder of such lists of another card, relative to this one.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a key is missing, misspelt or of the wrong kind; the message names it.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such dataset card; `pctx card FOLDER` writes one")
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: not a YAML file ({reason})") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path}: a card is a mapping, found {type(data).__name__}")
    known = {"name", *_TEXTS, "classes", "ignore", "unlabeled", "splits"}
    if strange := sorted(map(str, set(data) - known)):
        raise ValueError(f"{path}: unknown key {strange[0]!r}; known: {', '.join(sorted(known))}")
    try:
        labels = LabelSet.from_dict(data)
    except (KeyError, ValueError) as error:
        what = f"missing key {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path}: classes: {what}") from error
    splits = _listed(path, data.get("splits"))
    splits |= _patterns(path, data.get("splits") or {})
    text = {key: str(data.get(key) or "").strip() for key in _TEXTS}
    return Card(
        name=str(data.get("name") or path.parent.name), labels=labels, splits=splits, **text
    )


def _integers(value: Any, what: str) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not all(type(v) is int for v in value):
        raise ValueError(f"{what} must be a list of whole numbers, found {value!r}")
    return tuple(value)


def _listed(path: Path, splits: Any) -> dict[str, tuple[str, ...]]:
    folder = path.parent / (splits if isinstance(splits, str) else "splits")
    if isinstance(splits, str) and not folder.is_dir():
        raise ValueError(f"{path}: splits: there is no folder {folder}")
    found = {}
    for file in sorted(folder.glob("*.txt"), key=lambda file: _place(file.stem)):
        lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
        found[file.stem] = tuple(line for line in lines if line)
    return found


def _place(split: str) -> tuple[int, str]:
    return (SPLITS.index(split) if split in SPLITS else len(SPLITS), split)


def _patterns(path: Path, splits: Any) -> dict[str, tuple[str, ...]]:
    if isinstance(splits, str):
        return {}
    if not isinstance(splits, dict):
        raise ValueError(f"{path}: splits: must be {{split: [patterns]}}, found {splits!r}")
    found = {}
    for name, patterns in splits.items():
        listed = [patterns] if isinstance(patterns, str) else patterns
        if not isinstance(listed, list) or not all(isinstance(p, str) for p in listed):
            raise ValueError(f"{path}: splits: {name} must be patterns, found {patterns!r}")
        found[str(name)] = tuple(listed)
    return found
