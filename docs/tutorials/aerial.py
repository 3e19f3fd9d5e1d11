"""An aerial survey: train on LAZ tiles, score, label a tile, see where the model errs.

    python docs/tutorials/aerial.py FOLDER

FOLDER holds LAS or LAZ tiles with classes, and nothing else. The five tiles of 50 m that IGN
publishes with ign-pdal-tools (test/data/test_data_770*.laz), copied into a folder of their own,
will do: ten epochs take ten minutes on one core.
"""

# %% Where the tiles are, and where things go
import argparse
from pathlib import Path

import pctx
from pctx.cli.card import card
from pctx.cli.config import compose
from pctx.cli.train import fit

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", type=Path)
parser.add_argument("--out", type=Path, default=Path("runs/aerial"))
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--samples", type=int, default=60, help="crops an epoch")
options = parser.parse_args()
tiles = sorted(options.folder.glob("*.la[sz]"))

# %% Look at one tile: coordinates are metres from a float64 origin, so that centimetres survive
cloud = pctx.read(tiles[0])
print(f"{tiles[0].name}: {len(cloud):,} points around {cloud.origin}")
options.out.mkdir(parents=True, exist_ok=True)
pctx.render(cloud, None, options.out / "height.png", color="height", overwrite=True)

# %% Name the classes: a card is drafted from the files; have a look at it before a real run
names = options.out / "card.yaml"
card(options.folder, output=names, name="tiles", workers=0, overwrite=True)

# %% Train: the last tile is for validation, so that no neighbour of a point was learned from
config = compose(
    "train",
    [
        "name=aerial",
        "data=folder",
        f"data.root='{options.folder}'",
        f"data.card='{names}'",
        f"data.splits={{train: {[path.name for path in tiles[:-1]]}, val: ['{tiles[-1].name}']}}",
        "data.grid_size=0.4",
        "data.features.fields=[terrain_height,intensity,returns,shape]",
        "data.features.scales.intensity=1000",
        "augment=aerial",
        f"data.samples_per_epoch={options.samples}",
        "data.max_points=12000",
        f"trainer.max_epochs={options.epochs}",
    ],
)
scores = fit(config, options.out)
print(f"mIoU {scores.miou:.3f}, overall accuracy {scores.oa:.3f} at every point")

# %% Label the tile that was held back; the copy differs from its source in the class alone
truth = pctx.read(tiles[-1])
prediction = pctx.Predictor(options.out / "model.pt")(truth)
target = options.out / f"labelled{tiles[-1].suffix}"
pctx.write(target, truth, prediction=prediction, source=tiles[-1], overwrite=True)
assert len(pctx.read(target)) == len(truth)

# %% Look at it: what it says, and where it is wrong
pctx.render(truth, prediction, options.out / "prediction.png", overwrite=True)
pctx.render(truth, prediction, options.out / "error.png", color="error", overwrite=True)
print(f"pictures, model and labelled tile are in {options.out}")
