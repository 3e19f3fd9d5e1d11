"""Golden numbers of PTv1 and PTv2, whose positions have the digits of their features."""

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F

from pctx.models.factory import create_model
from pctx.models.point_transformer_v1 import PointTransformerV1
from pctx.models.point_transformer_v2 import PointTransformerV2
from pctx.models.published import from_published, to_published
from pctx.models.published_v1 import ptv1_name
from pctx.models.published_v2 import ptv2_name
from tests.models.published_case import (
    PublishedCase,
    assert_counts,
    freeze_norms,
    published_counts,
    published_shapes,
)

GRID_SIZE = 0.05

# Logits are up to 10; the reference's own float32 is 2.3e-6 from its float64.
LOGITS = {torch.float32: 2e-5, torch.float64: 1e-9}
# Of the largest entry. In float32 one ReLU that meets zero may move them by a hundredth.
GRADIENTS = {torch.float32: 2e-2, torch.float64: 1e-9}


def ptv1_backbone(config, **overrides):
    """Build a backbone from PTv1's published argument names."""
    arguments = {
        "in_channels": config["in_channels"],
        "channels": config["planes"],
        "depths": config["blocks"],
        "num_neighbors": config["nsample"],
        "strides": config["stride"][1:],
        "share_channels": config["share_planes"],
        "published": True,
    }
    return PointTransformerV1(**{**arguments, **overrides})


def ptv2_backbone(config, **overrides):
    """Build a backbone of m2 from PTv2's published argument names."""
    arguments = {
        "in_channels": config["in_channels"],
        "channels": [config["patch_embed_channels"], *config["enc_channels"]],
        "depths": [config["patch_embed_depth"], *config["enc_depths"]],
        "groups": [config["patch_embed_groups"], *config["enc_groups"]],
        "num_neighbors": [config["patch_embed_neighbours"], *config["enc_neighbours"]],
        "cell_sizes": [size / GRID_SIZE for size in config["grid_sizes"]],
        "grid_size": GRID_SIZE,
        "decoder_channels": config["dec_channels"],
        "decoder_depths": config["dec_depths"],
        "decoder_groups": config["dec_groups"],
        "decoder_num_neighbors": config["dec_neighbours"],
        "unpooling": {"map": "map", "interp": "interpolation"}[config["unpool_backend"]],
        "position_multiplier": config["pe_multiplier"],
        "qkv_bias": config["attn_qkv_bias"],
        "drop_path": config["drop_path_rate"],
        "published": True,
    }
    return PointTransformerV2(**{**arguments, **overrides})


class VectorCase(PublishedCase):
    """A file of PTv1 or PTv2, by its name, and the numbers of a training step beside it."""

    def __init__(self, folder, file, dtype, **overrides):
        self.folder, self.file = folder, file
        if "ptv2m1" in file:
            overrides["encoding"] = "grouped"
        backbone, name = (
            (ptv1_backbone, ptv1_name) if "ptv1" in file else (ptv2_backbone, ptv2_name)
        )
        path = folder / f"{file}.npz"
        super().__init__(path, dtype, lambda config: backbone(config, **overrides), name)
        coord = self.batch.coord.to(dtype)
        grid_coord = torch.div(coord, GRID_SIZE, rounding_mode="floor").long()
        self.batch = replace(self.batch, coord=coord, grid_coord=grid_coord)
        self.dtype = dtype

    def stages(self):
        """The structure of each level, as the published model found it."""
        return np.load(self.folder / f"{self.file}_stages.npz")

    def assert_logits_loss_and_gradients(self):
        """They are the published ones; and so they are with frozen norms."""
        for prepare in (self.model.eval, lambda: freeze_norms(self.model)):
            prepare()
            self.model.zero_grad()
            self.batch.feat.grad = None
            logits = self.model(self.batch)
            assert self.distance(logits, "out/logits") <= LOGITS[self.dtype]
            loss = self.loss(logits)
            assert self.distance(loss, "out/loss") <= LOGITS[self.dtype]
            loss.backward()
            distance, count = self.gradient_distance()
            assert distance <= GRADIENTS[self.dtype]
            assert count == 11

    def assert_a_training_step(self):
        """With batch statistics they are the published ones too, and what they leave."""
        data = np.load(self.folder / f"{self.file}_trainbn.npz")
        self.model.train()
        loss = self.loss(self.model(self.batch))
        loss.backward()
        expected = float(data[f"{self.prefix}trainbn/loss"])
        assert abs(loss.item() - expected) <= LOGITS[self.dtype]
        distance, count = self.gradient_distance(data, "trainbn/grad/")
        assert distance <= GRADIENTS[self.dtype]
        assert count == 11
        start = "trainbn/after/"  # in float32 only
        after = {key[len(start) :]: data[key] for key in data.files if key.startswith(start)}
        state = to_published(self.model.state_dict(), self.name)
        assert len(after) > 200
        for key, reference in after.items():
            assert np.abs(state[key].numpy() - reference).max() <= LOGITS[torch.float32], key


def assert_published_size(golden, row, model, name, **overrides):
    """A model has the counts, the names and the shapes of a published configuration."""
    line = published_counts(golden, row)
    with torch.device("meta"):
        made = create_model(model, int(line["in_channels"]), int(line["num_classes"]), **overrides)
    assert_counts(made, line)
    shapes = {key: tuple(value.shape) for key, value in made.state_dict().items()}
    assert to_published(shapes, name) == published_shapes(golden, row)
    assert from_published(published_shapes(golden, row), shapes, name) == shapes


def assert_learns_the_same(model, other, batch, hierarchy, other_hierarchy):
    """Two models, or two plans, agree in training: logits, gradients and running statistics."""
    outs, grads = [], []
    for each, plan in ((model, hierarchy), (other, other_hierarchy)):
        each.train().zero_grad()
        logits = each(batch, plan)
        F.cross_entropy(logits, batch.label).backward()
        outs.append(logits)
        grads.append([parameter.grad for parameter in each.parameters()])
    torch.testing.assert_close(*outs)
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)
    for a, b in zip(model.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(a, b)
