"""Clouds that nobody wants and everybody has: all models take them, forward and backward."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pctx.data.features import FeatureSpec
from pctx.data.prepare import voxelize
from pctx.geometry.points import PointCloud, pack
from pctx.models.factory import create_model, list_models

GRID_SIZE = 0.02
FEATURES = FeatureSpec(fields=("height", "intensity"))
TINY = [name for name in list_models() if name.endswith("_tiny")]
TAKES_DUPLICATES = ("octformer", "ptv1", "ptv2")


def line(n, axis):
    return np.eye(3)[axis] * np.arange(n)[:, None] * GRID_SIZE


rng = np.random.default_rng(0)
CLOUDS = {
    "no point": np.zeros((0, 3)),
    "one point": np.full((1, 3), 5.0),
    "two points": np.array([[0, 0, 0], [0.1, 0, 0]]),
    "equal points": np.full((50, 3), 7.0),
    "a line": line(200, 0) + 0.01,
    "a pole": line(100, 2) + 0.01,
    "a diagonal": sum(line(100, axis) for axis in range(3)) + 0.01,
    "one voxel": rng.random((60, 3)) * 0.019,
    "ten thousand duplicates": np.concatenate([rng.random((10_000, 3)) * 0.019, line(5, 1) + 0.01]),
    "1,400 m apart": np.array([[0, 0, 0], [1400, -1400, 300.0]]),
}


def batch_of(points):
    """Raw points as a model gets them, whatever they are."""
    intensity = np.ones(len(points), np.float32)
    cloud = PointCloud.from_xyz(points, intensity=intensity)
    batch = voxelize(cloud, GRID_SIZE, FEATURES)
    return replace(batch, feat=batch.feat.requires_grad_())


def assert_finite(model, batch):
    logits = model(batch)
    assert logits.shape == (len(batch), 3) and logits.isfinite().all()
    logits.square().sum().backward()
    assert batch.feat.grad.isfinite().all()
    for key, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), key
    for key, value in model.state_dict().items():
        assert value.isfinite().all(), key


@pytest.fixture(params=TINY)
def model(request):
    torch.manual_seed(0)
    return create_model(request.param, FEATURES.width, 3)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_degenerate_cloud_has_finite_logits_gradients_and_statistics(model, cloud):
    for training in (False, True):
        assert_finite(model.train(training), batch_of(CLOUDS[cloud]))


def test_all_at_once_are_as_each_alone(model):
    batches = [batch_of(points) for points in CLOUDS.values()]
    with torch.inference_mode():
        model.eval()
        together, alone = model(pack(batches)), torch.cat([model(batch) for batch in batches])
    # Sums of float32 in another order, through a dozen layers; logits are about 1.
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)
    assert_finite(
        model.train(), replace(pack(batches), feat=pack(batches).feat.detach().requires_grad_())
    )


@pytest.mark.parametrize("name", TINY)
def test_voxels_given_twice_are_taken_or_refused_in_words(name):
    model = create_model(name, FEATURES.width, 3)
    batch = batch_of(CLOUDS["a line"])
    feat = torch.cat([batch.feat, batch.feat]).detach().requires_grad_()
    twice = replace(
        batch,
        coord=batch.coord.repeat(2, 1),
        grid_coord=batch.grid_coord.repeat(2, 1),
        feat=feat,
        offsets=2 * batch.offsets,
    )
    if name.startswith(TAKES_DUPLICATES):
        assert_finite(model, twice)
    else:
        with pytest.raises(ValueError, match="rows equal to another .*; keep one point a voxel"):
            model(twice)
