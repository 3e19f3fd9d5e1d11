"""Swin3D against its equations, point by point, and against the published counts."""

import math
from dataclasses import replace

import pytest
import torch

from pctx.geometry.packed import cloud_minimum
from pctx.models.factory import create_model
from pctx.models.segmentor import Segmentor
from pctx.models.swin3d import Swin3D
from tests.models.clouds import VOXEL, random_batch

CLOSE = {"rtol": 0, "atol": 1e-5}


def toy(seed=0, **arguments):
    """Two levels, stride 3, no decoder blocks; tables loud enough to matter."""
    torch.manual_seed(seed)
    arguments = {
        "in_channels": 7,
        "channels": (12, 24),
        "depths": (2, 2),
        "num_heads": (2, 4),
        "window_edges": (5, 3),
        "strides": (3,),
        "num_neighbors": 4,
        "decoder_depths": (0,),
        "drop_path": 0.0,
        **arguments,
    }
    backbone = Swin3D(**arguments).eval()
    for name, parameter in backbone.named_parameters():
        if name.endswith("_table"):
            torch.nn.init.normal_(parameter)
    return backbone


def listen(backbone, batch, hierarchy=None):
    """What every block was given and gave: (block, feat, level, signal, output)."""
    heard = []
    hooks = [
        block.register_forward_hook(lambda m, inputs, out: heard.append((m, *inputs, out)))
        for stage in backbone.unet.encoder
        for block in stage.blocks
    ]
    backbone(batch.feat, hierarchy or backbone.plan(batch))
    for hook in hooks:
        hook.remove()
    return heard


def attended(block, feat, cells, signal, edge, shift):
    """The paper's attention for each point by itself, among those in its cube."""
    attention = block.block.mixer.attention
    encoding, inner = attention.encoding, attention.attention
    h, d = inner.num_heads, feat.shape[1] // inner.num_heads
    query, key, value = (
        part.view(-1, h, d) for part in inner.qkv(block.block.norm1(feat)).chunk(3, 1)
    )
    tables = encoding.query_table, encoding.key_table, encoding.value_table
    cube = (cells + shift) // edge
    # Positions in quarters of a voxel, colours in eighths of a unit.
    signal = signal * torch.tensor([4.0] * 3 + [8.0] * (signal.shape[1] - 3))
    bounds = [4 * edge] * 3 + [16] * (signal.shape[1] - 3)
    starts = [2 * sum(bounds[:i]) for i in range(len(bounds))]
    told = torch.zeros_like(query)
    for i in range(len(feat)):
        others = (cube == cube[i]).all(1).nonzero()[:, 0].tolist()
        sums = [[torch.zeros(h, d) for _ in tables] for _ in others]
        for entry, j in zip(sums, others, strict=True):
            for a, (bound, start) in enumerate(zip(bounds, starts, strict=True)):
                row = math.floor(signal[i, a] - signal[j, a])
                row = start + bound + min(max(row, -bound), bound - 1)
                for t, table in enumerate(tables):
                    entry[t] = entry[t] + table[row]
        score = torch.stack(
            [
                (query[i] * (key[j] + tq)).sum(1) / d**0.5 + (key[j] * tk).sum(1)
                for j, (tq, tk, _) in zip(others, sums, strict=True)
            ]
        )
        weight = score.softmax(0)  # (others, h)
        for each, j, (_, _, tv) in zip(weight, others, sums, strict=True):
            told[i] += each[:, None] * (value[j] + tv)
    hidden = feat + inner.proj(told.flatten(1))
    return hidden + block.block.mlp(block.block.norm2(hidden))


@torch.no_grad()
def test_blocks_are_the_equations_in_cubes_that_begin_half_an_edge_earlier_in_turns():
    backbone, batch = toy(color=4), random_batch([150], channels=7)
    heard = listen(backbone, batch)
    assert len(heard) == 4
    position = batch.grid_coord - batch.grid_coord.amin(0)
    color = batch.feat[:, 4:]
    for number, (block, feat, level, _, output) in enumerate(heard):
        if number == 2:
            sampled = heard[0][2].sampled
            position, color = position[sampled] / 3, color[sampled]
        edge = backbone.window_edges[number // 2]
        shift = edge // 2 if number % 2 else 0
        cells = level.grid_coord - level.grid_coord.amin(0)
        signal = torch.cat([(position * 64).round() / 64, color], 1)
        expected = attended(block, feat, cells, signal, edge, shift)
        torch.testing.assert_close(output, expected, rtol=0, atol=2e-5)


@torch.no_grad()
def test_a_coarse_point_stands_next_to_the_mean_and_takes_the_largest_of_the_nearest():
    backbone, batch = toy(), random_batch([200, 30], channels=7)
    fine, coarse = backbone.plan(batch).levels
    cells = batch.grid_coord
    corner = cloud_minimum(cells, batch.offsets)[torch.tensor([0] * 200 + [1] * 30)]
    cube = torch.cat([(cells - corner) // 3, torch.tensor([[0]] * 200 + [[1]] * 30)], 1)
    feat = torch.randn(230, 12)
    down = backbone.unet.down[0]
    hidden = down.linear(down.norm(feat))
    told = down(feat, fine)
    for row, each in enumerate(fine.sampled.tolist()):
        group = (cube == cube[each]).all(1).nonzero()[:, 0]
        mean = batch.coord[group].mean(0)
        far = (batch.coord[group] - mean).norm(dim=1)
        assert (batch.coord[each] - mean).norm() <= far.min() + 1e-6
        assert torch.equal(coarse.grid_coord[row], cube[each, :3])
        same = (cube[:, 3] == cube[each, 3]).nonzero()[:, 0]
        distance = (batch.coord[same] - batch.coord[each]).norm(dim=1)
        reach = distance.sort().values[3]
        assert len(fine.nearest_fine.index[row].unique()) == 4
        near, sure = same[distance <= reach], same[distance < reach]
        assert (
            set(sure.tolist()) <= set(fine.nearest_fine.index[row].tolist()) <= set(near.tolist())
        )
        expected = hidden[fine.nearest_fine.index[row]].amax(0)
        torch.testing.assert_close(told[row], expected, **CLOSE)


@torch.no_grad()
def test_a_cloud_of_few_points_takes_the_largest_of_those_it_has():
    backbone, batch = toy(), random_batch([2, 40], channels=7)
    fine, coarse = backbone.plan(batch).levels
    feat = torch.randn(42, 12)
    hidden = backbone.unet.down[0].linear(backbone.unet.down[0].norm(feat))
    told = backbone.unet.down[0](feat, fine)
    own = int(coarse.offsets[1])
    torch.testing.assert_close(told[:own], hidden[:2].amax(0).expand(own, -1), **CLOSE)


@torch.no_grad()
def test_equal_offsets_are_read_alike_wherever_they_lie():
    # A row of voxels: thirds of a coarse voxel, which binary fractions do not hold.
    batch = random_batch([3000], channels=7)
    cells = torch.tensor([[5 * i, 0, 0] for i in range(3000)])
    batch = replace(batch, grid_coord=cells, coord=(cells + 0.5) * VOXEL)
    _, _, level, signal, _ = listen(toy(), batch)[2]
    third = (level.coord[:, 0] / VOXEL).round() % 3
    for each in range(3):
        assert len((signal[third == each, 0] % 1).unique()) == 1


def silent(backbone, columns):
    """Keep the stem from hearing some channels."""
    backbone.stem.conv.weight.data[..., columns] = 0
    return backbone


@torch.no_grad()
def test_colors_and_normals_are_compared_where_told_and_only_their_differences_count():
    batch = random_batch([200], channels=7)
    # In halves of a step, which float32 adds exactly.
    batch = replace(batch, feat=(batch.feat * 16).round() / 16)
    changed = replace(batch, feat=torch.cat([batch.feat[:, :4], batch.feat[:, 4:].flip(0)], 1))
    moved = replace(batch, feat=batch.feat + torch.tensor([0, 0, 0, 0, 0.3125, 0.3125, 0.3125]))
    for arguments, compared in [({}, False), ({"color": 4}, True), ({"normal": 4}, True)]:
        model = Segmentor(silent(toy(**arguments), [4, 5, 6]), 3).eval()
        assert ((model(changed) - model(batch)).abs().max() > 1e-3) == compared
        torch.testing.assert_close(model(moved), model(batch), **CLOSE)


@torch.no_grad()
def test_places_inside_voxels_are_compared_where_the_grid_size_is_known():
    batch = random_batch([200], channels=7)
    generator = torch.Generator().manual_seed(0)
    # Not so far as to change which points are near one another.
    moved = replace(
        batch, coord=batch.coord + torch.rand(200, 3, generator=generator) * 0.3 * VOXEL
    )
    for grid_size, compared in [(None, False), (VOXEL, True)]:
        backbone = toy(
            channels=(12,),
            depths=(2,),
            num_heads=(2,),
            window_edges=(5,),
            strides=(),
            decoder_depths=(),
            grid_size=grid_size,
        )
        model = Segmentor(backbone, 3).eval()
        assert ((model(moved) - model(batch)).abs().max() > 1e-3) == compared


def test_a_budget_of_slots_bounds_the_windows():
    batch = random_batch([600], channels=7)
    for level, whole in zip(
        toy(window_size=6).plan(batch).levels, toy().plan(batch).levels, strict=True
    ):
        assert all(windows.window_size <= 6 for windows in level.windows)
        assert all(windows.window_size > 6 for windows in whole.windows)


@torch.no_grad()
def test_a_plan_moves_between_devices_whole():
    backbone, batch = toy(), random_batch([90, 4], channels=7)
    hierarchy = backbone.plan(batch)
    moved = backbone(batch.feat, hierarchy.to("cpu"))
    assert torch.equal(moved, backbone(batch.feat, hierarchy))
    assert all(
        each.is_meta
        for level in hierarchy.to("meta").levels
        for parts in level.window_parts
        for each in (parts.inverse, parts.parts[0].rows)
    )
    assert hierarchy.to("meta").levels[0].nearest_fine.index.is_meta


@pytest.mark.parametrize(("name", "published"), [("swin3d_small", 23.57), ("swin3d_large", 60.75)])
def test_parameters_are_as_many_as_published(name, published):
    # Those of the models that compare positions and colours, without head and decoder blocks.
    with torch.device("meta"):
        model = create_model(name, 9, 20, color=0, decoder_depths=(0, 0, 0, 0))
    count = sum(parameter.numel() for parameter in model.backbone.parameters())
    assert int(count / 1e4) / 100 == published


def test_every_table_grows_with_what_is_compared():
    rows = [
        toy(**arguments)
        .unet.encoder[0]
        .blocks[0]
        .block.mixer.attention.encoding.query_table.shape[0]
        for arguments in ({}, {"color": 0}, {"color": 0, "normal": 3})
    ]
    assert rows == [120, 216, 312]  # 3 * 2 * 5 * 4, and 3 * 2 * 16 more for each


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"depths": (1,)}, "depths must have 2 entries to fit channels"),
        ({"strides": (3, 3)}, "strides must have 1 entries"),
        ({"decoder_depths": ()}, "decoder_depths must have 1 entries"),
        ({"num_heads": (2, 5)}, "channels 24 must be a multiple of num_heads 5"),
        ({"color": 5}, "color must be the first of three of the 7 channels, found 5"),
        ({"normal": -1}, "normal must be the first of three"),
        ({"grid_size": 0.0}, "grid_size must be above 0 and finite, found 0"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        toy(**wrong)
