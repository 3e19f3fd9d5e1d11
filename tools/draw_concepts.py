"""Draw the pictures of docs/concepts/serialization.md from a scan.

python tools/draw_concepts.py scan.laz -o docs/pictures
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

import pctx
from pctx.data.prepare import Sample
from pctx.geometry.curves import CURVES, decode
from pctx.geometry.points import PointCloud
from pctx.geometry.serialization import serialize
from pctx.geometry.windows import grid_windows, octree_windows, serial_windows
from pctx.vis.camera import Camera, frame
from pctx.vis.figure import DARK
from pctx.vis.palette import RGB, Ramp, ramp_colors
from pctx.vis.raster import rasterize
from pctx.vis.scene import Scene
from pctx.vis.structure import count_windows, order_scene, voxels_of, window_scene

WIDTH, GAP = 1600, 8
GRID_SIZE = 0.5  # metres
PLACE = (0.16, 0.06)  # of the extent in x and y: the highest point there is the one in the ring
TEXT: RGB = (232, 234, 238)
FAINT: RGB = (160, 166, 176)
PANEL: RGB = (32, 35, 42)
BRIGHT: RGB = (255, 240, 170)
MUTED: RGB = (66, 70, 78)
FINE = 3  # buffer pixels per pixel of a drawing


def main() -> None:
    """Write curves.png and windows.png."""
    parser = argparse.ArgumentParser(description="Draw the pictures of docs/concepts.")
    parser.add_argument("scan", type=Path, help="a tile of some 50 m")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/pictures"), help="folder")
    arguments = parser.parse_args()
    cloud = pctx.read(arguments.scan)
    sample = voxels_of(cloud, GRID_SIZE)
    for name, picture, colors in (
        ("curves.png", draw_curves(cloud, sample), 256),
        ("windows.png", draw_windows(cloud, sample), 72),
    ):
        path = arguments.out / name
        picture.quantize(colors, dither=Image.Dither.NONE).save(path, optimize=True)
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def draw_curves(cloud: PointCloud, sample: Sample) -> Image.Image:
    """Draw each curve through a cube of 4 x 4 x 4 voxels, and the scan in its order."""
    wide = (WIDTH - 3 * GAP) // 4
    scenes = [order_scene(cloud, sample, curve) for curve in CURVES]
    camera = _frame(scenes[0].coord, wide / 330)
    panels = []
    for curve, scene in zip(CURVES, scenes, strict=True):
        cells = decode(torch.arange(64), 2, curve).numpy()
        panel = Image.new("RGB", (wide, 380 + 330), DARK)
        panel.paste(_cube(cells, (wide, 380)), (0, 0))
        panel.paste(_points(scene, camera, (wide, 330)), (0, 380))
        panels.append(_titled(panel, curve, _steps(cells)))
    sheet, pen, y = _with_foot(_grid(panels, 4))
    bar = ramp_colors(np.linspace(0, 1, 420), Ramp.ORDER)
    sheet.paste(Image.fromarray(np.repeat(bar[None], 22, axis=0)), (200, y - 11))
    pen.text((188, y), "start of the curve", TEXT, _font(20), anchor="rm")
    pen.text((632, y), "end", TEXT, _font(20), anchor="lm")
    pen.line((760, y, 820, y), TEXT, width=3)
    pen.text((832, y), "a jump: the voxels do not share a face", TEXT, _font(20), anchor="lm")
    return sheet


def draw_windows(cloud: PointCloud, sample: Sample) -> Image.Image:
    """Draw partitions of the scan, in each of them one window bright: that of one point."""
    points, offsets = sample.points, sample.points.offsets
    hilbert, other, z = serialize(
        points.grid_coord, offsets, ("hilbert", "hilbert-trans", "z")
    ).order
    grid_coord = points.grid_coord
    cuts = (
        ("serial", serial_windows(hilbert, offsets, 1024)),
        ("serial, shifted by 512 points", serial_windows(hilbert, offsets, 1024, shift=512)),
        ("serial, along another curve", serial_windows(other, offsets, 1024)),
        ("octree, dilation 4", octree_windows(z, offsets, 256, dilation=4)),
        ("grid, cubes of 20 voxels", grid_windows(grid_coord, offsets, 20)),
        ("grid, shifted by 10 voxels", grid_windows(grid_coord, offsets, 20, shift=10)),
    )
    size = (WIDTH - 2 * GAP) // 3, 420
    scenes = [window_scene(cloud, sample, windows) for _, windows in cuts]
    camera = _frame(scenes[0].coord, size[0] / size[1])
    marked = _highest(scenes[0].coord)
    panels = []
    for (title, windows), scene in zip(cuts, scenes, strict=True):
        owner = (windows.slot // windows.window_size).numpy()[sample.inverse.numpy()]
        shown = np.where(
            (owner == owner[marked])[:, None],
            np.array(BRIGHT),
            0.38 * scene.color + 0.62 * np.array(MUTED),
        )
        picture = rasterize(scene.coord, shown.astype(np.uint8), camera, size, background=DARK)
        panel = Image.fromarray(picture)
        right, up, _ = (float(part[0]) for part in camera.project(scene.coord[marked][None]))
        middle = size[0] / 2 + right * size[1] / 2, size[1] / 2 * (1 - up)
        _ring(ImageDraw.Draw(panel), middle)
        panels.append(_titled(panel, title, count_windows(windows)))
    sheet, pen, y = _with_foot(_grid(panels, 3))
    _ring(pen, (32, y))
    pen.text((58, y), "one point", TEXT, _font(20), anchor="lm")
    pen.rectangle((180, y - 11, 224, y + 11), BRIGHT)
    words = "the window that owns it; the other colours tell the other windows apart"
    pen.text((236, y), words, TEXT, _font(20), anchor="lm")
    return sheet


def _cube(cells: np.ndarray, size: tuple[int, int]) -> Image.Image:
    """Draw the line from voxel to voxel: thick where it crosses a face, thin where it jumps."""
    w, h = size[0] * FINE, size[1] * FINE
    turn = _view(azimuth=62, elevation=24)
    place = (cells - cells.mean(axis=0)) @ turn.T  # right, up, away
    unit = 0.86 * min(size / np.ptp(place[:, axis]) for axis, size in ((0, w), (1, h)))
    dots = np.stack([w / 2 + unit * place[:, 0], h / 2 - unit * place[:, 1]], axis=1)
    away = (place[1:, 2] + place[:-1, 2]) / 2
    near = 1 - (away - away.min()) / np.ptp(away)
    color = ramp_colors(np.linspace(0, 1, len(away)), Ramp.ORDER)
    jump = np.abs(np.diff(cells, axis=0)).sum(axis=1) > 1
    picture = Image.new("RGB", (w, h), DARK)
    pen = ImageDraw.Draw(picture)
    for i in np.argsort(-away).tolist():
        ends = [tuple(dots[i]), tuple(dots[i + 1])]
        if jump[i]:
            pen.line(ends, _faded(TEXT, near[i]), width=round(0.045 * unit))
            continue
        width = unit * (0.12 + 0.06 * near[i])
        pen.line(ends, DARK, width=round(1.9 * width))
        pen.line(ends, _faded(color[i], near[i]), width=round(width))
        for x, y in ends:
            reach = 0.75 * width
            pen.ellipse((x - reach, y - reach, x + reach, y + reach), _faded(color[i], near[i]))
    _axes(pen, turn, 0.5 * unit, (0.11 * w, 0.92 * h))
    return picture.resize(size, Image.Resampling.LANCZOS)


def _axes(
    pen: ImageDraw.ImageDraw, turn: np.ndarray, length: float, start: tuple[float, float]
) -> None:
    for name, axis in zip("xyz", turn.T, strict=True):
        x, y = start[0] + length * axis[0], start[1] - length * axis[1]
        pen.line((*start, x, y), FAINT, width=2 * FINE)
        end = start[0] + 1.4 * length * axis[0], start[1] - 1.4 * length * axis[1]
        pen.text(end, name, FAINT, _font(18 * FINE), anchor="mm")


def _steps(cells: np.ndarray) -> str:
    """Say how the curve goes from one voxel to the next."""
    steps = np.linalg.norm(np.diff(cells, axis=0), axis=1)
    jumps = int((steps > 1).sum())
    if jumps == 0:
        return "every step crosses a face"
    return f"{jumps} of {len(steps)} steps jump, up to {steps.max():.1f} voxels"


def _frame(coord: np.ndarray, aspect: float) -> Camera:
    """Look at the scan from a little farther off than usual: nothing is cut by the edges."""
    near = frame(coord, view="oblique", aspect=aspect)
    reach = 1.05 * near.reach
    return replace(near, eye=near.target - reach * near.axes[2], reach=reach)


def _points(scene: Scene, camera: Camera, size: tuple[int, int]) -> Image.Image:
    return Image.fromarray(rasterize(scene.coord, scene.color, camera, size, background=DARK))


def _highest(coord: np.ndarray) -> int:
    """Find the highest point within a metre of `PLACE`, which nothing hides."""
    low, high = coord[:, :2].min(axis=0), coord[:, :2].max(axis=0)
    apart = np.linalg.norm(coord[:, :2] - (low + np.array(PLACE) * (high - low)), axis=1)
    return int(np.argmax(np.where(apart < 1, coord[:, 2], -np.inf)))


def _ring(pen: ImageDraw.ImageDraw, middle: tuple[float, float]) -> None:
    x, y = middle
    for reach, color, width in ((17, DARK, 11), (14, (255, 255, 255), 5)):
        pen.ellipse((x - reach, y - reach, x + reach, y + reach), outline=color, width=width)


def _titled(picture: Image.Image, title: str, words: str) -> Image.Image:
    panel = Image.new("RGB", (picture.width, picture.height + 76), PANEL)
    panel.paste(picture, (0, 76))
    pen = ImageDraw.Draw(panel)
    pen.text((14, 10), title, TEXT, _font(27))
    pen.text((14, 44), words, FAINT, _font(20))
    return panel


def _grid(panels: Sequence[Image.Image], columns: int) -> Image.Image:
    wide, high = panels[0].width + GAP, panels[0].height + GAP
    rows = -(-len(panels) // columns)
    sheet = Image.new("RGB", (columns * wide - GAP, rows * high - GAP), (0, 0, 0))
    for i, panel in enumerate(panels):
        sheet.paste(panel, (i % columns * wide, i // columns * high))
    return sheet


def _with_foot(sheet: Image.Image) -> tuple[Image.Image, ImageDraw.ImageDraw, int]:
    """Add a strip below; give the whole, its pen and the height of the strip's middle."""
    whole = Image.new("RGB", (sheet.width, sheet.height + 52), PANEL)
    whole.paste(sheet, (0, 0))
    return whole, ImageDraw.Draw(whole), sheet.height + 26


def _view(azimuth: float, elevation: float) -> np.ndarray:
    """Give the axes right, up and away of a view, from angles in degrees."""
    a, e = np.radians(azimuth), np.radians(elevation)
    away = np.array([np.cos(a) * np.cos(e), np.sin(a) * np.cos(e), -np.sin(e)])
    right = np.array([np.sin(a), -np.cos(a), 0.0])
    return np.stack([right, np.cross(right, away), away])


def _faded(color: Sequence[int] | np.ndarray, near: float) -> RGB:
    """Darken a colour towards the background the farther it is; `near` is 1 for the nearest."""
    share = 0.55 + 0.45 * near
    r, g, b = (share * np.array(color) + (1 - share) * np.array(DARK)).astype(int).tolist()
    return r, g, b


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


if __name__ == "__main__":
    main()
