"""Draft: the card of a folder of scans, drawn from what they hold, with comments for editing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np

from pctx.data.audit import ScanFacts
from pctx.data.cards import card as named_card
from pctx.data.datasets.folder import split_folder
from pctx.data.labels import SPLITS, Card, LabelSet
from pctx.vis.palette import ASPRS, DISTINCT, id_colors

MAX_LISTED = 100
"""Scans up to which a card lists them itself; more are lists beside it."""
VAL_SHARE, TEST_SHARE = 0.2, 0.1
FEWEST_FOR_TEST = 10
"""Groups of scans from which on some are kept for testing."""

_DRIVING = {"semantic_kitti": ".bin", "nuscenes": ".pcd.bin"}
_FEWEST_KNOWN = 4
"""Classes that must occur before a folder passes for a published dataset."""
_AERIAL = (".las", ".laz")
_NO_CLASS = (0, 7, 12, 18)
"""LAS codes of points that were never classified, noise, and overlap."""
_NEVER = {0, 1}
"""A LAS file of one of these alone was not classified."""
_VOID = 255
_RARE = 1e-3
"""The share of the points below which a LAS code without a name is not learned."""
_TRIALS = 200


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A card to be written.

    Attributes:
        labels: the classes, the ids left out, and what is written for none.
        like: the published dataset whose classes these are; None for none.
        counts: by raw id, points and files.
        splits: exact names of scans.
        why: in words, how the splits came about.
        unlabeled: scans without labels, which are in no split.
    """

    labels: LabelSet
    like: str | None
    counts: Mapping[int, tuple[int, int]]
    splits: Mapping[str, Sequence[str]]
    why: str
    unlabeled: Sequence[str]

    @property
    def listed_beside(self) -> bool:
        """Whether the splits are too long for the card."""
        return sum(map(len, self.splits.values())) > MAX_LISTED


def draft(facts: Sequence[ScanFacts]) -> Draft:
    """Draw a card from the facts of every scan that could be read.

    Raises:
        ValueError: fewer than two raw ids occur.
    """
    labelled = [f for f in facts if f.codes and not _is_never_classified(f)]
    if not labelled:
        labelled = [f for f in facts if f.codes]
    counts: dict[int, tuple[int, int]] = {}
    for f in labelled:
        for code, points in (f.codes or {}).items():
            before = counts.get(code, (0, 0))
            counts[code] = (before[0] + points, before[1] + 1)
    if len(counts) < 2:
        found = f"only the raw id {next(iter(counts))} occurs" if counts else "no scan has labels"
        raise ValueError(f"{found}; a card needs at least two classes to tell apart")
    like = _recognise(labelled, counts)
    labels = named_card(like).labels if like else _classes(labelled, counts)
    splits, why = choose_splits(labelled, named_card(like) if like else None)
    chosen = {id(f) for f in labelled}
    return Draft(
        labels=labels,
        like=like,
        counts=counts,
        splits=splits,
        why=why,
        unlabeled=[f.scan for f in facts if id(f) not in chosen],
    )


def card_text(found: Draft, name: str, description: str) -> str:
    """Lay a card out as YAML."""
    lines = [
        "# Written by `pctx card`. Edit it: name the classes, put raw ids of those to be merged",
        "# into one list, and move those not to be learned to `ignore`.",
        f"name: {json.dumps(name, ensure_ascii=False)}",
        f"description: {json.dumps(description, ensure_ascii=False)}",
        "licence: unknown",
        "source: own files",
        *([f"# The classes and raw ids are those of {found.like}."] if found.like else []),
        "classes:",
        *_class_lines(found),
        "# Raw ids that are neither learned nor counted.",
        *_ignore_lines(found),
        "# The raw id written for points without a predicted class.",
        f"unlabeled: {found.labels.unlabeled}",
        *_split_lines(found),
    ]
    return "\n".join(lines) + "\n"


def choose_splits(
    labelled: Sequence[ScanFacts], published: Card | None = None
) -> tuple[dict[str, list[str]], str]:
    """Share scans out, with the reason in words. The same scans always give the same splits.

    The first of these that holds: subfolders `train` and `val`; the published lists; a single scan
    for both; frames of one drive, of which the last are for validation; or groups by chance (scans
    of the same points, and frames of one folder, stay together), the best of 200 draws: all classes
    in training, then in validation, then shares of points as in the whole.
    """
    scans = [f.scan for f in labelled]
    folders = {s: [n for n in scans if split_folder(n) == s] for s in SPLITS}
    if folders["train"] and folders["val"]:
        return {s: names for s, names in folders.items() if names}, "As the subfolders say."
    if published is not None:
        listed = {
            split: [n for n in scans if any(PurePosixPath(n).match(p) for p in patterns)]
            for split, patterns in published.splits.items()
        }
        if listed.get("train") and listed.get("val"):
            return {s: names for s, names in listed.items() if names}, "As published."
    if len(scans) == 1:
        return {"train": scans, "val": scans}, "One file for both: its scores tell nothing new."
    driving = all(n.endswith(tuple(_DRIVING.values())) for n in scans)
    groups = _groups(labelled, by_folder=driving)
    if driving and len(groups) == 1:
        cut = len(scans) - max(1, round(VAL_SHARE * len(scans)))
        why = "Frames of one drive resemble their neighbours: the last fifth is for validation."
        return {"train": sorted(scans)[:cut], "val": sorted(scans)[cut:]}, why
    if len(groups) == 1:
        return {"train": scans, "val": scans}, "All files hold the same points."
    return _draw(groups), "By file, by chance with a fixed seed, so that classes are on both sides."


def _is_never_classified(facts: ScanFacts) -> bool:
    codes = set(facts.codes or {})
    return facts.scan.lower().endswith(_AERIAL) and len(codes) == 1 and codes <= _NEVER


def _recognise(labelled: Sequence[ScanFacts], counts: Mapping[int, tuple[int, int]]) -> str | None:
    for name, suffix in _DRIVING.items():
        numbers = named_card(name).labels.numbers
        kinds = {".pcd.bin" if f.scan.endswith(".pcd.bin") else f.scan[-4:] for f in labelled}
        met = {numbers[code] for code in counts if code in numbers} - {-1}
        if kinds == {suffix} and set(counts) <= set(numbers) and len(met) >= _FEWEST_KNOWN:
            return name
    return None


def _classes(labelled: Sequence[ScanFacts], counts: Mapping[int, tuple[int, int]]) -> LabelSet:
    aerial = all(f.scan.lower().endswith(_AERIAL) for f in labelled)
    total = sum(points for points, _ in counts.values())

    def is_left_out(code: int) -> bool:
        if not aerial:
            return code < 0 or (code == _VOID and len(counts) > 2)
        named = code in ASPRS.numbers
        return code in _NO_CLASS or (not named and counts[code][0] < _RARE * total)

    ignore = [code for code in sorted(counts) if is_left_out(code)]
    if len(counts) - len(ignore) < 2:
        ignore = []
    codes = [code for code in sorted(counts) if code not in ignore]
    spare = iter([*DISTINCT, *map(tuple, id_colors(np.arange(10_000)).tolist())])
    names, colors = [], []
    for code in codes:
        # A code that should mean none, and is learned all the same, is told by its number.
        number = ASPRS.numbers.get(code) if aerial and code not in _NO_CLASS else None
        names.append(f"class {code}" if number is None else ASPRS.names[number])
        if number is not None:
            colors.append(ASPRS.colors[number])
        else:
            colors.append(next(c for c in spare if c not in colors and c not in ASPRS.colors))
    candidates = (0, 1, *ignore, _VOID) if aerial else (0, *ignore, -1)
    unlabeled = next(code for code in candidates if code not in codes)
    if unlabeled not in ignore:
        ignore.append(unlabeled)
    return LabelSet(
        names=tuple(names),
        colors=tuple(colors),
        raw=tuple((code,) for code in codes),
        ignore=tuple(sorted(ignore)),
        unlabeled=unlabeled,
    )


def _groups(labelled: Sequence[ScanFacts], *, by_folder: bool) -> list[list[ScanFacts]]:
    """Put together what must not be parted."""
    groups: dict[str, list[ScanFacts]] = {}
    for f in sorted(labelled, key=lambda f: f.scan):
        key = str(PurePosixPath(f.scan).parent) if by_folder else f.digest
        groups.setdefault(key, []).append(f)
    return list(groups.values())


def _draw(groups: Sequence[Sequence[ScanFacts]]) -> dict[str, list[str]]:
    codes = sorted({code for group in groups for f in group for code in f.codes or {}})
    counts = np.array(
        [[sum((f.codes or {}).get(code, 0) for f in group) for code in codes] for group in groups],
        dtype=np.float64,
    )
    share = counts.sum(axis=0) / counts.sum()
    num_val = max(1, round(VAL_SHARE * len(groups)))
    num_test = round(TEST_SHARE * len(groups)) if len(groups) >= FEWEST_FOR_TEST else 0
    rng = np.random.default_rng(0)

    def badness(order: np.ndarray) -> tuple[int, int, float]:
        val, train = (
            counts[order[:num_val]].sum(axis=0),
            counts[order[num_val + num_test :]].sum(axis=0),
        )
        uneven = float(np.abs(val / max(val.sum(), 1) - share).sum())
        return int((train == 0).sum()), int((val == 0).sum()), uneven

    order = min((rng.permutation(len(groups)) for _ in range(_TRIALS)), key=badness)
    parts = {
        "train": order[num_val + num_test :],
        "val": order[:num_val],
        "test": order[num_val : num_val + num_test],
    }
    return {
        split: sorted(f.scan for i in numbers for f in groups[i])
        for split, numbers in parts.items()
        if len(numbers)
    }


def _class_lines(found: Draft) -> Iterator[str]:
    rows = [
        f"  - {{name: {json.dumps(name, ensure_ascii=False)}, color: {list(color)}, "
        f"raw: {list(raw)}}}"
        for name, color, raw in zip(
            found.labels.names, found.labels.colors, found.labels.raw, strict=True
        )
    ]
    width = max(map(len, rows))
    for row, raw in zip(rows, found.labels.raw, strict=True):
        yield f"{row:{width}}  # {_count(found, raw)}"


def _ignore_lines(found: Draft) -> Iterator[str]:
    if not found.labels.ignore:
        yield "ignore: []"
        return
    yield "ignore:"
    for code in found.labels.ignore:
        yield f"  - {code}  # {_count(found, [code])}"


def _count(found: Draft, raw: Sequence[int]) -> str:
    met = [found.counts[code] for code in raw if code in found.counts]
    if not met:
        return "none here"
    points = sum(count for count, _ in met)
    share = 100 * points / sum(count for count, _ in found.counts.values())
    files = max(number for _, number in met)
    return f"{points:,} points ({share:.2g} %), {files} file{'s' if files > 1 else ''}"


def _split_lines(found: Draft) -> Iterator[str]:
    yield f"# {found.why}"
    if found.listed_beside:
        yield "# The lists are splits/*.txt beside this file, a name or pattern a line."
    else:
        yield "# Names or patterns below the folder."
        yield "splits:"
        for split, scans in found.splits.items():
            yield f"  {split}:"
            yield from (f"    - {json.dumps(scan, ensure_ascii=False)}" for scan in scans)
    if found.unlabeled:
        names = [json.dumps(scan, ensure_ascii=False).strip('"') for scan in found.unlabeled[:5]]
        some = ", ".join(names) + (", …" if len(found.unlabeled) > 5 else "")
        yield f"# In no split, for want of labels: {some}"
