"""Draw the picture of the README: scan, curve, windows, attention, labels.

python tools/draw_pipeline.py scan.laz model.pt -o docs/pictures
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import pctx
from pctx.data.prepare import Sample, prepare
from pctx.geometry.points import PointCloud
from pctx.geometry.serialization import serialize
from pctx.geometry.windows import serial_windows
from pctx.inference.attention_maps import attention_map
from pctx.inference.inside import list_layers
from pctx.inference.relevance import on_raw_points
from pctx.vis.attention import relevance_scene
from pctx.vis.fields import make_scene
from pctx.vis.render import draw_row
from pctx.vis.scene import Scene
from pctx.vis.structure import order_scene, window_scene

SIZE = (300, 330)  # of each of five figures
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
    few = draw_row(scenes, columns=5, size=SIZE).quantize(
        256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
    )
    few.save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


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
    titles = ("scan", "curve", "windows", "attention", "labels")
    return [
        replace(scene, title=f"{number}  {title}")
        for number, (title, scene) in enumerate(zip(titles, scenes, strict=True), start=1)
    ]


def _heard(cloud: PointCloud, sample: Sample, checkpoint: pctx.checkpoint.Checkpoint) -> Scene:
    """Show whom a tree listens to in the coarsest layer."""
    model = checkpoint.build()
    low, high = cloud.coord[:, :2].min(axis=0), cloud.coord[:, :2].max(axis=0)
    apart = np.linalg.norm(cloud.coord[:, :2] - (low + np.array(PLACE) * (high - low)), axis=1)
    query = int(np.argmax(np.where(apart < 1, cloud.coord[:, 2], -np.inf)))
    layer = max(list_layers(model), key=lambda layer: layer.level)
    heard = attention_map(model, sample.points, layer.number, None, int(sample.inverse[query]))
    values: torch.Tensor = on_raw_points(heard.point, sample)
    return relevance_scene(
        cloud, values, query=query, ends=("none", "heard most"), subject="one point listens"
    )


if __name__ == "__main__":
    main()
