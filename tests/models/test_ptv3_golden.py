"""PTv3 against the numbers of its published implementation."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pctx.models.factory import create_model
from pctx.models.point_transformer_v3 import PointTransformerV3
from pctx.models.published_v3 import ptv3_name
from tests.models.clouds import single_clouds
from tests.models.published_case import PublishedCase, assert_published_size, golden_files

FILES = golden_files("ptv3_*")
ROWS = {
    "ptv3_nuscenes": "ptv3_base",
    "ptv3_waymo": "ptv3_base",
    "ptv3_semantickitti": "ptv3_base",
    "ptv3_scannet": "ptv3",
    "ptv3_s3dis": "ptv3_base",
    "ptv3_s3dis_rpe": "ptv3_rpe",
}
BIG_AND_SMALL = "ptv3_small_cloud_varlen_k128"

# Logits are up to 31: the reference's own float32 is 1.6e-5 from its float64. A wrong rule moves
# them by 9e-3 at least.
LOGITS = {torch.float32: 1e-4, torch.float64: 1e-9}
# Of the largest entry; the reference's own is 5e-6, and 7e-6 with batch statistics.
GRADIENTS = {torch.float32: 2e-5, torch.float64: 1e-9}
# With the published upcast flags on, attention is in float32 whatever the rest.
UPCAST = 1e-5

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])


def ptv3_backbone(meta, **overrides):
    """Build a backbone from PTv3's published argument names."""
    config = meta["config"]
    # Where windows of the decoder were configured otherwise, those of the encoder are used.
    arguments = {
        "in_channels": config["in_channels"],
        "curves": config["order"],
        "shuffle_curves": config["shuffle_orders"],
        "channels": config["enc_channels"],
        "depths": config["enc_depths"],
        "num_heads": config["enc_num_head"],
        "strides": config["stride"],
        "decoder_channels": config["dec_channels"],
        "decoder_depths": config["dec_depths"],
        "decoder_num_heads": config["dec_num_head"],
        "window_size": config["enc_patch_size"],
        "mlp_ratio": config["mlp_ratio"],
        "qkv_bias": config["qkv_bias"],
        "pre_norm": config["pre_norm"],
        "relative_position_bias": config["enable_rpe"],
        "drop_path": config["drop_path"],
        "encoder_only": config["enc_mode"],
        "published": True,
        "flash": config["enable_flash"],
    }
    return PointTransformerV3(**{**arguments, **overrides})


def case_of(golden, file, dtype=torch.float32):
    return PublishedCase(golden / f"{file}.npz", dtype, ptv3_backbone, ptv3_name)


def within(case, limits):
    upcast = case.meta["config"]["upcast_attention"] and case.dtype == torch.float64
    return UPCAST if upcast else limits[case.dtype]


@DTYPES
@pytest.mark.parametrize("file", FILES)
def test_logits_loss_and_gradients_are_the_published_ones(golden, file, dtype):
    case = case_of(golden, file, dtype)
    case.assert_published(within(case, LOGITS), within(case, GRADIENTS))


@DTYPES
@pytest.mark.parametrize("file", golden_files("ptv3_*", "_trainbn"))
def test_batch_statistics_are_the_published_ones(golden, file, dtype):
    case = case_of(golden, file, dtype)
    case.assert_a_training_step(
        within(case, LOGITS), within(case, GRADIENTS), LOGITS[torch.float32]
    )


@pytest.mark.parametrize("file", golden_files("ptv3_*", "_stages"))
def test_levels_and_their_orders_are_the_published_ones(golden, file):
    case = case_of(golden, file)
    levels, stages = case.backbone.plan(case.batch).levels, case.stages()
    for number, level in enumerate(levels):
        assert np.array_equal(level.offsets.diff(), stages["level/counts"][number])
        if number:
            assert np.array_equal(level.grid_coord, stages[f"level/{number}/grid_coord"])
            assert np.abs(level.coord.numpy() - stages[f"level/{number}/coord"]).max() < 1e-5
        codes = stages[f"level/{number}/serialized_code"]
        for windows, code in zip(level.windows, codes, strict=True):
            # Points own slots that ascend along the curve, where no window borrows.
            order = torch.from_numpy(code.argsort(kind="stable"))
            slots = windows.slot[order].reshape(-1)
            assert torch.equal(windows.index.reshape(-1)[slots], order)


def test_without_flash_attention_windows_are_cut_to_the_smallest_cloud(golden):
    case = case_of(golden, BIG_AND_SMALL)
    fewest = [int(level.offsets.diff().min()) for level in case.backbone.plan(case.batch).levels]
    case.backbone.flash = False
    levels = case.backbone.plan(case.batch).levels
    sizes = [{windows.window_size for windows in level.windows} for level in levels]
    assert sizes == [{size} for size in fewest] == [{90}, {73}, {46}, {17}, {4}]


@pytest.mark.parametrize("cloud", [0, 1])
def test_a_cloud_alone_is_the_published_one_at_its_own_depth_or_a_given_one(golden, cloud):
    case = case_of(golden, BIG_AND_SMALL)
    alone = single_clouds(replace(case.batch, feat=case.batch.feat.detach()))[cloud]
    depth = case.meta["serialization_depth"]
    for rule, plan in (
        ("alone_own_depth", case.backbone.plan(alone)),
        ("alone", case.backbone.plan(alone, depth=depth)),
    ):
        with torch.no_grad():
            logits = case.model(alone, plan)
        reference = case.data[f"{rule}/{cloud}/logits"]
        assert np.abs(logits.numpy() - reference).max() <= LOGITS[torch.float32]


def test_by_default_clouds_have_their_own_depth_and_windows_in_a_batch_too(golden):
    case = case_of(golden, BIG_AND_SMALL)
    case.backbone.published = case.backbone.flash = False
    with torch.no_grad():
        logits = case.model(case.batch)
    alone = [case.data[f"alone_own_depth/{i}/logits"] for i in range(2)]
    assert np.abs(logits.numpy() - np.concatenate(alone)).max() <= LOGITS[torch.float32]


def test_the_quirk_of_the_decoder_shows(golden):
    case = case_of(golden, "ptv3_k32")
    default = PublishedCase(
        case.path, torch.float32, lambda meta: ptv3_backbone(meta, published=False), ptv3_name
    )
    plan = case.backbone.plan(case.batch)
    published, joined = case.model(case.batch, plan), default.model(case.batch, plan)
    assert (joined - published).abs().max() > 0.1


@pytest.mark.parametrize("row", ROWS)
def test_counts_names_and_shapes_are_the_published_ones(golden, row):
    with torch.device("meta"):
        assert_published_size(golden, row, lambda *io: create_model(ROWS[row], *io), ptv3_name)


def test_the_encoder_alone_has_as_many_parameters_as_published():
    with torch.device("meta"):
        backbone = PointTransformerV3(in_channels=6, encoder_only=True)
    assert sum(parameter.numel() for parameter in backbone.parameters()) == 38_672_640


@pytest.mark.parametrize("own", ["backbone.unet.encoder.0.blocks.0.x.weight", "x.weight"])
def test_a_name_that_is_not_published_is_refused(own):
    with pytest.raises(ValueError, match=f"a PTv3 segmentor has no weight named '{own}'"):
        ptv3_name(own)
