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
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: not a YAML file ({reason})") from error
    if not isinstance(data, dict):
        raise ValueError(f"{path}: a card is a mapping, found {type(data).__name__}")
    known = {"name", "description", "licence", "source", "classes", "ignore", "unlabeled", "splits"}
    if strange := sorted(set(data) - known):
        raise ValueError(f"{path}: unknown key {strange[0]!r}; known: {', '.join(sorted(known))}")
    try:
        labels = LabelSet.from_dict(data)
    except (KeyError, ValueError) as error:
        what = f"missing key {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path}: classes: {what}") from error
    splits = {
        file.stem: tuple(line.strip() for line in file.read_text().splitlines() if line.strip())
        for file in sorted((path.parent / "splits").glob("*.txt"))
    }
    splits |= _patterns(path, data.get("splits") or {})
    text = {key: str(data.get(key) or "") for key in ("description", "licence", "source")}
    return Card(
        name=str(data.get("name") or path.parent.name), labels=labels, splits=splits, **text
    )


def _integers(value: Any, what: str) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not all(type(v) is int for v in value):
        raise ValueError(f"{what} must be a list of whole numbers, found {value!r}")
    return tuple(value)


def _patterns(path: Path, splits: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(splits, dict):
        raise ValueError(f"{path}: splits: must be {{split: [patterns]}}, found {splits!r}")
    found = {}
    for name, patterns in splits.items():
        listed = [patterns] if isinstance(patterns, str) else patterns
        if not isinstance(listed, list) or not all(isinstance(p, str) for p in listed):
            raise ValueError(f"{path}: splits: {name} must be patterns, found {patterns!r}")
        found[str(name)] = tuple(listed)
    return found
