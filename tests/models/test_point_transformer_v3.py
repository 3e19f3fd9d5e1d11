"""What PTv3 alone promises."""

import pytest
import torch

from pctx.models.factory import create_model
from pctx.models.point_transformer_v3 import PointTransformerV3
from pctx.models.unet import UNet
from tests.models.clouds import random_batch


def small(**overrides):
    torch.manual_seed(0)
    return create_model("ptv3_tiny", 4, 3, window_size=16, **overrides)


def windows(hierarchy):
    return [w.index for level in hierarchy.levels for w in level.windows]


def test_curves_are_shuffled_by_a_generator_alone():
    model, batch = small(shuffle_curves=True), random_batch([200, 30])
    plain = windows(model.backbone.plan(batch))
    again = windows(model.backbone.plan(batch))
    assert all(map(torch.equal, plain, again))
    shuffled = [
        windows(model.backbone.plan(batch, torch.Generator().manual_seed(seed)))
        for seed in range(4)
    ]
    assert any(not all(map(torch.equal, plain, other)) for other in shuffled)
    same = windows(model.backbone.plan(batch, torch.Generator().manual_seed(2)))
    assert all(map(torch.equal, same, shuffled[2]))


def test_shuffling_can_be_switched_off():
    model, batch = small(shuffle_curves=False), random_batch([200])
    plain = windows(model.backbone.plan(batch))
    for seed in range(4):
        other = windows(model.backbone.plan(batch, torch.Generator().manual_seed(seed)))
        assert all(map(torch.equal, plain, other))


def test_the_blocks_of_a_stage_take_turns_along_the_curves():
    backbone = PointTransformerV3(
        in_channels=4,
        curves=["z", "hilbert"],
        channels=[8, 8],
        depths=[3, 1],
        num_heads=[1, 1],
        strides=[2],
        decoder_channels=[8],
        decoder_depths=[1],
        decoder_num_heads=[1],
        window_size=16,
    )
    batch = random_batch([60])
    level = backbone.plan(batch).levels[0]
    assert len(level.windows) == 2
    seen = []
    for block in backbone.unet.encoder[0].blocks:
        block.attention.register_forward_hook(lambda _, inputs, __: seen.append(inputs[1]))
    backbone(batch.feat, backbone.plan(batch))
    used = [
        next(i for i, w in enumerate(level.windows) if torch.equal(w.index, s.index)) for s in seen
    ]
    assert used == [0, 1, 0]


def test_stochastic_depth_rises_to_the_last_block_and_falls_again():
    backbone = PointTransformerV3(in_channels=4, drop_path=0.3)
    encoder = [b.drop_path.probability for s in backbone.unet.encoder for b in s.blocks]
    decoder = [b.drop_path.probability for s in reversed(backbone.unet.decoder) for b in s.blocks]
    assert encoder[0] == 0 and encoder[-1] == pytest.approx(0.3) and encoder == sorted(encoder)
    assert decoder[0] == pytest.approx(0.3) and decoder[-1] == 0
    assert decoder == sorted(decoder, reverse=True)


def test_the_encoder_alone_gives_rows_of_the_coarsest_level():
    model = PointTransformerV3(
        in_channels=4,
        channels=[8, 16],
        depths=[1, 1],
        num_heads=[1, 2],
        strides=[4],
        window_size=16,
        encoder_only=True,
    )
    batch = random_batch([200, 0, 3])
    hierarchy = model.plan(batch)
    assert model(batch.feat, hierarchy).shape == (hierarchy.levels[1].num_points, 16)
    assert (model.out_channels, model.out_level) == (16, 1)


def test_a_unet_needs_a_step_between_every_two_stages():
    stages = [torch.nn.Identity()] * 2
    with pytest.raises(ValueError, match="2 encoder stages need 1 steps down"):
        UNet(stages, stages, stages)


def test_a_given_depth_matters_to_the_windows_modulo_three():
    model, batch = small(), random_batch([200])
    own = int(batch.grid_coord.max() + 1).bit_length()
    plain = windows(model.backbone.plan(batch))
    for more, same in [(0, True), (1, False), (2, False), (3, True)]:
        given = windows(model.backbone.plan(batch, depth=own + more))
        assert all(map(torch.equal, plain, given)) == same, more
