"""Draw the picture of docs/concepts/attention.md from a scan and a model.

python tools/draw_attention.py scan.laz model.pt -o docs/pictures
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import pctx
from pctx.data.prepare import prepare
from pctx.geometry.points import PointCloud
from pctx.inference.attention_maps import attention_map, attention_rollout
from pctx.inference.class_maps import class_map, grad_cam
from pctx.inference.inside import Layer, find_layer, list_layers
from pctx.inference.relevance import on_raw_points
from pctx.vis.attention import relevance_scene
from pctx.vis.fields import make_scene
from pctx.vis.render import draw_row
from pctx.vis.scene import Scene

SIZE = (530, 480)  # of each of six figures
PLACE = (0.155, 0.19)  # of the extent in x and y: the highest point there asks


def main() -> None:
    """Write attention.png."""
    parser = argparse.ArgumentParser(description="Draw the picture of docs/concepts/attention.md.")
    parser.add_argument("scan", type=Path, help="a tile of some 50 m")
    parser.add_argument("model", type=Path, help="a model file")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/pictures"), help="folder")
    arguments = parser.parse_args()
    scenes = look(pctx.read(arguments.scan), pctx.load_checkpoint(arguments.model))
    path = arguments.out / "attention.png"
    picture = draw_row(scenes, columns=3, size=SIZE)
    # An octree keeps the rare colours of a legend.
    few = picture.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def look(cloud: PointCloud, checkpoint: pctx.checkpoint.Checkpoint) -> list[Scene]:
    """Ask one point in a fine and in a coarse layer and in all; and ask for a class."""
    model = checkpoint.build()
    sample = prepare(cloud, grid_size=checkpoint.grid_size, features=checkpoint.features)
    prediction = pctx.Predictor(checkpoint)(cloud)
    query = highest(cloud)
    voxel = int(sample.inverse[query])
    layers = list_layers(model)
    fine = find_layer(layers, 0)
    coarse = max(layers, key=lambda layer: layer.level)
    number = int(prediction.label.max())  # the last class that is there
    name = checkpoint.labels.names[number]

    def scene(
        title: str, values: torch.Tensor, words: str, *, subject: str = "", ring: bool = True
    ) -> Scene:
        return relevance_scene(
            cloud,
            on_raw_points(values, sample),
            query=query if ring else None,
            ends=("none", words),
            title=title,
            subject=subject,
        )

    def attention(layer: Layer) -> Scene:
        found = attention_map(model, sample.points, layer.number, None, voxel)
        title = f"attention, layer {layer.number}, level {layer.level}"
        return scene(
            title, found.point, "heard most", subject=f"{len(found.index)} voxels are heard"
        )

    rollout = attention_rollout(model, sample.points, voxel)
    favour = class_map(model, sample.points, number)
    features = grad_cam(model, sample.points, number, layer=coarse.number)
    most = f"most for {name}"
    shown = [
        attention(fine),
        attention(coarse),
        scene("rollout through all layers", rollout, "largest share"),
        scene(f"heard in favour of {name}", favour, most, ring=False),
        scene(f"Grad-CAM of {name}, level {coarse.level}", features, most, ring=False),
    ]
    labels = make_scene(cloud, prediction, color="prediction", title="prediction; one point asks")
    return [replace(labels, mark=shown[0].mark), *shown]


def highest(cloud: PointCloud) -> int:
    """Find the highest point within a metre of `PLACE`."""
    low, high = cloud.coord[:, :2].min(axis=0), cloud.coord[:, :2].max(axis=0)
    apart = np.linalg.norm(cloud.coord[:, :2] - (low + np.array(PLACE) * (high - low)), axis=1)
    return int(np.argmax(np.where(apart < 1, cloud.coord[:, 2], -np.inf)))


if __name__ == "__main__":
    main()
