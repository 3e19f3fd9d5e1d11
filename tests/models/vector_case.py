"""What the tests of PTv1 and PTv2 share."""

from dataclasses import replace

import torch
import torch.nn.functional as F

from pctx.models.point_transformer_v1 import PointTransformerV1
from pctx.models.point_transformer_v2 import PointTransformerV2
from pctx.models.published_v1 import ptv1_name
from pctx.models.published_v2 import ptv2_name
from pctx.models.segmentor import Segmentor
from tests.models.clouds import random_batch
from tests.models.published_case import PublishedCase

# Logits are up to 10; the reference's own float32 is 2.3e-6 from its float64.
LOGITS = {torch.float32: 2e-5, torch.float64: 1e-9}
# Of the largest entry. In float32 one ReLU that meets zero may move them by a hundredth.
GRADIENTS = {torch.float32: 2e-2, torch.float64: 1e-9}
# By batch statistics it moves those of its channel in every row: 0.021 seen, with two threads.
BATCH_GRADIENTS = {torch.float32: 5e-2, torch.float64: 1e-9}


def ptv1_backbone(meta, **overrides):
    """Build a backbone from PTv1's published argument names."""
    config = meta["config"]
    assert config["stride"][0] == 1
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


def ptv2_backbone(meta, **overrides):
    """Build a backbone of m1 or m2 from PTv2's published argument names."""
    config, grid_size = meta["config"], meta["grid_size"]
    assert config["pe_bias"]
    arguments = {
        "in_channels": config["in_channels"],
        "channels": [config["patch_embed_channels"], *config["enc_channels"]],
        "depths": [config["patch_embed_depth"], *config["enc_depths"]],
        "groups": [config["patch_embed_groups"], *config["enc_groups"]],
        "num_neighbors": [config["patch_embed_neighbours"], *config["enc_neighbours"]],
        "cell_sizes": [size / grid_size for size in config["grid_sizes"]],
        "grid_size": grid_size,
        "decoder_channels": config["dec_channels"],
        "decoder_depths": config["dec_depths"],
        "decoder_groups": config["dec_groups"],
        "decoder_num_neighbors": config["dec_neighbours"],
        "unpooling": {"map": "map", "interp": "interpolation"}[config["unpool_backend"]],
        "encoding": "grouped" if "v2m1" in meta["model"] else "linear",
        "position_multiplier": config["pe_multiplier"],
        "qkv_bias": config["attn_qkv_bias"],
        "drop_path": config["drop_path_rate"],
        "published": True,
    }
    return PointTransformerV2(**{**arguments, **overrides})


def case_of(golden, file, dtype, **overrides):
    """A file of PTv1 or PTv2 and its model."""
    make, name = (ptv1_backbone, ptv1_name) if "ptv1" in file else (ptv2_backbone, ptv2_name)
    return PublishedCase(golden / f"{file}.npz", dtype, lambda meta: make(meta, **overrides), name)


def assert_published(golden, file, dtype):
    """Logits, loss and gradients of a file are ours."""
    case_of(golden, file, dtype).assert_published(LOGITS[dtype], GRADIENTS[dtype])


def assert_a_training_step(golden, file, dtype):
    """Loss and gradients by batch statistics are ours, and what they leave."""
    within = LOGITS[dtype], BATCH_GRADIENTS[dtype], LOGITS[torch.float32]
    case_of(golden, file, dtype).assert_a_training_step(*within)


def segmentor(backbone, k, seed, **arguments):
    """A double-precision segmentor of three levels, whose points hear k others."""
    torch.manual_seed(seed)
    small = {
        "in_channels": 4,
        "channels": (16, 24, 32),
        "depths": (1, 1, 1),
        "num_neighbors": k,
    }
    return Segmentor(backbone(**{**small, **arguments}), 3).double()


def batch_of(counts, **more):
    """Random clouds in double precision."""
    batch = random_batch(counts, dtype=torch.float64, **more)
    return replace(batch, coord=batch.coord.double())


def assert_missing_neighbours_have_no_say(small):
    """What asks for more neighbours than there are learns the same."""
    batch = batch_of([2, 5, 11])
    model, other = small(16), small(40)
    plans = model.backbone.plan(batch), other.backbone.plan(batch)
    assert_learns_the_same(model, other, batch, *plans)


def assert_checkpointing_changes_nothing(small):
    """What computes blocks again learns the same."""
    batch = batch_of([90, 7])
    plain, frugal = small(8), small(8, checkpoint=True)
    plan = plain.backbone.plan(batch)
    assert_learns_the_same(plain, frugal, batch, plan, plan)


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
