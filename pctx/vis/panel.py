"""The panel beside the window: file, layers, legend, what was said of a point, keys.

It imports nothing of pctx, so that the window starts fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from PIL import Image, ImageDraw, ImageFont

RGB = tuple[int, int, int]

KEYS = (
    ("1 … 9, Tab", "layer"),
    ("N, P", "next, previous file"),
    ("E, Shift+E", "next, previous error"),
    ("Shift+click", "what is this point?"),
    ("PgDn, PgUp", "cut off the top (Shift: the bottom)"),
    ("A", "show everything"),
    ("+, -, B, R", "point size, background, view"),
    (", . ; '", "attention: layer, head"),
    ("H, Q", "print the keys, close"),
)
"""What the keys do; a click on a line of the legend hides it, with Shift it hides the others."""

_LINE = 19  # pixels
_SMALLEST_LINE = 11
_PAD = 12
_MAX_WORDS = 26  # lines of what is said of a point


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of the legend."""

    number: int | None
    name: str
    color: RGB
    points: int
    share: float
    shown: bool = True


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A ramp of colours and the words at its ends."""

    stops: Sequence[RGB]
    low: str
    high: str


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a panel says.

    Attributes:
        title: the file.
        about: lines below it: its place among the files, its points, notes.
        layers: by name; those beyond the ninth have no key.
        current: the one that is shown.
        legend: of classes or ids.
        scale: of values.
        words: of a point, an error or the cut.
        light: dark words on a light ground.
    """

    title: str = ""
    about: Sequence[str] = ()
    layers: Sequence[str] = ()
    current: str = ""
    legend: Sequence[Line] = ()
    scale: Scale | None = None
    words: Sequence[str] = ()
    light: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Panel:
    """A drawn panel.

    Attributes:
        picture: (h, w, 3) uint8.
        spots: what is at which heights: (top, bottom, "layer" or "legend", number).
    """

    picture: np.ndarray
    spots: Sequence[tuple[int, int, str, int]] = field(default_factory=tuple)

    def at(self, y: float) -> tuple[str, int] | None:
        """Tell what was clicked on."""
        for top, bottom, kind, number in self.spots:
            if top <= y < bottom:
                return kind, number
        return None


def draw_panel(contents: Contents, w: int, h: int) -> Panel:
    """Draw what a panel says on w x h pixels; a legend that is too long has smaller lines."""
    return _Drawing(contents, w, h).panel()


class _Drawing:
    """A picture in the making, from the top down."""

    def __init__(self, contents: Contents, w: int, h: int) -> None:
        self.contents, self.w, self.h = contents, w, h
        ground, self.ink, self.faint, self.glow = (
            ((235, 236, 239), (28, 31, 38), (104, 110, 120), (200, 214, 246))
            if contents.light
            else ((32, 35, 42), (232, 234, 238), (150, 156, 166), (58, 82, 132))
        )
        self.image = Image.new("RGB", (w, h), ground)
        self.pen = ImageDraw.Draw(self.image)
        self.spots: list[tuple[int, int, str, int]] = []
        self.y = _PAD

    def panel(self) -> Panel:
        said = self.contents
        self._text(said.title or "point cloud", self.ink, 17, 24)
        for line in said.about:
            self._text(line, self.faint, 12, 16)
        self.y += 8
        for i, name in enumerate(said.layers):
            self._layer(i, name)
        self.y += 8
        foot = len(KEYS) * 15 + _PAD
        words = _wrapped(said.words, self._font(12), self.w - 2 * _PAD)[:_MAX_WORDS]
        self._legend(self.h - self.y - foot - (16 * len(words) + 16 if words else 0))
        if said.scale:
            self._ramp(said.scale)
        self.y += 8
        for line in words:
            self._text(line, self.ink, 12, 16)
        self.y = max(self.y, self.h - foot)
        for key, what in KEYS:
            self._at(_PAD, key, self.faint, 11)
            self._at(_PAD + 92, what, self.faint, 11)
            self.y += 15
        return Panel(picture=np.asarray(self.image), spots=tuple(self.spots))

    def _layer(self, i: int, name: str) -> None:
        if name == self.contents.current:
            box = (_PAD - 5, self.y - 1, self.w - _PAD + 5, self.y + _LINE - 2)
            self.pen.rounded_rectangle(box, 4, fill=self.glow)
        key = str(i + 1) if i < 9 else ""
        self._at(_PAD, key, self.faint, 13)
        self._at(_PAD + 18, name, self.ink, 13)
        self.spots.append((self.y - 1, self.y + _LINE - 1, "layer", i))
        self.y += _LINE

    def _legend(self, room: int) -> None:
        lines = self.contents.legend
        if not lines:
            return
        height = max(_SMALLEST_LINE, min(_LINE, room // max(len(lines), 1)))
        fit = max(1, room // height)
        cut = len(lines) > fit
        size = max(8, round(13 * height / _LINE))
        for i, line in enumerate(lines[: fit - 1 if cut else fit]):
            self._entry(i, line, height, size)
        if cut:
            self._text(f"and {len(lines) - fit + 1} more", self.faint, size, height)

    def _entry(self, i: int, line: Line, height: int, size: int) -> None:
        ink = self.ink if line.shown else self.faint
        box = (_PAD, self.y + 2, _PAD + height - 6, self.y + height - 4)
        color = tuple(line.color)  # a list where it came as JSON
        if line.shown:
            self.pen.rectangle(box, fill=color, outline=self.faint)
        else:
            self.pen.rectangle(box, outline=color)
        font = self._font(size)
        tail = f"{line.points:,}  {_percent(line.share)}"
        end = self.w - _PAD
        self.pen.text((end, self.y), tail, self.faint, font, anchor="ra")
        number = "" if line.number is None else f"{line.number} "
        room = end - font.getlength(tail) - 2 * _PAD - height
        name = _cut(number + line.name, font, room)
        left = _PAD + height
        self.pen.text((left, self.y), name, ink, font)
        if not line.shown:
            middle = self.y + size * 0.62
            self.pen.line((left, middle, left + font.getlength(name), middle), fill=ink)
        self.spots.append((self.y, self.y + height, "legend", i))
        self.y += height

    def _ramp(self, scale: Scale) -> None:
        width = self.w - 2 * _PAD
        stops = np.array(scale.stops, np.float64)
        place = np.linspace(0, len(stops) - 1, width)
        bar = np.stack(
            [np.interp(place, np.arange(len(stops)), stops[:, i]) for i in range(3)], axis=1
        )
        strip = np.repeat(bar.round().astype(np.uint8)[None], 12, axis=0)
        self.image.paste(Image.fromarray(strip), (_PAD, self.y))
        self.y += 15
        self._at(_PAD, scale.low, self.faint, 12)
        end = (self.w - _PAD, self.y)
        self.pen.text(end, scale.high, self.faint, self._font(12), anchor="ra")
        self.y += 18

    def _text(self, text: str, ink: RGB, size: int, height: int) -> None:
        self._at(_PAD, text, ink, size)
        self.y += height

    def _at(self, x: int, text: str, ink: RGB, size: int) -> None:
        font = self._font(size)
        self.pen.text((x, self.y), _cut(text, font, self.w - _PAD - x), ink, font)

    def _font(self, size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
        return ImageFont.load_default(size)


def _percent(share: float) -> str:
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def _cut(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, room: float) -> str:
    if font.getlength(text) <= room:
        return text
    while text and font.getlength(text + "…") > room:
        text = text[:-1]
    return text + "…"


def _wrapped(
    lines: Sequence[str], font: ImageFont.FreeTypeFont | ImageFont.ImageFont, room: float
) -> list[str]:
    done: list[str] = []
    for line in lines:
        row = ""
        for word in line.split(" "):
            if row and font.getlength(f"{row} {word}") > room:
                done.append(row)
                row = "  " + word
            else:
                row = f"{row} {word}" if row else word
        done.append(row)
    return done
