"""Scores of whole clouds."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pctx.geometry.points import PointBatch, pack
from pctx.models.classifier import Classifier
from pctx.models.factory import create_backbone, list_models
from tests.models.clouds import random_batch, single_clouds

TINY = [name for name in list_models() if name.endswith("_tiny")]
ENCODERS = ["litept_tiny", "ptv3_tiny"]
KINDS: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in TINY] + [
    (name, {"encoder_only": True, "window_size": 16}) for name in ENCODERS
]


def classifier(name="ptv3_tiny", channels=4, **overrides):
    torch.manual_seed(0)
    return Classifier(create_backbone(name, channels, **overrides), num_classes=5)


@pytest.mark.parametrize(("name", "overrides"), KINDS)
def test_a_cloud_is_scored_alike_alone_and_in_a_batch(name, overrides):
    model = classifier(name, **overrides).eval()
    batch = random_batch([60, 1, 200])
    with torch.inference_mode():
        together = model(batch)
        alone = torch.cat([model(cloud) for cloud in single_clouds(batch)])
    assert together.shape == (3, 5)
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_a_cloud_without_points_has_scores_of_its_own_that_never_change():
    model = classifier(encoder_only=True).eval()
    batch = random_batch([0, 50, 0])
    with torch.inference_mode():
        scores, nothing = model(batch), model(random_batch([0]))
    assert scores.isfinite().all()
    assert torch.equal(scores[0], scores[2])
    torch.testing.assert_close(scores[:1], nothing)
    assert model(random_batch([])).shape == (0, 5)


@pytest.mark.parametrize(("name", "overrides"), KINDS)
def test_every_parameter_gets_a_gradient(name, overrides):
    model = classifier(name, **overrides)
    model(random_batch([300, 500])).square().sum().backward()
    missing = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # A key's bias adds the same to every score of a row, which softmax takes away.
    assert [name for name in missing if "qkv.bias" not in name] == []


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="num_classes must be at least 1, found 0"):
        Classifier(create_backbone("ptv3_tiny", 4), num_classes=0)
    with pytest.raises(ValueError, match="the points carry 3 channels, the model reads 4"):
        classifier()(random_batch([10], channels=3))


def flat_or_round(count, seed):
    """Clouds of a hundred voxels, in a plate or in a ball, and which is which."""
    generator = torch.Generator().manual_seed(seed)
    kind = torch.arange(count) % 2
    clouds = []
    for flat in kind.tolist():
        shape = torch.tensor([16, 16, 1] if flat else [7, 7, 7])
        grid_coord = (torch.rand(100, 3, generator=generator) * shape).long().unique(dim=0)
        n = len(grid_coord)
        clouds.append(
            PointBatch(
                coord=grid_coord * 0.1,
                grid_coord=grid_coord,
                feat=torch.ones(n, 1),
                offsets=torch.tensor([0, n]),
            )
        )
    return pack(clouds), kind


def test_it_learns_to_tell_plates_from_balls():
    model = classifier(channels=1, encoder_only=True, window_size=64)
    points, kind = flat_or_round(16, seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    hierarchy = model.backbone.plan(points)
    for _ in range(20):
        optimizer.zero_grad()
        F.cross_entropy(model(points, hierarchy), kind).backward()
        optimizer.step()
    unseen, truth = flat_or_round(16, seed=1)
    with torch.inference_mode():
        assert (model.eval()(unseen).argmax(dim=1) == truth).float().mean() > 0.9
