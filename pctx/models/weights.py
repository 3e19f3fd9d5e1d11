"""Difference: where the weights of a file are not those of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Difference:
    """Names and shapes that disagree; false where none do.

    Attributes:
        reshaped: the model's shape and the file's, by name.
        missing: the model's shape, by names that the file lacks.
        unexpected: the file's shape, by names that the model lacks.
    """

    reshaped: Mapping[str, tuple[Shape, Shape]]
    missing: Mapping[str, Shape]
    unexpected: Mapping[str, Shape]

    def __bool__(self) -> bool:
        return bool(self.reshaped or self.missing or self.unexpected)

    def __str__(self) -> str:
        """Count each kind and name its first."""
        return "; ".join(
            f"{len(lines)} {kind} ({lines[0]}{', …' if len(lines) > 1 else ''})"
            for kind, lines in self._kinds().items()
            if lines
        )

    @property
    def num_new(self) -> int:
        """The number of the model's weights that the file does not give."""
        return len(self.reshaped) + len(self.missing)

    def lines(self, most: int = 3) -> list[str]:
        """Name the weights one a line, at most `most` of each kind, and count the others."""
        shown = []
        for kind, lines in self._kinds().items():
            shown += [f"{kind}: {line}" for line in lines[:most]]
            if len(lines) > most:
                shown.append(f"{kind}: {len(lines) - most} more")
        return shown

    def _kinds(self) -> dict[str, list[str]]:
        return {
            "missing": [f"{name} {shape}" for name, shape in self.missing.items()],
            "unexpected": [f"{name} {shape}" for name, shape in self.unexpected.items()],
            "of another shape": [
                f"{name} {theirs} for {ours}" for name, (ours, theirs) in self.reshaped.items()
            ],
        }


def compare(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> Difference:
    """Compare the names and shapes of a model's weights with those of a file."""
    theirs = {name: tuple(value.shape) for name, value in given.items()}
    ours = {name: tuple(value.shape) for name, value in own.items()}
    return Difference(
        reshaped={
            name: (shape, theirs[name])
            for name, shape in ours.items()
            if name in theirs and theirs[name] != shape
        },
        missing={name: shape for name, shape in ours.items() if name not in theirs},
        unexpected={name: shape for name, shape in theirs.items() if name not in ours},
    )
