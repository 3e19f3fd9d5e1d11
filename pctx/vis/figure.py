"""Figures: a scene's picture with its title, legend and scale bar."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from pctx.vis import palette
from pctx.vis.camera import Camera, frame
from pctx.vis.palette import RGB
from pctx.vis.raster import LIGHT, rasterize
from pctx.vis.scene import ColorScale, LegendEntry, Scene

DARK: RGB = (24, 27, 33)
PAPER: RGB = (244, 245, 247)

SMALLEST_SIZE, LARGEST_SIZE = 64, 8192
"""Pixels along a side of a picture, at least and at most."""

_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass(frozen=True, kw_only=True)
class _Ink:
    """The sizes and colours of a figure's words.

    Attributes:
        em: text size in pixels.
    """

    em: int
    background: RGB

    @property
    def text(self) -> RGB:
        return (232, 234, 238) if self.dark else (28, 31, 38)

    @property
    def panel(self) -> RGB:
        r, g, b = self.background
        return (r + 8, g + 8, b + 9) if self.dark else (r - 9, g - 9, b - 8)

    @property
    def faint(self) -> RGB:
        return (150, 156, 166) if self.dark else (104, 110, 120)

    @property
    def dark(self) -> bool:
        return sum(self.background) < 3 * 128

    def font(self, scale: float = 1.0) -> _Font:
        return ImageFont.load_default(max(6, self.em * scale))


def draw(
    scene: Scene,
    *,
    size: tuple[int, int] = (1600, 1200),
    view: str = "auto",
    camera: Camera | None = None,
    background: RGB = DARK,
    light: float = LIGHT,
    strip: int | None = None,
    turn: float = 0.0,
) -> Image.Image:
    """Draw a scene with title, legend and scale bar.

    Args:
        scene: what to draw; may be empty.
        size: w, h of the whole figure in pixels.
        view: how a camera is chosen where none is given.
        camera: where from.
        background: behind the points and the words, which are dark on a light one.
        light: strength of the eye-dome lighting; 0 draws the plain colours.
        strip: put the legend under the picture, in columns, on a strip so many pixels high; None
            puts it at the right.
        turn: radians to go around the points from where the view begins.

    Raises:
        ValueError: the size is too small or too large, or `view` is unknown.
    """
    w, h = size
    if min(w, h) < SMALLEST_SIZE or max(w, h) > LARGEST_SIZE:
        raise ValueError(
            f"size must be {SMALLEST_SIZE} to {LARGEST_SIZE} pixels a side, found {w} x {h}"
        )
    ink = _ink(size, background)
    pad, head = ink.em, round(3.6 * ink.em)
    if strip is None:
        words = _side_legend(scene, round(0.4 * w), h - head - 2 * pad, ink)
        place = (w - words.width - pad, head + pad)
        hole = (w - (words.width + 2 * pad if words.width > 1 else 0), h - head)
    else:
        words = _legend(scene, w - 2 * pad, ink)
        place = (pad, h - strip + pad)
        hole = (w, h - head - strip)
    hole = (max(hole[0], 16), max(hole[1], 16))
    if camera is None:
        aspect = hole[0] / hole[1]
        camera = frame(scene.coord, view=view, aspect=aspect, sensor=-scene.shift)
    camera = camera.turned(turn) if turn else camera
    figure = Image.new("RGB", size, ink.panel)
    dots = rasterize(scene.coord, scene.color, camera, hole, background=background, light=light)
    figure.paste(Image.fromarray(dots), (0, head))
    figure.paste(words, place)
    pen = ImageDraw.Draw(figure)
    if scene.mark is not None:
        _ring(pen, scene.mark, camera, hole, head, ink)
    _head(pen, scene, w, ink)
    if len(scene) == 0:
        middle = (hole[0] / 2, head + hole[1] / 2)
        pen.text(middle, "no points", fill=ink.faint, font=ink.font(1.4), anchor="mm")
    elif len(scene) > 1:
        _scale_bar(pen, camera, hole, head, ink)
    return figure


def strip_height(scene: Scene, size: tuple[int, int]) -> int:
    """Give the pixels that the legend of a figure of size w, h takes below its picture."""
    ink = _ink(size, DARK)
    words = _legend(scene, size[0] - 2 * ink.em, ink)
    return words.height + 2 * ink.em if words.height > 1 else 0


def _ink(size: tuple[int, int], background: RGB) -> _Ink:
    em = 0.68 * math.sqrt(min(size[0] / 1.35, size[1]))
    return _Ink(em=max(9, round(em)), background=background)


def _head(pen: ImageDraw.ImageDraw, scene: Scene, w: int, ink: _Ink) -> None:
    pad = ink.em
    points = "1 point" if len(scene) == 1 else f"{len(scene):,} points"
    about = scene.subject if scene.title else ""
    below = "   ·   ".join(part for part in (points, about, scene.note) if part)
    top = scene.title or scene.subject or "point cloud"
    pen.text((pad, 0.7 * pad), _cut(top, w - 2 * pad, ink.font(1.25)), ink.text, ink.font(1.25))
    pen.text((pad, 2.3 * pad), _cut(below, w - 2 * pad, ink.font(0.9)), ink.faint, ink.font(0.9))


def _side_legend(scene: Scene, width: int, height: int, ink: _Ink) -> Image.Image:
    """Draw the legend in one column, with smaller words where there are many lines."""
    lines = max(1, len(scene.legend))
    ink = replace(ink, em=max(6, min(ink.em, int(height / lines / 1.5))))
    return _legend(scene, min(_legend_width(scene, ink), width), ink)


def _legend_width(scene: Scene, ink: _Ink) -> int:
    if scene.scale:
        return 12 * ink.em
    if not scene.legend:
        return 0
    font = ink.font()
    return math.ceil(max(_row_width(entry, font, ink) for entry in scene.legend))


def _row_width(entry: LegendEntry, font: _Font, ink: _Ink) -> float:
    return 1.5 * ink.em + font.getlength(entry.name) + ink.em + font.getlength("00.0 %")


def _legend(scene: Scene, width: int, ink: _Ink) -> Image.Image:
    """Draw the legend, in as many columns as the width holds; 1 x 1 where there is none."""
    if width <= 0 or (not scene.legend and not scene.scale):
        return Image.new("RGB", (1, 1), ink.panel)
    if scene.scale:
        return _ramp(scene.scale, min(width, 24 * ink.em), ink)
    font = ink.font()
    need = max(_row_width(entry, font, ink) for entry in scene.legend) + 2 * ink.em
    columns = max(1, min(len(scene.legend), int((width + 2 * ink.em) / need)))
    rows = -(-len(scene.legend) // columns)
    line, column = 1.5 * ink.em, (width + 2 * ink.em) / columns
    panel = Image.new("RGB", (width, math.ceil(rows * line)), ink.panel)
    pen = ImageDraw.Draw(panel)
    for i, entry in enumerate(scene.legend):
        left, middle = i // rows * column, (i % rows + 0.5) * line
        right = left + min(column - 2 * ink.em, need - 2 * ink.em)
        box = (left, middle - 0.45 * ink.em, left + 0.9 * ink.em, middle + 0.45 * ink.em)
        pen.rounded_rectangle(box, 0.2 * ink.em, fill=entry.color)
        share = _percent(entry.share)
        room = right - left - 2.2 * ink.em - font.getlength(share)
        name = _cut(entry.name, room, font)
        pen.text((left + 1.5 * ink.em, middle), name, ink.text, font, anchor="lm")
        pen.text((right, middle), share, ink.faint, font, anchor="rm")
    return panel


def _ramp(scale: ColorScale, width: int, ink: _Ink) -> Image.Image:
    """Draw a bar of colours with the values of its ends and middle, or the words at its ends."""
    panel = Image.new("RGB", (width, round(3.0 * ink.em)), ink.panel)
    bar = palette.ramp_colors(np.linspace(0, 1, width), scale.ramp)
    panel.paste(Image.fromarray(np.repeat(bar[None], round(0.9 * ink.em), axis=0)), (0, 0))
    pen = ImageDraw.Draw(panel)
    for x, anchor, word in _marks(scale):
        place = (x * (width - 1), 1.2 * ink.em)
        pen.text(place, word, ink.faint, ink.font(0.9), anchor=anchor)
    return panel


def _marks(scale: ColorScale) -> list[tuple[float, str, str]]:
    """Give what stands below a ramp: where, of its width, with which anchor, and the words."""
    if scale.ends is not None:
        return [(0, "la", scale.ends[0]), (1, "ra", scale.ends[1])]
    low, high = scale.low, scale.high
    unit = f" {scale.unit}" if scale.unit else ""
    middle = _number((low + high) / 2, high - low)
    if high <= low:
        return [(0.5, "ma", middle + unit)]
    first, last = _number(low, high - low), _number(high, high - low)
    return [(0, "la", first), (0.5, "ma", middle), (1, "ra", last + unit)]


def _ring(
    pen: ImageDraw.ImageDraw,
    mark: np.ndarray,
    camera: Camera,
    hole: tuple[int, int],
    top: int,
    ink: _Ink,
) -> None:
    """Draw a ring around a place, if it is in the picture."""
    right, up, depth = (float(part[0]) for part in camera.project(mark[None].astype(np.float32)))
    x, y = hole[0] / 2 + right * hole[1] / 2, hole[1] / 2 * (1 - up)
    if depth > 0 and 0 <= x < hole[0] and 0 <= y < hole[1]:
        for reach, color, line in ((0.8, DARK, 0.32), (0.7, PAPER, 0.16)):
            reach, width = reach * ink.em, max(2, round(line * ink.em))
            box = (x - reach, top + y - reach, x + reach, top + y + reach)
            pen.ellipse(box, outline=color, width=width)


def _scale_bar(
    pen: ImageDraw.ImageDraw, camera: Camera, hole: tuple[int, int], top: int, ink: _Ink
) -> None:
    """Draw a round length, true at the middle of the picture, at the lower left."""
    pixel = 2 * camera.tangent * camera.reach / hole[1]
    wanted = 0.16 * hole[0] * pixel
    if not 1e-9 < wanted < 1e9:
        return
    power = 10.0 ** math.floor(math.log10(wanted))
    length = next(step * power for step in (5, 2, 1) if step * power <= wanted * 1.0001)
    word = f"{length / 1000:g} km" if length >= 1000 else f"{length:g} m"
    font, line, tick = ink.font(0.9), max(1, ink.em // 10), 0.3 * ink.em
    left, bottom = ink.em, top + hole[1] - ink.em
    right, high = left + length / pixel, bottom - 1.7 * ink.em
    edge = max(right, left + font.getlength(word)) + 0.6 * ink.em
    box = (left - 0.6 * ink.em, high, edge, bottom + 0.6 * ink.em)
    pen.rounded_rectangle(box, 0.3 * ink.em, fill=ink.panel)
    pen.line((left, bottom, right, bottom), fill=ink.faint, width=line)
    for x in (left, right):
        pen.line((x, bottom - tick, x, bottom + tick), fill=ink.faint, width=line)
    pen.text((left, bottom - 0.5 * ink.em), word, ink.faint, font, anchor="lb")


def _percent(share: float) -> str:
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def _number(value: float, span: float) -> str:
    """Write a value so that a hundredth of the span still shows."""
    digits = 2 if span <= 0 else max(0, min(6, 2 - math.floor(math.log10(span)) - 1))
    return f"{value:,.{digits}f}"


def _cut(text: str, room: float, font: _Font) -> str:
    """Shorten a text to the room there is."""
    if font.getlength(text) <= room:
        return text
    while text and font.getlength(text + "…") > room:
        text = text[:-1]
    return text + "…"
