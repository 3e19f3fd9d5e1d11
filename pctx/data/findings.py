"""Findings: what an audit of a dataset says is wrong or worth knowing, a sentence each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pctx.data.audit import ScanFacts
from pctx.data.features import FeatureSpec
from pctx.data.labels import SPLITS, LabelSet
from pctx.data.spacing import suggest_grid_size
from pctx.data.strays import STRAY
from pctx.geometry.curves import MAX_DEPTH

FAR_FROM_ONE = 30.0
"""Values of this size drown the others that a model sees, which are about 1."""
OTHER_SIZE = 30.0
"""How many times larger than the median scan one may be."""
_COARSER = 4.0
"""How many times the grid size may differ from the advice."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What an audit says.

    Attributes:
        wrong: what stops training, or spoils it.
        notes: what is worth knowing.
        spacing: the median one of the measured scans, metres; None where none was measured.
        grid_size: the one to start with, metres.
        voxels: of the median measured scan, at the configured grid size.
    """

    wrong: tuple[str, ...]
    notes: tuple[str, ...]
    spacing: float | None
    grid_size: float | None
    voxels: int | None


def findings(
    facts: Sequence[ScanFacts],
    splits: Mapping[str, Sequence[str]],
    labels: LabelSet,
    grid_size: float,
    features: FeatureSpec | None = None,
) -> Findings:
    """Draw conclusions from the facts of all scans of `splits`."""
    known = [f for f in facts if f.error is None]
    spacings = [f.spacing for f in known if f.spacing]
    spacing = float(np.median(spacings)) if spacings else None
    advice = None if spacing is None else suggest_grid_size(spacing)
    voxels = [f.voxels for f in known if f.voxels is not None]
    wrong = [
        *(f.error for f in facts if f.error is not None),
        *_splits(splits),
        *_scans(known, grid_size),
        *_copies(known, splits),
        *_unmapped(known, labels),
        *_fields(known),
    ]
    notes = [
        *_same_splits(splits),
        *_oddities(known),
        *_classes(known, labels),
        *_values(known, features),
        *_grid(grid_size, advice, spacing),
    ]
    return Findings(
        wrong=tuple(dict.fromkeys(wrong)),  # a scan of two splits is named once
        notes=tuple(dict.fromkeys(notes)),
        spacing=spacing,
        grid_size=advice,
        voxels=int(np.median(voxels)) if voxels else None,
    )


def class_counts(
    facts: Sequence[ScanFacts], splits: Sequence[str], labels: LabelSet
) -> dict[str, dict[str, int]]:
    """Count the points of each class by split; those of no class are under "ignored"."""
    numbers = labels.numbers
    names = [*labels.names, "ignored"]
    found = {split: dict.fromkeys(names, 0) for split in splits}
    for fact in facts:
        for code, count in (fact.codes or {}).items():
            if code in numbers:
                found[fact.split][names[numbers[code]]] += count
    return found


def _splits(splits: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for split in SPLITS[:2]:
        if not splits.get(split):
            yield f"the split {split} holds no scan, and training needs one"
    holds: dict[str, list[str]] = {}
    for split, scans in splits.items():
        for scan in dict.fromkeys(scans):
            holds.setdefault(scan, []).append(split)
    same = _alike(splits)
    for scan, where in holds.items():
        if len({same[split] for split in where}) > 1:
            yield f"{scan}: it is in the splits {_list(where)} at once"


def _same_splits(splits: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for split, first in _alike(splits).items():
        if split != first and splits[split]:
            yield f"the splits {first} and {split} are the same scans"


def _alike(splits: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Name for each split the first one that has the same scans, as published sets do."""
    first: dict[tuple[str, ...], str] = {}
    return {split: first.setdefault(tuple(scans), split) for split, scans in splits.items()}


def _scans(known: Sequence[ScanFacts], grid_size: float) -> Iterator[str]:
    sizes = [f.size for f in known if f.points]
    usual = float(np.median(sizes)) if sizes else 0.0
    for f in known:
        if not f.points:
            yield f"{f.scan}: it holds no point"
            continue
        if f.not_finite == f.points:
            yield f"{f.scan}: no point of it is finite"
        if f.codes is None and f.split in SPLITS[:2]:
            yield f"{f.scan}: it has no labels, and is for {f.split}"
        if f.extent / grid_size >= 2**MAX_DEPTH:
            yield (
                f"{f.scan}: {f.extent:,.0f} m wide, more than {2**MAX_DEPTH:,} voxels of "
                f"{grid_size:g} m"
            )
        if f.stray:
            points = "point" if f.stray == 1 else "points"
            yield (
                f"{f.scan}: {f.stray:,} stray {points} more than {STRAY:g} times its size "
                f"({f.size:,.1f} m) away; it is {f.extent:,.0f} m wide with them"
            )
        if len(sizes) > 2 and f.size > OTHER_SIZE * usual > 0:
            yield f"{f.scan}: {f.size:,.0f} m wide, where others are {usual:,.1f} m; other units?"


def _copies(known: Sequence[ScanFacts], splits: Mapping[str, Sequence[str]]) -> Iterator[str]:
    same = _alike(splits)
    seen: dict[str, ScanFacts] = {}
    for f in known:
        first = seen.setdefault(f.digest, f) if f.points else f
        if first.scan != f.scan and same[first.split] != same[f.split]:
            yield f"{f.scan} ({f.split}) holds the same points as {first.scan} ({first.split})"


def _unmapped(known: Sequence[ScanFacts], labels: LabelSet) -> Iterator[str]:
    where: dict[int, list[ScanFacts]] = {}
    for f in known:
        for code in set(f.codes or {}) - set(labels.numbers):
            where.setdefault(code, []).append(f)
    for code, scans in sorted(where.items()):
        points = sum((f.codes or {})[code] for f in scans)
        yield (
            f"raw id {code} ({points:,} points in {_scans_of(scans)}) is in no class of the card; "
            "give it to a class or to `ignore`"
        )


def _fields(known: Sequence[ScanFacts]) -> Iterator[str]:
    names = dict.fromkeys(name for f in known for name in f.missing)
    for name in names:
        scans = [f for f in known if name in f.missing]
        first = f"{len(scans):,} of {len(known):,} scans (first {scans[0].scan})"
        who = f"{scans[0].scan} lacks" if len(scans) == 1 else f"{first} lack"
        yield f"{who} {name}, which data.features names; leave it out, or fill it (data.fill)"


def _oddities(known: Sequence[ScanFacts]) -> Iterator[str]:
    if scans := [f for f in known if 0 < f.not_finite < f.points]:
        points = sum(f.not_finite for f in scans)
        yield f"{points:,} points are not finite, in {_scans_of(scans)}; they are passed over"
    twice: dict[tuple[str, str], list[ScanFacts]] = {}
    for f in known:
        if f.points:
            twice.setdefault((f.split, f.digest), []).append(f)
    for (split, _), scans in twice.items():
        if len(scans) > 1:
            yield f"{_list([f.scan for f in scans])} hold the same points, all for {split}"


def _classes(known: Sequence[ScanFacts], labels: LabelSet) -> Iterator[str]:
    splits = list(dict.fromkeys(f.split for f in known if f.codes is not None))
    counts = class_counts(known, splits, labels)
    for split in (split for split in SPLITS[:2] if split in counts):
        if none := [name for name in labels.names if not counts[split][name]]:
            what = "it cannot be learned" if split == "train" else "it is not evaluated"
            yield f"{_list(none)}: no point in {split}; {what}"


def _values(known: Sequence[ScanFacts], features: FeatureSpec | None) -> Iterator[str]:
    for name in () if features is None else features.fields:
        scans = [f for f in known if name in f.reach]
        if scans and all(name in f.constant for f in scans):
            yield f"{name} has one value in all points of each scan: it tells a model nothing"
            continue
        reach = float(np.median([f.reach[name] for f in scans])) if scans else 0.0
        if features is not None and reach > FAR_FROM_ONE:
            scale = reach * features.scales.get(name, 1)
            yield (
                f"{name} reaches {reach:,.0f} as a model sees it, other features about 1; try "
                f"data.features.scales.{name}={float(f'{scale:.1g}'):g}"
            )


def _grid(grid_size: float, advice: float | None, spacing: float | None) -> Iterator[str]:
    if advice is not None and not 1 / _COARSER <= grid_size / advice <= _COARSER:
        yield (
            f"data.grid_size={grid_size:g} is far from what a spacing of {spacing:g} m suggests; "
            f"try data.grid_size={advice:g}"
        )


def _scans_of(scans: Sequence[ScanFacts]) -> str:
    if len(scans) == 1:
        return scans[0].scan
    return f"{len(scans):,} scans, first {scans[0].scan}"


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
