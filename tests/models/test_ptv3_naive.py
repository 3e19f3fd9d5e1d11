"""PTv3 of any settings is what it says it is, and so are the published numbers."""

import random

import pytest
import torch

from pctx.models.published_v3 import ptv3_name
from pctx.models.segmentor import Segmentor
from tests.models.clouds import random_batch
from tests.models.naive_ptv3 import NaivePTv3
from tests.models.test_ptv3_golden import case_of, ptv3_backbone

CURVES = ["z", "z-trans", "hilbert", "hilbert-trans"]


def published_weights(model):
    return {ptv3_name(own): weight for own, weight in model.state_dict().items()}


def settings(seed):
    """Published settings that nobody published."""
    draw = random.Random(seed)
    levels = draw.choice([1, 2, 3])
    heads = [draw.choice([1, 2, 3]) for _ in range(levels)]
    up_heads = [draw.choice([1, 2, 4]) for _ in range(levels - 1)]
    flash = draw.random() < 0.5
    return {
        "in_channels": draw.choice([1, 4, 7]),
        "order": draw.sample(CURVES, draw.choice([1, 2, 3, 4])),
        "shuffle_orders": False,
        "stride": [draw.choice([2, 4]) for _ in range(levels - 1)],
        "enc_channels": [h * draw.choice([3, 4, 8]) for h in heads],
        "enc_depths": [draw.choice([1, 2, 3]) for _ in range(levels)],
        "enc_num_head": heads,
        "enc_patch_size": [draw.choice([5, 16, 24]) for _ in range(levels)],
        "dec_channels": [h * draw.choice([4, 6]) for h in up_heads],
        "dec_depths": [draw.choice([0, 1, 3]) for _ in range(levels - 1)],
        "dec_num_head": up_heads,
        "mlp_ratio": draw.choice([1, 2, 4]),
        "qkv_bias": draw.random() < 0.5,
        "pre_norm": draw.random() < 0.5,
        "enable_rpe": not flash and draw.random() < 0.7,
        "enable_flash": flash,
        "drop_path": 0.3,
        "enc_mode": False,
    }


def scatter_norms(model):
    """Norms as after a training, tables as large as scores."""
    generator = torch.Generator().manual_seed(1)
    for key, value in model.state_dict().items():
        if key.endswith(("norm.weight", "running_var")):
            value.uniform_(0.5, 1.5, generator=generator)
        elif key.endswith(("bias", "running_mean", "table")):
            value.normal_(0, 0.5, generator=generator)


@pytest.mark.parametrize("seed", range(24))
def test_any_settings_give_what_the_plainest_code_gives(seed):
    config = settings(seed)
    torch.manual_seed(seed)
    model = Segmentor(ptv3_backbone({"config": config}), 3).double().eval()
    scatter_norms(model)
    draw = random.Random(seed)
    counts = [draw.choice([1, 3, 16, 17, 60, 110]) for _ in range(draw.choice([1, 2, 3]))]
    batch = random_batch(counts, channels=config["in_channels"], seed=seed, dtype=torch.float64)
    cells = torch.cat([cloud - cloud.amin(0) for cloud in batch.grid_coord.split(counts)])
    naive = NaivePTv3(config, published_weights(model))
    with torch.no_grad():
        expected = naive(
            batch.feat, cells, batch.offsets[1:].tolist(), int(cells.max() + 1).bit_length()
        )
        torch.testing.assert_close(model(batch), expected, rtol=1e-9, atol=1e-9)


def test_the_plainest_code_gives_the_published_numbers(golden):
    case = case_of(golden, "ptv3_small_cloud_varlen_k128", torch.float64)
    weights = published_weights(case.model)
    naive = NaivePTv3(case.meta["config"], weights)
    batch, depth = case.batch, case.meta["serialization_depth"]
    with torch.no_grad():
        logits = naive(batch.feat, batch.grid_coord.long(), batch.offsets[1:].tolist(), depth)
    assert case.distance(logits, "out/logits") <= 1e-9
