"""Stage: what the window shows, what keys and clicks change, and what is asked of the program.

It knows nothing of Open3D and imports nothing of pctx that is slow to load. n points.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pctx.vis.orbit import Orbit
from pctx.vis.panel import Contents, Line, Scale

Ask = Callable[[Mapping[str, object]], None]
"""Sends a request to the program behind the window; its answer comes to `Stage.receive`."""

CUT_STEP = 1 / 40
"""Of the cloud's height, by which one key press moves a cut."""

NEAR_ERROR = 0.12
"""Of the first view's distance: from where an error is looked at."""


@dataclass(kw_only=True, eq=False)
class Stage:
    """The state of a window.

    Attributes:
        ask: sends a request.
        told: what the program said of the layer on show: title, layers, legend and so on.
        coord: (n, 3) float32.
        color: (n, 3) uint8.
        entry: (n,) the legend line of each point; None without a legend.
        orbit: where one looks from.
        hidden: names in the legend that are not shown.
        low: share of the height from which on points are shown.
        high: share of the height up to which they are.
        size: of the points, over the one that suits their number.
        light: a light ground.
        words: what was last said of a point or a place.
        file: the number of the file on show.
        wanted: the layer that was last asked for, which may be on its way.
        picked: the point that was asked about, by its place in `coord`.
        changed: what has to be drawn again, of "points", "panel", "view".
    """

    ask: Ask
    told: Mapping[str, object] = field(default_factory=dict)
    coord: np.ndarray = field(default_factory=lambda: np.zeros((0, 3), np.float32))
    color: np.ndarray = field(default_factory=lambda: np.zeros((0, 3), np.uint8))
    entry: np.ndarray | None = None
    orbit: Orbit | None = None
    hidden: set[str] = field(default_factory=set)
    low: float = 0.0
    high: float = 1.0
    size: float = 1.0
    light: bool = False
    words: tuple[str, ...] = ()
    file: int = 0
    wanted: str | None = None
    picked: int | None = None
    depth: int | None = None
    head: int | None = None
    places: np.ndarray | None = None
    place: int = -1
    changed: set[str] = field(default_factory=set)

    def open(self, file: int, forward: bool = True) -> None:
        """Ask for a file, the first layer or the one on show; where it fails, for the next."""
        self.ask({"ask": "open", "file": file, "layer": self.wanted, "ahead": forward})

    def receive(self, told: Mapping[str, object], arrays: Mapping[str, np.ndarray]) -> None:
        """Take an answer: a layer, with the points where these are others, places or words."""
        if "places" in arrays:
            self.places, self.place = arrays["places"], -1
            self.next_error(1)
        if "color" in arrays:
            if "coord" in arrays:
                self._enter(told, arrays["coord"])
            self.told = told
            self.color, self.entry = arrays["color"], arrays.get("entry")
            self.changed |= {"points"}
        if "words" in told:
            self.words = tuple(str(line) for line in told["words"])  # type: ignore[attr-defined]
        self.changed |= {"panel", "view"}

    def _enter(self, told: Mapping[str, object], coord: np.ndarray) -> None:
        other = told["file"] != self.file or not len(self.coord)
        self.coord, self.file = coord, int(told["file"])  # type: ignore[call-overload]
        self.picked, self.places, self.place = None, None, -1
        if other:
            self.orbit, self.words = self.home(told), ()
            self.depth = self.head = None

    def home(self, told: Mapping[str, object]) -> Orbit:
        """Give the view that the program chose."""
        camera: Mapping[str, Any] = told["camera"]  # type: ignore[assignment]
        names = ("azimuth", "elevation", "reach", "tangent")
        numbers = {name: float(camera[name]) for name in names}
        return Orbit(target=np.array(camera["target"], np.float64), **numbers)

    @property
    def visible(self) -> np.ndarray:
        """(n,) bool: neither hidden in the legend nor cut off."""
        shown = np.ones(len(self.coord), dtype=bool)
        if self.entry is not None and self.hidden:
            gone = np.array([line["name"] in self.hidden for line in self._legend])
            shown &= ~gone[self.entry]
        if len(self.coord) and (self.low > 0 or self.high < 1):
            low, high = self._heights
            z = self.coord[:, 2]
            if self.low > 0:
                shown &= z >= low + self.low * (high - low)
            if self.high < 1:
                shown &= z <= low + self.high * (high - low)
        return shown

    @property
    def _legend(self) -> list[dict[str, object]]:
        return list(self.told.get("legend", ()))  # type: ignore[call-overload]

    @property
    def _layers(self) -> list[str]:
        return list(self.told.get("layers", ()))  # type: ignore[call-overload]

    @property
    def _heights(self) -> tuple[float, float]:
        low, high = np.percentile(self.coord[:: max(1, len(self.coord) // 100_000), 2], (0.5, 99.5))
        return float(low), float(high)

    # Keys and clicks

    def show_layer(self, number: int) -> None:
        """Ask for a layer by its number in the panel."""
        if 0 <= number < len(self._layers):
            self._ask_layer(self._layers[number])

    def next_layer(self, step: int) -> None:
        """Ask for the layer after or before the one on show."""
        if self._layers:
            last = str(self.told["layer"]) if self.wanted is None else self.wanted
            now = self._layers.index(last) if last in self._layers else 0
            self.show_layer((now + step) % len(self._layers))

    def next_file(self, step: int) -> None:
        """Ask for the file after or before the one on show."""
        files = int(self.told.get("files", 1))  # type: ignore[call-overload]
        if files > 1:
            self.open((self.file + step) % files, step > 0)

    def next_error(self, step: int) -> None:
        """Look at the next place of errors, the largest first."""
        if self.places is None:
            self.ask({"ask": "errors"})
            return
        if len(self.places) == 0 or self.orbit is None:
            return
        self.place = (self.place + step) % len(self.places)
        x, y, z, count = self.places[self.place].tolist()
        reach = self.home(self.told).reach * NEAR_ERROR
        self.orbit = self.orbit.look_at(np.array([x, y, z]), reach)
        self.words = (f"error {self.place + 1} of {len(self.places)}: {int(count):,} wrong points",)
        self.changed |= {"panel", "view"}

    def toggle(self, number: int, alone: bool = False) -> None:
        """Hide a line of the legend or show it again; or hide all others."""
        names = [str(line["name"]) for line in self._legend]
        if not 0 <= number < len(names):
            return
        name = names[number]
        if alone:
            others = set(names) - {name}
            self.hidden = set() if self.hidden == others else others
        else:
            self.hidden = self.hidden ^ {name}
        self.changed |= {"points", "panel"}

    def show_all(self) -> None:
        """Undo every hiding and cutting."""
        self.hidden, self.low, self.high = set(), 0.0, 1.0
        self.changed |= {"points", "panel"}

    def move_cut(self, steps: int, bottom: bool) -> None:
        """Move the upper or the lower cut by some steps."""
        if bottom:
            self.low = float(np.clip(self.low + steps * CUT_STEP, 0, self.high - CUT_STEP))
        else:
            self.high = float(np.clip(self.high + steps * CUT_STEP, self.low + CUT_STEP, 1))
        self.changed |= {"points", "panel"}

    def resize(self, factor: float) -> None:
        """Make the points so many times as large."""
        self.size = float(np.clip(self.size * factor, 0.2, 8))
        self.changed |= {"view"}

    def look_inside(self, depth: int = 0, head: int = 0) -> None:
        """Step through a model's layers and heads, where the layer on show has them."""
        inside = self.told.get("inside")
        if not isinstance(inside, Mapping):
            return
        depth_now = int(inside["depth"]) if self.depth is None else self.depth
        heads = int(inside["heads"])
        self.depth = (depth_now + depth) % max(int(inside["depths"]), 1)
        if depth:
            self.head = None
        if head:  # the mean of all comes before the first
            now = -1 if self.head is None else self.head
            after = (now + 1 + head) % (heads + 1) - 1
            self.head = None if after < 0 else after
        self._ask_layer(str(self.told["layer"]))

    def pick(self, x: float, y: float, w: int, h: int) -> None:
        """Ask about the point under a place in the window."""
        if self.orbit is None:
            return
        shown = np.flatnonzero(self.visible)
        found = self.orbit.pick(self.coord[shown], x, y, w, h)
        if found is not None:
            self.picked = int(shown[found])
            self.ask({"ask": "pick", "index": self.picked})
            if "inside" in self.told:
                self._ask_layer(str(self.told["layer"]))
            self.changed |= {"view"}

    def _ask_layer(self, name: str) -> None:
        self.wanted = name
        index, depth, head = self.picked, self.depth, self.head
        self.ask({"ask": "layer", "layer": name, "index": index, "depth": depth, "head": head})

    def contents(self) -> Contents:
        """Give what the panel says."""
        told = self.told
        files = int(told.get("files", 1))  # type: ignore[call-overload]
        about = [f"file {self.file + 1} of {files}"] if files > 1 else []
        about += [str(line) for line in told.get("about", ())]  # type: ignore[attr-defined]
        scale = told.get("scale")
        return Contents(
            title=str(told.get("title", "")),
            about=about,
            layers=self._layers,
            current=str(told.get("layer", "")),
            legend=[
                Line(**{**line, "shown": line["name"] not in self.hidden})  # type: ignore[arg-type]
                for line in self._legend
            ],
            scale=Scale(**scale) if isinstance(scale, dict) else None,
            words=self._cut_words + self.words,
            light=self.light,
        )

    @property
    def _cut_words(self) -> tuple[str, ...]:
        if not len(self.coord) or (self.low <= 0 and self.high >= 1):
            return ()
        low, high = self._heights
        base = float(self.told.get("height", 0.0))  # type: ignore[arg-type]
        ends = [base + low + share * (high - low) for share in (self.low, self.high)]
        return (f"heights {ends[0]:.2f} to {ends[1]:.2f} m",)


def as_line(request: Mapping[str, object]) -> str:
    """Write a request as a line of text."""
    return json.dumps(dict(request)) + "\n"
