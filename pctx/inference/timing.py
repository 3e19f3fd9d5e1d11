"""Timing: pieces of work run in turns, so that what disturbs the machine disturbs all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import TypeVar

import torch

Work = Callable[[], object]
"""What is timed."""

_WARM_UP = 1.0
"""Seconds within which a first run only warms up."""

_Key = TypeVar("_Key")


_TICK = 1e-6
"""Seconds that a clock may not see: of a process some count in steps of that."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A piece of work, timed.

    Attributes:
        name: what was done.
        size: voxels it was done to.
        seconds: of each run.
        plain: by name, the seconds of each run of a plainer way to the same result, taking turns.
    """

    name: str
    size: int
    seconds: tuple[float, ...]
    plain: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def ms(self) -> float:
        """The median of the runs, in milliseconds."""
        return 1e3 * max(median(self.seconds), _TICK)

    def plain_ms(self, way: str) -> float:
        """Return the median of a plainer way, in milliseconds."""
        return 1e3 * max(median(self.plain[way]), _TICK)

    def ratio(self, way: str) -> float:
        """Return how many times as long a plainer way takes."""
        return self.plain_ms(way) / self.ms


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Times pieces of work, which run in turns.

    A first run of less than a second only warms up.

    Attributes:
        repeats: most runs of a piece of work.
        device: where it runs.
        process: counts the time of the process, of all its threads together, and not the wall
            clock's: with one thread, what it takes on a machine that others use too.
        helpers: gives the seconds that processes it started have worked, which then count too.
        budget: seconds after which a piece of work is not repeated.
    """

    repeats: int
    device: torch.device
    process: bool = False
    helpers: Callable[[], float] = lambda: 0.0
    budget: float = 8.0

    def time(self, work: Mapping[_Key, Work]) -> dict[_Key, tuple[float, ...]]:
        """Return the seconds of each run of each piece of work."""
        seconds: dict[_Key, list[float]] = {key: [] for key in work}
        spent = dict.fromkeys(work, 0.0)
        now = self._worked if self.process else time.perf_counter
        for turn in range(self.repeats + 1):
            for key, run in work.items():
                if len(seconds[key]) == self.repeats or spent[key] > self.budget:
                    continue
                took = _seconds(run, self.device, now)
                spent[key] += took
                if turn > 0 or took > _WARM_UP:
                    seconds[key].append(took)
        return {key: tuple(runs) for key, runs in seconds.items()}

    def _worked(self) -> float:
        return time.process_time() + self.helpers()

    def compare(self, name: str, size: int, work: Work, **plain: Work) -> Measurement:
        """Measure work and plainer ways to the same result."""
        seconds = self.time({"": work, **plain})
        return Measurement(name=name, size=size, seconds=seconds.pop(""), plain=seconds)


def _seconds(run: Work, device: torch.device, now: Callable[[], float]) -> float:
    _wait(device)
    start = now()
    result = run()
    _wait(device)
    took = now() - start
    del result  # to free it is no part of the work
    return took


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
