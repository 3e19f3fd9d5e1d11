"""LitePT against the numbers of its published implementation, and what it alone promises."""

import numpy as np
import pytest
import torch

from pctx.models.factory import create_model
from pctx.models.litept import LitePT
from pctx.models.published_litept import litept_name
from tests.models.clouds import random_batch, single_clouds
from tests.models.published_case import (
    PublishedCase,
    assert_published_size,
    freeze_norms,
    golden_files,
)

FILES = golden_files("litept_*")
ROWS = {
    "litept_s_nuscenes": "litept",
    "litept_s_waymo": "litept",
    "litept_s_scannet": "litept",
    "litept_s_structured3d": "litept",
    "litept_s_scannet_m2": "litept_star",
    "litept_b_structured3d": "litept_base",
    "litept_l_structured3d": "litept_large",
}

# Logits are up to 17; the reference's own float32 is 1.2e-5 from its float64, in which it turns
# queries and keys by angles in float32 all the same.
LOGITS = {torch.float32: 5e-5, torch.float64: 5e-6}
# Of the largest entry; the reference's own is 1.3e-6.
GRADIENTS = {torch.float32: 1e-5, torch.float64: 1e-6}

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])


def kinds(convolve, attend):
    names = {(True, False): "convolution", (False, True): "attention", (True, True): "both"}
    # A stage that is neither has no blocks.
    return [names.get(pair, "convolution") for pair in zip(convolve, attend, strict=True)]


def published_backbone(meta, **overrides):
    """Build a backbone from LitePT's published argument names."""
    config = meta["config"]
    arguments = {
        "in_channels": config["in_channels"],
        "curves": config["order"],
        "channels": config["enc_channels"],
        "depths": config["enc_depths"],
        "kinds": kinds(config["enc_conv"], config["enc_attn"]),
        "num_heads": config["enc_num_head"],
        "strides": config["stride"],
        "decoder_channels": config["dec_channels"],
        "decoder_depths": config["dec_depths"],
        "decoder_kinds": kinds(config["dec_conv"], config["dec_attn"]),
        "decoder_num_heads": config["dec_num_head"],
        "window_size": config["enc_patch_size"],
        "rotary_base": config["enc_rope_freq"],
        "decoder_rotary_base": config["dec_rope_freq"],
        "mlp_ratio": config["mlp_ratio"],
        "qkv_bias": config["qkv_bias"],
        "pre_norm": config["pre_norm"],
        "drop_path": config["drop_path"],
        "encoder_only": config["enc_mode"],
        "published": True,
    }
    return LitePT(**{**arguments, **overrides})


def case_of(golden, file, dtype=torch.float32):
    return PublishedCase(golden / f"{file}.npz", dtype, published_backbone, litept_name)


def tiny(**overrides):
    torch.manual_seed(0)
    return create_model("litept_tiny", 4, 3, window_size=16, **overrides)


def windows(hierarchy):
    return [w.index for level in hierarchy.levels for w in level.windows]


@DTYPES
@pytest.mark.parametrize("file", FILES)
def test_logits_loss_and_gradients_are_the_published_ones(golden, file, dtype):
    case_of(golden, file, dtype).assert_published(LOGITS[dtype], GRADIENTS[dtype])


@pytest.mark.parametrize("file", golden_files("litept_*", "_stages"))
def test_levels_are_the_published_ones(golden, file):
    case = case_of(golden, file)
    levels, stages = case.backbone.plan(case.batch).levels, case.stages()
    for number, level in enumerate(levels):
        assert np.array_equal(level.grid_coord, stages[f"level/{number}/grid_coord"])
        assert np.array_equal(level.offsets.diff(), stages["level/counts"][number])
        assert np.abs(level.coord.numpy() - stages[f"level/{number}/coord"]).max() < 1e-5
        if number:
            inverse = stages[f"level/{number}/pooling_inverse"]
            assert np.array_equal(levels[number - 1].pooling.cluster, inverse)


def test_by_default_a_batch_is_its_clouds_one_by_one(golden):
    case = case_of(golden, "litept_small")  # whose clouds differ in depth
    with torch.no_grad():
        together = case.model(case.batch)
        alone = torch.cat([case.model(cloud) for cloud in single_clouds(case.batch)])
        case.backbone.published = False
        torch.testing.assert_close(case.model(case.batch), alone, rtol=0, atol=5e-5)
    assert (together - alone).abs().max() > 0.1


@pytest.mark.parametrize("row", ROWS)
def test_counts_names_and_shapes_are_the_published_ones(golden, row):
    with torch.device("meta"):
        assert_published_size(golden, row, lambda *io: create_model(ROWS[row], *io), litept_name)


def test_a_name_that_is_not_litepts_is_refused():
    for name in ("backbone.unet.encoder.0.blocks.0.x.weight", "x.weight", "head.0.weight"):
        with pytest.raises(ValueError, match=f"LitePT segmentor has no weight named '{name}'"):
            litept_name(name)


def test_windows_are_cut_only_where_there_is_attention():
    levels = tiny().backbone.plan(random_batch([300, 20])).levels
    assert [len(level.windows) for level in levels] == [0, 0, 4, 4]
    assert [sorted(level.kernel_maps) for level in levels] == [[3, 5], [3], [], []]


def test_a_decoder_that_attends_has_windows_at_its_level():
    model = tiny(
        decoder_depths=(1, 0, 1), decoder_kinds=("both", "attention", "convolution")
    ).eval()
    batch = random_batch([300, 20])
    levels = model.backbone.plan(batch).levels
    assert [len(level.windows) for level in levels] == [4, 0, 4, 4]
    assert [sorted(level.kernel_maps) for level in levels] == [[3, 5], [3], [3], []]
    assert model(batch).isfinite().all()


@pytest.mark.parametrize("shuffle", [True, False])
def test_curves_are_shuffled_by_a_generator_alone(shuffle):
    model, batch = tiny(shuffle_curves=shuffle), random_batch([200, 30])
    plain = windows(model.backbone.plan(batch))
    assert all(map(torch.equal, plain, windows(model.backbone.plan(batch))))
    drawn = [
        windows(model.backbone.plan(batch, torch.Generator().manual_seed(seed)))
        for seed in range(4)
    ]
    changed = any(not all(map(torch.equal, plain, other)) for other in drawn)
    assert changed == shuffle


def test_strides_need_not_be_powers_of_two():
    model, batch = tiny(strides=(3, 5, 2)).eval(), random_batch([400])
    levels = model.backbone.plan(batch).levels
    for fine, coarse, stride in zip(levels[:-1], levels[1:], (3, 5, 2), strict=True):
        assert torch.equal(fine.grid_coord // stride, coarse.grid_coord[fine.pooling.cluster])
    assert model(batch).shape == (400, 3)


def test_convolutions_are_never_dropped():
    model, batch = tiny(drop_path=0.9), random_batch([200] * 8)
    freeze_norms(model)
    convolved, logits = [], []
    model.backbone.unet.encoder[1].register_forward_hook(lambda *args: convolved.append(args[2]))
    for seed in range(2):
        torch.manual_seed(seed)
        logits.append(model(batch))
    assert torch.equal(*convolved) and not torch.equal(*logits)


def test_stochastic_depth_rises_to_the_last_block_and_falls_again():
    model = LitePT(in_channels=4, drop_path=0.3, decoder_depths=(2, 2, 2, 2))

    def rates(stages):
        blocks = [block for stage in stages for block in stage.blocks]
        return [b.transformer.drop_path.probability for b in blocks if b.transformer]

    encoder, decoder = (
        rates(model.unet.encoder),
        rates(reversed([up.stage for up in model.unet.decoder])),
    )
    assert encoder == sorted(encoder) and encoder[-1] == pytest.approx(0.3)
    assert encoder[0] == pytest.approx(0.3 * 6 / 13)  # six convolutions come before
    assert decoder == sorted(decoder, reverse=True) and decoder[0] == pytest.approx(0.3)


def test_the_encoder_alone_gives_rows_of_the_coarsest_level():
    backbone = tiny().backbone
    alone = LitePT(in_channels=4, encoder_only=True)
    assert (alone.out_channels, alone.out_level) == (504, 4)
    assert len(alone.unet.decoder) == 0 and len(backbone.unet.decoder) == 3
    batch = random_batch([200, 0, 3])
    hierarchy = alone.plan(batch)
    assert alone(batch.feat, hierarchy).shape == (hierarchy.levels[4].num_points, 504)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"depths": [1, 1]}, r"depths must have 5 entries to fit channels, found \[1, 1\]"),
        ({"rotary_base": [100.0]}, "rotary_base must have 5 entries"),
        ({"decoder_rotary_base": [100.0]}, "decoder_rotary_base must have 4 entries"),
        ({"decoder_kinds": ["both"]}, "decoder_kinds must have 4 entries"),
        ({"curves": []}, r"curves must be some of .*; found \[\]"),
        ({"kinds": ["conv"] * 5}, "kinds must be of convolution, attention, both; found"),
        ({"num_heads": [2, 4, 8, 14, 36]}, "head_channels to be a multiple of 6, found 14"),
        ({"num_heads": [2, 4, 8, 13, 28]}, "channels 252 must be a multiple of num_heads 13"),
        ({"drop_path": 1.0}, "drop_path must be in"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        LitePT(in_channels=4, **wrong)
