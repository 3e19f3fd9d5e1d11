"""PTv2 against the numbers of its published implementation, and what it alone promises."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from pctx.geometry.neighbors import interpolation_weights
from pctx.geometry.packed import batch_from_offsets, cloud_minimum, segment_mean
from pctx.models.factory import create_model
from pctx.models.point_transformer_v2 import PointTransformerV2, Unpool
from pctx.models.published_v2 import ptv2_name
from tests.models.clouds import single_clouds
from tests.models.published_case import assert_published_size, golden_files
from tests.models.vector_case import (
    assert_a_training_step,
    assert_checkpointing_changes_nothing,
    assert_missing_neighbours_have_no_say,
    assert_published,
    batch_of,
    case_of,
    segmentor,
)

FILES = golden_files("ptv2*")
S3DIS = {
    "channels": (48, 96, 192, 384),
    "depths": (2, 2, 6, 2),
    "groups": (6, 12, 24, 48),
    "num_neighbors": 16,
    "cell_sizes": (2.5, 5, 10),
    "decoder_channels": (48, 96, 192),
    "decoder_depths": (1, 1, 1),
    "decoder_groups": (6, 12, 24),
    "unpooling": "interpolation",
}
ROWS = {
    "ptv2m1_scannet": ("ptv2_m1", {}),
    "ptv2m1_s3dis": ("ptv2_m1", S3DIS),
    "ptv2m2_scannet": ("ptv2", {}),
    "ptv2m2_s3dis": ("ptv2_m2", S3DIS),
    "ptv2m2_nuscenes": ("ptv2_m2", {}),
    "ptv2m2_semantickitti": ("ptv2_m2", {}),
}

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])


def small(k=16, seed=0, **overrides):
    arguments = {
        "groups": (2, 3, 4),
        "cell_sizes": (2, 5),
        "decoder_channels": (16, 24),
        "decoder_depths": (1, 1),
        "decoder_groups": (2, 3),
        "decoder_num_neighbors": k,
        "drop_path": 0.0,
    }
    return segmentor(PointTransformerV2, k, seed, **{**arguments, **overrides})


@DTYPES
@pytest.mark.parametrize("file", FILES)
def test_logits_loss_and_gradients_are_the_published_ones(golden, file, dtype):
    assert_published(golden, file, dtype)


@DTYPES
@pytest.mark.parametrize("file", golden_files("ptv2*", "_trainbn"))
def test_batch_statistics_are_the_published_ones(golden, file, dtype):
    assert_a_training_step(golden, file, dtype)


@DTYPES
@pytest.mark.parametrize("file", golden_files("ptv2*", "_stages"))
def test_levels_are_the_published_ones(golden, file, dtype):
    case = case_of(golden, file, dtype)
    levels, stages = case.backbone.plan(case.batch).levels, case.stages()
    near = torch.from_numpy(stages["level/0/knn_index"]).long()
    assert torch.equal(levels[0].neighbors.first(8).index, near)
    for i, (fine, coarse) in enumerate(pairwise(levels), start=1):
        assert coarse.offsets.diff().tolist() == stages["level/counts"][i].tolist()
        assert fine.pooling.cluster.tolist() == stages[f"level/{i}/cluster"].tolist()
        # The published mean is of float32, and adds in another order.
        np.testing.assert_allclose(coarse.coord, stages[f"level/{i}/coord"], atol=2e-6)


@pytest.mark.parametrize("row", ROWS)
def test_counts_names_and_shapes_are_the_published_ones(golden, row):
    model, overrides = ROWS[row]
    with torch.device("meta"):
        assert_published_size(
            golden, row, lambda *io: create_model(model, *io, **overrides), ptv2_name
        )


@pytest.mark.parametrize("own", ["backbone.unet.encoder.0.blocks.0.x.weight", "head.weight"])
def test_a_name_that_is_not_published_is_refused(own):
    with pytest.raises(ValueError, match=f"a PTv2 segmentor has no weight named '{own}'"):
        ptv2_name(own)


@pytest.mark.parametrize("file", ["ptv2m1_base", "ptv2m2_base"])
def test_by_default_large_clouds_are_as_published(golden, file):
    given = case_of(golden, file, torch.float64)
    default = case_of(golden, file, torch.float64, published=False)
    with torch.no_grad():
        torch.testing.assert_close(default.model(given.batch), given.model(given.batch))


def test_missing_neighbours_have_no_say():
    assert_missing_neighbours_have_no_say(small)


def test_cells_are_cut_between_voxels_and_merge_again_from_level_to_level():
    batch = batch_of([150, 0, 1, 60])
    levels = small().backbone.plan(batch).levels
    position = batch.grid_coord.double()
    for level, size in zip(levels, (2, 5), strict=False):
        cloud = batch_from_offsets(level.offsets, level.num_points)
        lowest = cloud_minimum(position, level.offsets)[cloud]
        cell = ((position - lowest) / size).floor()
        # Rows of one cloud and cell have one cluster, and no others have it.
        cells, number = torch.cat([cloud[:, None], cell], 1).unique(dim=0, return_inverse=True)
        pairs = torch.stack([number, level.pooling.cluster]).unique(dim=1)
        assert pairs.shape[1] == len(cells) == level.pooling.num_coarse
        position = segment_mean(position[level.pooling.order], level.pooling.starts)


def test_in_voxels_the_scale_of_metres_does_not_matter_to_pooling():
    batch = batch_of([150, 40])
    half = replace(batch, coord=batch.coord / 2)
    plans = [small().backbone.plan(each).levels for each in (batch, half)]
    for a, b in zip(*plans, strict=True):
        assert torch.equal(a.offsets, b.offsets)
        assert torch.equal(a.neighbors.index, b.neighbors.index)
    metres = small(grid_size=0.0625).backbone.plan(half).levels
    assert torch.equal(metres[0].pooling.cluster, plans[1][0].pooling.cluster)


@pytest.mark.parametrize("unpooling", ["map", "interpolation"])
def test_features_come_up_by_copies_or_between_the_nearest(unpooling):
    torch.manual_seed(0)
    level = small(unpooling=unpooling).backbone.plan(batch_of([60, 2])).levels[0]
    join = Unpool(32, 24, 16).double().eval()
    coarse, fine = torch.randn(level.pooling.num_coarse, 32), torch.randn(62, 24)
    up = join.up(coarse.double())
    if unpooling == "map":
        expected = up[level.pooling.cluster]
    else:
        near = level.nearest_coarse
        expected = (up[near.index] * interpolation_weights(near)[..., None]).sum(1)
    out = join(coarse.double(), fine.double(), level)
    torch.testing.assert_close(out, expected + join.skip(fine.double()))


@pytest.mark.parametrize("unpooling", ["map", "interpolation"])
@pytest.mark.parametrize("encoding", ["linear", "grouped"])
def test_clouds_of_any_size_do_not_hear_each_other_nor_their_order(unpooling, encoding):
    model = small(unpooling=unpooling, encoding=encoding, position_multiplier=True).eval()
    batch = batch_of([300, 0, 1, 2, 15, 16, 17])
    logits = model(batch)
    torch.testing.assert_close(logits, torch.cat([model(c) for c in single_clouds(batch)]))
    limits = batch.offsets.tolist()
    order = torch.cat([torch.randperm(b - a) + a for a, b in pairwise(limits)])
    shuffled = replace(
        batch,
        coord=batch.coord[order],
        grid_coord=batch.grid_coord[order],
        feat=batch.feat[order],
        label=None,
    )
    torch.testing.assert_close(model(shuffled), logits[order])
    assert small(published=True, unpooling=unpooling)(batch).isfinite().all()


def test_stochastic_depth_rises_from_the_first_pooling_and_over_the_decoder():
    unet = create_model("ptv2", 4, 3).backbone.unet
    rates = [b.drop_path.probability for stage in unet.encoder for b in stage.blocks]
    assert rates[:2] == [0, 0] and rates[-1] == pytest.approx(0.3) and rates == sorted(rates)
    rates = [b.drop_path.probability for up in unet.decoder for b in up.stage.blocks]
    assert rates[0] == 0 and rates[-1] == pytest.approx(0.3) and rates == sorted(rates)


def test_checkpointing_changes_nothing_but_time():
    assert_checkpointing_changes_nothing(small)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"depths": [1]}, r"depths must have 3 entries to fit channels, found \[1\]"),
        ({"groups": [1]}, "groups must have 3 entries"),
        ({"num_neighbors": [8]}, "num_neighbors must have 3 entries"),
        ({"cell_sizes": [4]}, "cell_sizes must have 2 entries"),
        ({"decoder_channels": [16]}, "decoder_channels must have 2 entries"),
        ({"decoder_num_neighbors": [16]}, "decoder_num_neighbors must have 2 entries"),
        ({"groups": [3, 3, 4]}, "channels 16 must be a multiple of groups 3"),
        ({"unpooling": "copy"}, "unpooling must be map or interpolation, found copy"),
        ({"encoding": "mlp"}, "encoding must be linear or grouped, found mlp"),
        ({"grid_size": 0}, "grid_size must be above 0 and finite, found 0"),
        ({"drop_path": 1.0}, "drop_path must be in"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        small(**wrong)
