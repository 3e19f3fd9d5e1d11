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

    def encode(self, raw: np.ndarray) -> np.ndarray:
        """Turn raw ids (n,) into class numbers (n,) int64, -1 where ignored.

        Raises:
            ValueError: a raw id is in no class and not ignored; the message lists the ids.
        """
        codes, position, counts = np.unique(raw, return_inverse=True, return_counts=True)
        known = {code: i for i, ids in enumerate(self.raw) for code in ids}
        known |= dict.fromkeys(self.ignore, IGNORE_INDEX)
        unmapped = [
            f"{code} ({count} points)"
            for code, count in zip(codes.tolist(), counts.tolist(), strict=True)
            if code not in known
        ]
        if unmapped:
            raise ValueError(
                f"raw ids {', '.join(unmapped)} are in no class of the card; "
                "give each to a class or to `ignore`"
            )
        table = np.array([known[code] for code in codes.tolist()], dtype=np.int64)
        return table[position.reshape(-1)] if len(table) else np.zeros(0, dtype=np.int64)

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
        """Read the form that `to_dict` gives."""
        classes = data["classes"]
        return cls(
            names=tuple(str(c["name"]) for c in classes),
            colors=tuple(
                (int(c["color"][0]), int(c["color"][1]), int(c["color"][2])) for c in classes
            ),
            raw=tuple(tuple(int(code) for code in c["raw"]) for c in classes),
            ignore=tuple(int(code) for code in data.get("ignore") or ()),
            unlabeled=int(data.get("unlabeled", 0)),
        )


@dataclass(frozen=True, kw_only=True)
class Card:
    """A dataset's page: what it is, its classes, and which scans are for what.

    Attributes:
        splits: glob patterns relative to the dataset's root, by split name.
    """

    name: str
    labels: LabelSet
    description: str = ""
    licence: str = ""
    source: str = ""
    splits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_card(path: Path) -> Card:
    """Read `card.yaml`, and `splits/NAME.txt` beside it (one pattern a line).

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a key is missing, misspelt or of the wrong kind; the message names it.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such dataset card")
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not a YAML file ({str(error).splitlines()[0]})") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path}: a card is a mapping, found {type(data).__name__}")
    known = {"name", "description", "licence", "source", "classes", "ignore", "unlabeled", "splits"}
    if strange := sorted(set(data) - known):
        raise ValueError(f"{path}: unknown key {strange[0]!r}; known: {', '.join(sorted(known))}")
    try:
        labels = LabelSet.from_dict(data)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        what = f"missing key {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path}: classes: {what}") from error
    splits = {
        file.stem: tuple(line.strip() for line in file.read_text().splitlines() if line.strip())
        for file in sorted((path.parent / "splits").glob("*.txt"))
    }
    for name, patterns in (data.get("splits") or {}).items():
        splits[name] = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    text = {key: str(data.get(key) or "") for key in ("description", "licence", "source")}
    return Card(
        name=str(data.get("name") or path.parent.name), labels=labels, splits=splits, **text
    )
