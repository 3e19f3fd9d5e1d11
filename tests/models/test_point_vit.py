"""PointViT against torch's own transformer layers, and what its patches know."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from pctx.geometry.packed import cloud_minimum
from pctx.models.point_vit import PointViT
from tests.models.clouds import VOXEL, random_batch

CLOSE = {"rtol": 0, "atol": 1e-5}


def toy(seed=0, **arguments):
    torch.manual_seed(seed)
    arguments = {
        "in_channels": 4,
        "channels": 24,
        "depth": 2,
        "num_heads": 2,
        "patch_edge": 4,
        "point_channels": 16,
        "drop_path": 0.0,
        **arguments,
    }
    return PointViT(**arguments).eval()


def placed(cells):
    """One cloud at given voxels, its features all alike."""
    cells = torch.tensor(cells)
    batch = random_batch([len(cells)])
    feat = batch.feat[:1].expand(len(cells), -1)
    return replace(batch, grid_coord=cells, coord=(cells + 0.5) * VOXEL, feat=feat)


class Nowhere(nn.Module):
    """An encoding that says nothing."""

    def forward(self, place):
        return place.new_zeros(len(place), 24)


def test_patches_are_cubes_from_the_lowest_corner():
    batch = random_batch([200, 0, 30])
    level, patches = toy().plan(batch).levels
    cloud = torch.tensor([0] * 200 + [2] * 30)
    corner = cloud_minimum(batch.grid_coord, batch.offsets)[cloud]
    cube = torch.cat([cloud[:, None], (batch.grid_coord - corner) // 4], 1)
    same = (cube[:, None] == cube).all(2)
    own = level.pooling.cluster
    assert torch.equal(own[:, None] == own, same)
    assert torch.equal(patches.grid_coord[own], cube[:, 1:])
    local = batch.coord - cloud_minimum(batch.coord, batch.offsets)[cloud]
    middle = torch.stack([local[own == each].mean(0) for each in own.unique()])
    torch.testing.assert_close(patches.coord, middle, **CLOSE)


@torch.no_grad()
def test_blocks_are_torchs_own_transformer_layers():
    model, batch = toy(), random_batch([300, 40])
    patches = model.plan(batch).levels[1]
    feat = torch.randn(patches.num_points, 24)
    for block in model.blocks:
        layer = nn.TransformerEncoderLayer(
            24, 2, 96, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        ).eval()
        layer.self_attn.in_proj_weight.copy_(block.mixer.qkv.weight)
        layer.self_attn.in_proj_bias.copy_(block.mixer.qkv.bias)
        for theirs, ours in [
            (layer.self_attn.out_proj, block.mixer.proj),
            (layer.linear1, block.mlp.fc1),
            (layer.linear2, block.mlp.fc2),
            (layer.norm1, block.norm1),
            (layer.norm2, block.norm2),
        ]:
            theirs.load_state_dict(ours.state_dict())
        limit = int(patches.offsets[1])
        expected = torch.cat([layer(cloud[None])[0] for cloud in (feat[:limit], feat[limit:])])
        told = block(feat, patches.offsets, patches.windows[0])
        torch.testing.assert_close(told, expected, **CLOSE)


def test_a_point_hears_every_patch_of_its_cloud_and_of_no_other():
    model, batch = toy(), random_batch([200, 50])
    hierarchy = model.plan(batch)
    feat = batch.feat.requires_grad_()
    model(feat, hierarchy)[3].square().sum().backward()
    heard = (feat.grad != 0).any(1)
    own = hierarchy.levels[0].pooling.cluster
    for patch in own.unique():
        assert heard[own == patch].any() == (patch < hierarchy.levels[1].offsets[1])


@torch.no_grad()
@pytest.mark.parametrize("position", ["sinusoidal", "coordinate_mlp"])
def test_patches_know_where_they_are(position):
    # Two patches of the same points at the same places inside.
    batch = placed([[0, 0, 0], [1, 2, 3], [40, 0, 0], [41, 2, 3]])
    model = toy(position=position)
    told = model(batch.feat, model.plan(batch))
    assert (told[:2] - told[2:]).abs().max() > 1e-3
    model.position = Nowhere()
    blind = model(batch.feat, model.plan(batch))
    torch.testing.assert_close(blind[:2], blind[2:], **CLOSE)


@torch.no_grad()
def test_points_know_where_they_are_in_their_patch():
    batch = placed([[0, 0, 0], [1, 2, 3], [3, 2, 3]])
    model = toy()
    told = model.points(batch.feat, model.plan(batch).levels[0])
    # Middles of voxels, in patches from the middle of the patch.
    places = torch.tensor([[-0.375] * 3, [-0.125, 0.125, 0.375], [0.375, 0.125, 0.375]])
    expected = model.points.embed(torch.cat([batch.feat, places], 1))
    torch.testing.assert_close(told, expected, **CLOSE)


@torch.no_grad()
def test_a_stem_lets_points_see_the_voxels_around_them():
    batch = placed([[0, 0, 0], [0, 0, 1], [0, 0, 2], [9, 9, 9]])
    model = toy(stem_depth=1)
    points = torch.randn(4, 16)
    weight = model.stem[0].conv.weight[:, 1, 1].permute(1, 0, 2)  # along z: below, here, above
    none = torch.zeros(1, 16)
    beside = torch.stack(
        [
            torch.cat([none, points[:2], none]),
            points,
            torch.cat([points[1:3], none, none]),
        ]
    )
    summed = torch.einsum("toi,tni->no", weight, beside)
    expected = points + nn.functional.gelu(model.stem[0].norm(summed))
    told = model.stem[0](points, model.plan(batch).levels[0])
    torch.testing.assert_close(told, expected, **CLOSE)


@torch.no_grad()
def test_a_patch_takes_the_largest_of_its_points():
    model, batch = toy(), random_batch([120])
    pooling = model.plan(batch).levels[0].pooling
    points = torch.randn(120, 16)
    told = model.patches(points, pooling)
    for patch, row in enumerate(told):
        expected = model.patches.mlp(points[pooling.cluster == patch]).amax(0)
        torch.testing.assert_close(row, expected, **CLOSE)


@torch.no_grad()
def test_points_add_what_their_patch_has_learnt_to_what_they_are():
    model, batch = toy(), placed([[0, 0, 0], [1, 2, 3], [3, 2, 3]])
    level, patches = model.plan(batch).levels
    points = model.points(batch.feat, level)
    hidden = model.patches(points, level.pooling) + model.position(torch.zeros(1, 3))
    for block in model.blocks:
        hidden = block(hidden, patches.offsets, patches.windows[0])
    joined = points + model.back.up(model.norm(hidden))
    expected = joined + model.back.mlp(model.back.norm(joined))
    told = model(batch.feat, model.plan(batch))
    torch.testing.assert_close(told, expected, **CLOSE)


def test_a_learned_position_is_learned():
    model, batch = toy(position="coordinate_mlp").train(), random_batch([200])
    model(batch.feat, model.plan(batch)).square().sum().backward()
    for name, parameter in model.position.named_parameters():
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"patch_edge": 1}, "patch_edge must be whole and at least 2, found 1"),
        ({"position": "learned"}, "position must be sinusoidal or coordinate_mlp, found 'learned'"),
        ({"num_heads": 5}, "channels 24 must be a multiple of num_heads 5"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        toy(**wrong)
