"""A user's script is typed throughout: `./run check` holds it to this file, by mypy."""

from pathlib import Path

import numpy as np
from torch import Tensor
from typing_extensions import assert_type

import pctx
from pctx.geometry.hierarchy import Hierarchy
from pctx.models.segmentor import Segmentor


def test_the_package_says_that_it_is_typed():
    assert Path(pctx.__file__).with_name("py.typed").is_file()


def a_script_of_a_user(path: Path) -> None:
    """Checked, never run."""
    cloud = pctx.read(path)
    assert_type(cloud, pctx.PointCloud)
    prediction = pctx.Predictor("model.pt")(cloud)
    assert_type(prediction, pctx.Prediction)
    assert_type(prediction.probability, np.ndarray | None)
    pctx.write("out.laz", cloud, prediction=prediction, source=path)

    spec = pctx.FeatureSpec(fields=("height",))
    batch = pctx.pack([pctx.voxelize(cloud, 0.5, features=spec)])
    assert_type(batch, pctx.PointBatch)
    model = pctx.create_model("ptv3_tiny", in_channels=1, num_classes=3)
    assert_type(model, Segmentor)
    plan = model.backbone.plan(batch)
    assert_type(plan, Hierarchy)
    assert_type(model(batch, plan), Tensor)
    assert_type(model.backbone(batch.feat, plan), Tensor)
    backbone = pctx.create_backbone("ptv3_tiny", in_channels=1, encoder_only=True)
    assert_type(pctx.Classifier(backbone, num_classes=3)(batch), Tensor)
    assert_type(pctx.load_checkpoint(path).build(), Segmentor)
