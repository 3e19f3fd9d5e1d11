"""Draw the picture of the README: scan, curve, windows, attention, labels.

python tools/draw_pipeline.py scan.laz model.pt -o docs/pictures
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import pctx
from pctx.data.prepare import Sample, prepare
from pctx.geometry.points import PointCloud
from pctx.geometry.serialization import serialize
from pctx.geometry.windows import serial_windows
from pctx.inference.attention_maps import attention_map
from pctx.inference.inside import list_layers
from pctx.inference.relevance import on_raw_points
from pctx.vis.attention import relevance_scene
from pctx.vis.camera import frame
from pctx.vis.fields import make_scene
from pctx.vis.figure import DARK, PAPER
from pctx.vis.palette import ramp_colors
from pctx.vis.raster import rasterize
from pctx.vis.scene import Scene
from pctx.vis.structure import order_scene, window_scene

PICTURE = (384, 304)  # of each of five
GAP, EDGE = 30, 20  # between two and around all
RAMP = 10  # height of the colours below a picture
TITLE, WORDS = 40, 25  # sizes of letters, to be read at half the size
FAINT = (158, 164, 174)
PLACE = (0.155, 0.19)  # of the extent in x and y: the highest point there listens
WINDOW_SIZE = 1024
CURVE = "hilbert"


def main() -> None:
    """Write pipeline.png."""
    parser = argparse.ArgumentParser(description="Draw the picture of the README.")
    parser.add_argument("scan", type=Path, help="a tile of some 50 m")
    parser.add_argument("model", type=Path, help="a model file")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/pictures"), help="folder")
    arguments = parser.parse_args()
    scenes = follow(pctx.read(arguments.scan), pctx.load_checkpoint(arguments.model))
    path = arguments.out / "pipeline.png"
    few = draw_strip(scenes).quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def draw_strip(scenes: list[Scene]) -> Image.Image:
    """Draw the scenes from one place side by side, each with what it is; below, the classes."""
    wide, high = PICTURE
    top = EDGE + high + RAMP
    size = (5 * wide + 4 * GAP + 2 * EDGE, top + 196)
    sheet = Image.new("RGB", size, DARK)
    pen = ImageDraw.Draw(sheet)
    camera = frame(scenes[0].coord, aspect=wide / high)
    title, words = (ImageFont.load_default(em) for em in (TITLE, WORDS))
    for i, scene in enumerate(scenes):
        left = EDGE + i * (wide + GAP)
        dots = rasterize(scene.coord, scene.color, camera, PICTURE, background=DARK)
        sheet.paste(Image.fromarray(dots), (left, EDGE))
        if scene.scale is not None:
            colors = ramp_colors(np.linspace(0, 1, wide), scene.scale.ramp)
            sheet.paste(Image.fromarray(np.repeat(colors[None], RAMP, axis=0)), (left, EDGE + high))
        if scene.mark is not None:
            right, up, _ = (float(part[0]) for part in camera.project(scene.mark[None]))
            x, y = left + wide / 2 + right * high / 2, EDGE + high / 2 * (1 - up)
            for reach, color, thick in ((15, DARK, 7), (13, PAPER, 3)):
                pen.ellipse(
                    (x - reach, y - reach, x + reach, y + reach), outline=color, width=thick
                )
        if i:
            x, y = left - GAP / 2, EDGE + high / 2
            pen.line(((x - 5, y - 11), (x + 5, y), (x - 5, y + 11)), fill=FAINT, width=4)
        pen.text((left, top + 14), scene.title, PAPER, title)
        pen.text((left, top + 68), scene.subject, FAINT, words)
    x, y = float(EDGE), top + 148
    for line in scenes[-1].legend:
        pen.rounded_rectangle((x, y, x + 22, y + 22), 5, fill=line.color)
        pen.text((x + 34, y + 11), line.name, PAPER, words, anchor="lm")
        x += 34 + words.getlength(line.name) + 44
    return sheet


def follow(cloud: PointCloud, checkpoint: pctx.checkpoint.Checkpoint) -> list[Scene]:
    """Follow a scan through the five steps."""
    sample = prepare(cloud, grid_size=checkpoint.grid_size, features=checkpoint.features)
    points = sample.points
    order = serialize(points.grid_coord, points.offsets, (CURVE,)).order[0]
    windows = serial_windows(order, points.offsets, WINDOW_SIZE)
    scenes = (
        make_scene(cloud, color="height"),
        order_scene(cloud, sample, CURVE),
        window_scene(cloud, sample, windows),
        _heard(cloud, sample, checkpoint),
        make_scene(cloud, pctx.Predictor(checkpoint)(cloud), color="prediction"),
    )
    said = (
        ("scan", f"{len(cloud):,} points, by height"),
        ("curve", f"voxels along {CURVE.title()}'s curve"),
        ("windows", f"{windows.num_windows} of {WINDOW_SIZE:,} voxels each"),
        ("attention", "one point listens to others"),
        ("labels", "a class for every point"),
    )
    return [
        replace(scene, title=title, subject=subject)
        for (title, subject), scene in zip(said, scenes, strict=True)
    ]


def _heard(cloud: PointCloud, sample: Sample, checkpoint: pctx.checkpoint.Checkpoint) -> Scene:
    """Show whom a tree listens to in the coarsest layer."""
    model = checkpoint.build()
    low, high = cloud.coord[:, :2].min(axis=0), cloud.coord[:, :2].max(axis=0)
    apart = np.linalg.norm(cloud.coord[:, :2] - (low + np.array(PLACE) * (high - low)), axis=1)
    query = int(np.argmax(np.where(apart < 1, cloud.coord[:, 2], -np.inf)))
    layer = max(list_layers(model), key=lambda layer: layer.level)
    heard = attention_map(model, sample.points, layer.number, None, int(sample.inverse[query]))
    values = on_raw_points(heard.point, sample)
    return relevance_scene(cloud, values, query=query, ends=("none", "heard most"))


if __name__ == "__main__":
    main()
