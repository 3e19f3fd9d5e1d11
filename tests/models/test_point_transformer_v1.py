"""PTv1 against the numbers of its published implementation, and what it alone promises."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from pctx.geometry.canonical import canonical_level
from pctx.geometry.packed import segment_mean
from pctx.models.factory import create_model
from pctx.models.point_transformer_v1 import Bottom, PointTransformerV1, TransitionDown
from pctx.models.published_v1 import ptv1_name
from pctx.models.unet import Stage
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

FILES = golden_files("ptv1_*")
ROWS = {
    "ptv1_s3dis": "ptv1",
    "ptv1_scannet": "ptv1_seg50",
    "ptv1_seg26_s3dis": "ptv1_seg26",
    "ptv1_seg38_s3dis": "ptv1_seg38",
}

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])


def small(k=16, seed=0, **overrides):
    arguments = {"decoder_depths": (1, 1, 1), "strides": (4, 4)}
    return segmentor(PointTransformerV1, k, seed, **{**arguments, **overrides})


@DTYPES
@pytest.mark.parametrize("file", FILES)
def test_logits_loss_and_gradients_are_the_published_ones(golden, file, dtype):
    assert_published(golden, file, dtype)


@DTYPES
@pytest.mark.parametrize("file", golden_files("ptv1_*", "_trainbn"))
def test_batch_statistics_are_the_published_ones(golden, file, dtype):
    assert_a_training_step(golden, file, dtype)


@DTYPES
@pytest.mark.parametrize("file", golden_files("ptv1_*", "_stages"))
def test_levels_are_the_published_ones(golden, file, dtype):
    case = case_of(golden, file, dtype)
    levels, stages = case.backbone.plan(case.batch).levels, case.stages()
    k = case.backbone.num_neighbors[0]
    near = torch.from_numpy(stages["level/0/knn_index"]).long()
    assert torch.equal(levels[0].neighbors.first(k).index, near)
    for i, (fine, coarse) in enumerate(pairwise(levels), start=1):
        assert coarse.offsets.diff().tolist() == stages["level/counts"][i].tolist()
        assert fine.sampled.tolist() == stages[f"level/{i}/fps_index"].tolist()


@pytest.mark.parametrize("row", ROWS)
def test_counts_names_and_shapes_are_the_published_ones(golden, row):
    with torch.device("meta"):
        assert_published_size(golden, row, lambda *io: create_model(ROWS[row], *io), ptv1_name)


@pytest.mark.parametrize("own", ["backbone.unet.encoder.0.blocks.0.x.weight", "head.weight"])
def test_a_name_that_is_not_published_is_refused(own):
    with pytest.raises(ValueError, match=f"a PTv1 segmentor has no weight named '{own}'"):
        ptv1_name(own)


def test_by_default_large_clouds_are_as_published_but_for_the_first_sample(golden):
    given = case_of(golden, "ptv1_seg26", torch.float64)
    order = canonical_level(given.batch)[1]
    batch = replace(
        given.batch,
        coord=given.batch.coord[order],
        grid_coord=given.batch.grid_coord[order],
        feat=given.batch.feat.detach()[order],
    )
    default = case_of(golden, "ptv1_seg26", torch.float64, published=False)
    with torch.no_grad():
        torch.testing.assert_close(default.model(batch), given.model(batch))


def test_missing_neighbours_have_no_say():
    assert_missing_neighbours_have_no_say(small)


def test_every_cloud_keeps_a_point_but_as_published():
    batch = batch_of([3, 0, 40, 1])
    levels = small().backbone.plan(batch).levels
    assert [level.offsets.diff().tolist() for level in levels] == [
        [3, 0, 40, 1],
        [1, 0, 10, 1],
        [1, 0, 2, 1],
    ]
    published = small(published=True)
    levels = published.backbone.plan(batch).levels
    assert levels[1].offsets.diff().tolist() == [0, 0, 10, 0]
    assert published(batch).isfinite().all()
    nothing_left = batch_of([3])
    assert published(nothing_left).isfinite().all()


def test_sampling_starts_at_the_first_voxel_along_the_curve_but_as_published():
    batch = batch_of([50, 30])
    first = canonical_level(batch)[1][batch.offsets[:-1]]
    sampled = small().backbone.plan(batch).levels[0].sampled
    assert torch.equal(sampled[[0, 12]], first)
    sampled = small(published=True).backbone.plan(batch).levels[0].sampled
    assert torch.equal(sampled[[0, 12]], batch.offsets[:-1])


@pytest.mark.parametrize("published", [False, True])
def test_a_transition_down_is_the_largest_of_offset_and_features(published):
    torch.manual_seed(0)
    batch = batch_of([5, 40])
    level = small(8).backbone.plan(batch).levels[0]
    step = TransitionDown(16, 24, 8, published=published).double().eval()
    step.norm.running_mean.uniform_(-1, 1)
    feat = torch.randn(45, 16).double()
    out = step(feat, level)
    for row, i in enumerate(level.sampled):
        index, valid = level.neighbors.index[i], level.neighbors.valid[i]
        near = torch.cat([level.coord[index] - level.coord[i], feat[index]], 1)
        near = near.masked_fill(~valid[:, None], 0) if published else near[valid]
        expected = step.norm(step.linear(near)).relu().amax(0)
        torch.testing.assert_close(out[row], expected)


def test_the_bottom_adds_the_mean_of_the_own_cloud():
    torch.manual_seed(0)
    bottom, feat = Bottom(16, Stage([])).double().eval(), torch.randn(7, 16).double()
    level = small(4).backbone.plan(batch_of([4, 0, 3])).levels[0]
    mean = segment_mean(feat, level.offsets)
    whole = torch.cat([mean[:1].expand(4, -1), mean[2:].expand(3, -1)])
    expected = bottom.join(torch.cat([feat, bottom.mean(whole).relu()], 1))
    torch.testing.assert_close(bottom(feat, level), expected)


def test_checkpointing_changes_nothing_but_time():
    assert_checkpointing_changes_nothing(small)


def test_the_number_of_classes_matters_to_the_last_layer_alone():
    three, five = (create_model("ptv1_tiny", 4, classes).state_dict() for classes in (3, 5))
    other = [key for key in three if three[key].shape != five[key].shape]
    assert other == ["head.out.weight", "head.out.bias"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"depths": [1]}, r"depths must have 3 entries to fit channels, found \[1\]"),
        ({"decoder_depths": [1, 1]}, "decoder_depths must have 3 entries"),
        ({"num_neighbors": [8]}, "num_neighbors must have 3 entries"),
        ({"strides": [4]}, "strides must have 2 entries"),
        ({"channels": [12, 24, 32]}, "channels 12 must be a multiple of share_channels 8"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        small(**wrong)
