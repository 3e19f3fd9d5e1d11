"""Median: the exact median of more integers than memory holds, in two passes over them."""

from __future__ import annotations

import numpy as np

_HALF = 16
_BINS = 2**_HALF


class Median:
    """The median of 32-bit integers: all of them go to `count`, then all of them to `refine`.

    The first pass counts their upper halves and so finds that of the middle one; the second counts
    the lower halves of those that share it.
    """

    def __init__(self) -> None:
        self._upper = np.zeros(_BINS, np.int64)
        self._lower: dict[int, np.ndarray] = {}

    def count(self, values: np.ndarray) -> None:
        """Count some more integers (n,) int64."""
        self._upper += np.bincount((values >> _HALF) + _BINS // 2, minlength=_BINS)

    def refine(self, values: np.ndarray) -> None:
        """Look at them again."""
        self._lower = self._lower or {bin_: np.zeros(_BINS, np.int64) for bin_, _ in self._middle}
        for bin_, counts in self._lower.items():
            near = values[(values >> _HALF) + _BINS // 2 == bin_]
            counts += np.bincount(near & (_BINS - 1), minlength=_BINS)

    @property
    def value(self) -> float:
        """The middle one, or the mean of the two; 0 of none."""
        found = []
        for bin_, rank in self._middle if self._lower else ():
            lower = int(np.searchsorted(np.cumsum(self._lower[bin_]), rank, side="right"))
            found.append(((bin_ - _BINS // 2) << _HALF) + lower)
        return sum(found) / 2

    @property
    def _middle(self) -> list[tuple[int, int]]:
        """The upper halves of the two in the middle, and their ranks among those that share it."""
        summed, total = np.cumsum(self._upper), int(self._upper.sum())
        places = []
        for rank in (max(total - 1, 0) // 2, total // 2):
            bin_ = min(int(np.searchsorted(summed, rank, side="right")), _BINS - 1)
            places.append((bin_, rank - int(summed[bin_] - self._upper[bin_])))
        return places
