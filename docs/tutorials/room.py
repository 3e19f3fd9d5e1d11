"""A room: coloured points from files of your own, here furnished by this script; then look inside.

python docs/tutorials/room.py                  # made rooms: some minutes on two cores
python docs/tutorials/room.py FOLDER CARD      # labelled scans of yours, and their card
"""

# %% Which rooms
import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np
import yaml

import pctx
from pctx.cli.config import compose
from pctx.cli.train import fit
from pctx.data.prepare import prepare
from pctx.inference.attention_maps import attention_map
from pctx.inference.inside import describe_layers, list_layers

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", type=Path, nargs="?")
parser.add_argument("card", nargs="?")
parser.add_argument("--out", type=Path, default=Path("runs/room"))
parser.add_argument("--grid", type=float, default=0.05, help="metres")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--samples", type=int, default=60, help="crops an epoch")
options = parser.parse_args()

# %% Without files, rooms of boxes: a class has a colour, with noise, and a place
CLASSES = {
    "floor": (120, 90, 60),
    "wall": (220, 215, 200),
    "table": (150, 100, 50),
    "chair": (60, 80, 160),
}


def furnish(rng: np.random.Generator, points: int = 20_000) -> pctx.PointCloud:
    """Scatter points on the faces of a floor, four walls, a table and four chairs."""
    wide, deep = rng.uniform(3, 6, 2)
    boxes = [(0, (0, 0, 0), (wide, deep, 0.01))]
    corners = [(0, 0), (0, deep), (wide, deep), (wide, 0), (0, 0)]
    for one, other in pairwise(corners):
        boxes.append((1, (*np.minimum(one, other), 0), (*np.maximum(one, other), 2.5)))
    x, y = rng.uniform(1, wide - 1.5), rng.uniform(1, deep - 1.5)
    boxes.append((2, (x, y, 0.72), (x + 1.2, y + 0.8, 0.76)))
    for dx, dy in ((-0.5, 0.2), (1.3, 0.2), (0.4, -0.5), (0.4, 0.9)):
        boxes.append((3, (x + dx, y + dy, 0.44), (x + dx + 0.4, y + dy + 0.4, 0.48)))
        boxes.append((3, (x + dx, y + dy, 0.48), (x + dx + 0.4, y + dy + 0.04, 0.95)))
    size = np.array([np.prod(np.maximum(np.subtract(high, low), 0.1)) for _, low, high in boxes])
    size = size ** (1 / 2) / (size ** (1 / 2)).sum()
    which = rng.choice(len(boxes), points, p=size)
    low, high = (np.array([box[side] for box in boxes])[which] for side in (1, 2))
    label = np.array([box[0] for box in boxes])[which]
    xyz = rng.uniform(low, high) + rng.normal(0, 0.005, (points, 3))
    color = np.array(list(CLASSES.values()))[label] + rng.normal(0, 25, (points, 3))
    return pctx.PointCloud.from_xyz(xyz, color=color.clip(0, 255).astype(np.uint8), label=label)


options.out.mkdir(parents=True, exist_ok=True)
if options.folder is None:
    options.folder = options.out / "rooms"
    rng = np.random.default_rng(0)
    for split, count in (("train", 8), ("val", 2)):
        for number in range(count):
            target = options.folder / split / f"room_{number}.ply"
            pctx.write(target, furnish(rng), overwrite=True)
    options.card = options.out / "card.yaml"
    rows = [{"name": n, "color": list(c), "raw": [i]} for i, (n, c) in enumerate(CLASSES.items())]
    options.card.write_text(yaml.safe_dump({"name": "rooms", "classes": rows, "unlabeled": 255}))

# %% Train: colours and heights, the augmentation of rooms without its colour drop
config = compose(
    "train",
    [
        "name=room",
        "data=folder",
        f"data.root='{options.folder}'",
        f"data.card='{options.card}'",
        f"data.grid_size={options.grid}",
        "data.features.fields=[height,color,shape]",
        "augment=indoor",
        f"data.samples_per_epoch={options.samples}",
        "data.max_points=8000",
        f"trainer.max_epochs={options.epochs}",
    ],
)
scores = fit(config, options.out)
print(f"mIoU {scores.miou:.3f}")

# %% Whom does a point listen to?
checkpoint = pctx.load_checkpoint(options.out / "model.pt")
room = next(path for path in sorted(options.folder.rglob("*")) if path.suffix in (".ply", ".pcd"))
cloud = pctx.read(room)
sample = prepare(cloud, grid_size=checkpoint.grid_size, features=checkpoint.features)
model = checkpoint.build()
print(describe_layers(list_layers(model)))
heard = attention_map(model, sample.points, layer=0, head=None, query=0)
far = (sample.points.coord[heard.index] - sample.points.coord[0]).norm(dim=1)
mean = float((heard.weight * far).sum())
print(f"layer 0 hears {len(heard.index)} voxels, at {mean:.2f} m in the mean")

# %% Label it, and look
prediction = pctx.Predictor(checkpoint)(cloud)
pctx.render(cloud, prediction, options.out / "prediction.png", overwrite=True)
print(f"pictures and model are in {options.out}")
