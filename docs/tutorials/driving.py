"""A driving scan: train on SemanticKITTI, or on simulated streets where it is not at hand.

python docs/tutorials/driving.py                   # simulated: some minutes on two cores
python docs/tutorials/driving.py /data/kitti       # the folder of `sequences`
"""

# %% Which scans: the folder of a dataset, or none
import argparse
from pathlib import Path

import numpy as np

import pctx
from pctx.cli.config import compose
from pctx.cli.train import fit
from pctx.data.simulator import simulate
from pctx.data.transforms import Rotate

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", type=Path, nargs="?")
parser.add_argument("--scan", type=Path, help="a .bin to be labelled; by default a simulated one")
parser.add_argument("--out", type=Path, default=Path("runs/driving"))
parser.add_argument("--streets", type=int, default=80, help="simulated scans to train on")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--samples", type=int, default=400, help="scans an epoch")
options = parser.parse_args()

# %% The two ways differ in the data alone
if options.folder is None:
    source = ["data=street", f"data.dataset.num_train={options.streets}", "data.dataset.num_val=1"]
else:
    source = ["data=semantic_kitti", f"data.root='{options.folder}'", "data.num_workers=0"]
config = compose(
    "train",
    [
        "name=driving",
        *source,
        "data.grid_size=0.2",
        "data.features.fields=[height,intensity,range,shape]",
        f"data.samples_per_epoch={options.samples}",
        "data.max_points=10000",
        f"trainer.max_epochs={options.epochs}",
    ],
)
scores = fit(config, options.out)
print(f"mIoU {scores.miou:.3f}")

# %% Label a scan that the model has not seen
if options.scan is not None:
    cloud = pctx.read(options.scan)
else:
    cloud = simulate(np.random.default_rng(2026), "hdl64")
predictor = pctx.Predictor(options.out / "model.pt")
prediction = predictor(cloud)
pctx.write(options.out / "labelled.label", cloud, prediction=prediction, overwrite=True)
pctx.render(cloud, prediction, options.out / "prediction.png", overwrite=True)

# %% Is it sure of itself? A turned scan should get the same labels: where not, do not trust it
turned = Rotate(angle=np.pi)(cloud, np.random.default_rng(0))
same = predictor(turned).label == prediction.label
print(f"{same.mean():.1%} of the points keep their class when the scan is turned")
print(f"mean entropy where they do {prediction.entropy[same].mean():.2f}, "
      f"where not {prediction.entropy[~same].mean() if (~same).any() else 0:.2f}")  # fmt: skip
