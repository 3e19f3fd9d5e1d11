"""OctFormer against the numbers of its published implementation, and what it alone promises."""

from dataclasses import replace

import pytest
import torch

from pctx.geometry.curves import encode_curves
from pctx.geometry.packed import batch_from_offsets
from pctx.models.factory import create_model
from pctx.models.octformer import OctFormer
from pctx.models.published_octformer import from_octree_axes, octformer_name, to_octree_axes
from tests.models.clouds import random_batch, single_clouds
from tests.models.published_case import PublishedCase, assert_published_size, golden_files

FILES = golden_files("octformer_*")

# Logits are up to 96; the reference's own float32 is 4.5e-5 from its float64.
LOGITS = {torch.float32: 2e-4, torch.float64: 1e-9}
# Of the largest entry; the reference's own is 1.4e-6, and a ReLU near zero may switch.
GRADIENTS = {torch.float32: 2e-2, torch.float64: 1e-9}

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])


def published_backbone(meta):
    """Build a backbone from OctFormer's published argument names."""
    config = meta["config"]
    assert config["head_up"] == config["stem_down"]
    return OctFormer(
        in_channels=config["in_channels"],
        channels=config["channels"],
        depths=config["num_blocks"],
        num_heads=config["num_heads"],
        window_size=config["patch_size"],
        dilation=config["dilation"],
        stem_levels=config["stem_down"],
        pyramid_channels=config["fpn_channels"],
        drop_path=config["drop_path"],
        octree_depth=config["octree_depth"],
        octree_scale=config["octree_scale_factor"],
        published=True,
    )


def case_of(golden, file, dtype=torch.float32):
    path = golden / f"{file}.npz"
    return PublishedCase(path, dtype, published_backbone, octformer_name, from_octree_axes)


def tiny(**overrides):
    torch.manual_seed(0)
    return create_model("octformer_tiny", 4, 3, window_size=8, **overrides).eval()


@DTYPES
@pytest.mark.parametrize("file", FILES)
def test_logits_loss_and_gradients_are_the_published_ones(golden, file, dtype):
    case_of(golden, file, dtype).assert_published(LOGITS[dtype], GRADIENTS[dtype])


@pytest.mark.parametrize("file", golden_files("octformer_*", "_stages"))
def test_the_octree_is_the_published_one(golden, file):
    case = case_of(golden, file)
    stages, depth = case.stages(), case.backbone.octree_depth
    for level in case.backbone.plan(case.batch).levels[1:]:
        keys = torch.from_numpy(stages[f"level/{depth}/key_nonempty"])
        batch = batch_from_offsets(level.offsets, level.num_points)
        code = encode_curves(level.grid_coord, depth, ("z",))[0]
        assert torch.equal(batch << 48 | code, keys)
        depth -= 1


def test_counts_names_and_shapes_are_the_published_ones(golden):
    with torch.device("meta"):
        assert_published_size(
            golden,
            "octformer_scannet",
            lambda *io: create_model("octformer", *io),
            octformer_name,
            to_octree_axes,
        )


def test_axes_go_round():
    for own, value in tiny().state_dict().items():
        there = to_octree_axes(own, value)
        assert torch.equal(from_octree_axes(own, there), value)
        assert (there.dim() == 3) == (own.endswith("conv.weight"))


def test_a_name_that_is_not_octformers_is_refused():
    for name in ("backbone.stages.0.blocks.0.x.weight", "head.weight"):
        with pytest.raises(ValueError, match=f"OctFormer segmentor has no weight named '{name}'"):
            octformer_name(name)


def test_clouds_are_cut_in_a_row_as_published_and_by_themselves_by_default():
    model, batch = tiny(), random_batch([90, 200])
    batch = replace(batch, coord=batch.grid_coord * 0.01 + 0.005)  # voxels that are leaves
    moved = {}
    for published in (True, False):
        model.backbone.published = published
        alone = torch.cat([model(cloud) for cloud in single_clouds(batch)])
        moved[published] = (model(batch) - alone).abs()
    assert moved[True][:90].max() < 1e-5 and moved[True][90:].max() > 1e-3
    assert moved[False].max() < 1e-5


def test_voxels_that_are_the_published_leaves_give_the_published_result():
    model, batch = tiny(octree_depth=8, octree_scale=12.8), random_batch([300])
    corner = replace(batch, coord=(batch.grid_coord + 0.5) * 0.1 - 12.8)
    default = model(corner)
    model.backbone.published = True
    torch.testing.assert_close(model(corner), default, rtol=0, atol=1e-5)
    # Elsewhere in the cube the nodes lie otherwise about the cloud.
    assert (model(batch) - default).abs().max() > 1e-3


def test_points_of_one_leaf_are_averaged_and_get_one_result():
    model = tiny(published=True, octree_depth=8, octree_scale=12.8)
    batch = random_batch([60])
    twice = replace(
        batch,
        coord=batch.coord.repeat_interleave(2, 0),
        grid_coord=batch.grid_coord.repeat_interleave(2, 0),
        feat=torch.stack([batch.feat - 1, batch.feat + 1], 1).flatten(0, 1),
        offsets=batch.offsets * 2,
        label=None,
    )
    expected = model(batch).repeat_interleave(2, 0)
    torch.testing.assert_close(model(twice), expected, rtol=0, atol=1e-5)


def test_the_published_octree_must_hold_every_point():
    model, batch = tiny(published=True), random_batch([60])
    far = replace(batch, coord=batch.coord + torch.tensor([0.0, 0.0, 20.0]))
    with pytest.raises(ValueError, match="60 of 60 points are outside the octree"):
        model(far)
    model.backbone.published = False
    assert torch.equal(model(far), model(batch))


def test_the_stem_goes_up_and_the_head_back_to_the_leaves():
    model, batch = tiny(stem_levels=2), random_batch([300, 20])
    hierarchy = model.backbone.plan(batch)
    points, *nodes = hierarchy.levels
    assert not points.kernel_maps and not points.strided_maps
    assert [len(level.windows) for level in nodes] == [0, 0, 2, 2, 2, 2]
    assert [sorted(level.strided_maps) for level in nodes] == [[2, 3], [2, 3], [2], [2], [2], []]
    assert nodes[0].num_points == points.num_points == 320
    assert model(batch).shape == (320, 3)


def test_without_a_stem_the_leaves_are_the_nodes_of_the_first_stage():
    model, batch = tiny(stem_levels=0), random_batch([300, 20])
    _, *nodes = model.backbone.plan(batch).levels
    assert [len(level.windows) for level in nodes] == [2, 2, 2, 2]
    assert [sorted(level.strided_maps) for level in nodes] == [[2], [2], [2], []]
    assert len(model.backbone.up) == 0 and model(batch).shape == (320, 3)


def test_blocks_take_turns_with_plain_and_dilated_windows():
    model, batch = tiny(depths=(3, 1, 1, 1), stem_levels=1), random_batch([400])
    hierarchy = model.backbone.plan(batch)
    first = hierarchy.levels[2]  # after the points and the leaves
    plain, dilated = first.windows
    assert plain.index[0].tolist() == list(range(8))
    assert dilated.index[0].tolist() == list(range(0, 32, 4))
    seen = []
    for block in model.backbone.stages[0].blocks:
        block.transformer.mixer.register_forward_hook(lambda _, given, __: seen.append(given[1]))
    model(batch, hierarchy)
    assert [windows is dilated for windows in seen] == [False, True, False]


def test_stochastic_depth_rises_to_the_last_block():
    model = OctFormer(in_channels=4, drop_path=0.5, depths=(2, 2, 3, 2))
    blocks = [block for stage in model.stages for block in stage.blocks]
    rates = [block.transformer.drop_path.probability for block in blocks]
    assert rates == sorted(rates) and rates[0] == 0 and rates[-1] == 0.5


def test_norms_after_convolutions_have_the_eps_asked_for():
    model = tiny(norm_eps=1e-3)
    eps = {name: m.eps for name, m in model.named_modules() if hasattr(m, "running_mean")}
    for name, value in eps.items():
        old = any(part in name for part in ("stem", "pyramid", ".up."))
        assert value == (1e-3 if old else 1e-5), name


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"depths": [1, 1]}, r"depths must have 4 entries to fit channels, found \[1, 1\]"),
        ({"num_heads": [6, 12, 24, 25]}, "channels 384 must be a multiple of num_heads 25"),
        ({"drop_path": 1.0}, "drop_path must be in"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        OctFormer(in_channels=4, **wrong)
