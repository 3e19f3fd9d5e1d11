"""Attention maps and rollout: against dense matrices, and what must hold whatever the model."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pctx.data.prepare import prepare
from pctx.geometry.hierarchy import Hierarchy
from pctx.geometry.points import PointCloud
from pctx.inference.attention_maps import attention_map, attention_rollout
from pctx.inference.inside import list_layers, record
from pctx.inference.relevance import carried, copied, on_raw_points, parents, spread
from pctx.models.factory import create_model, list_models
from pctx.models.segmentor import Segmentor
from tests.inference.attentive_models import (
    Deaf,
    Flat,
    Selfish,
    dense_attention,
    flat,
    heard_inputs,
    pooling_matrices,
    toy_unet,
)
from tests.models.clouds import random_batch
from tests.toy import toy_checkpoint, toy_cloud

MODELS = [name for name in list_models() if name.endswith("_tiny")]
CLOSE = {"rtol": 0, "atol": 1e-6}  # weights are 0.01 to 1, sums of float32 in another order


def dense_layers(model, points):
    """The attention of each layer of a model, the mean of its heads: [(n, n)]."""
    with torch.no_grad():
        return [
            dense_attention(module, *inputs).mean(0)
            for module, inputs in heard_inputs(model, points)
        ]


@pytest.mark.parametrize("head", [None, 1])
def test_a_map_is_a_row_of_the_softmax(head):
    model, points = flat(), random_batch([11, 4], channels=8)
    ((module, inputs),) = heard_inputs(model, points)
    with torch.no_grad():
        dense = dense_attention(module, *inputs)
    dense = dense.mean(0) if head is None else dense[head]
    for query in range(15):
        found = attention_map(model, points, None, head, query)
        torch.testing.assert_close(found.point, dense[query], **CLOSE)
        torch.testing.assert_close(found.weight, dense[query, found.index], **CLOSE)


def test_masked_slots_are_left_out():
    model, points = flat(), random_batch([11, 3], channels=8)
    found = attention_map(model, points, None, None, 12)
    assert sorted(found.index.tolist()) == [11, 12, 13]
    torch.testing.assert_close(found.weight.sum(), torch.tensor(1.0))


def test_on_a_coarse_level_the_point_that_the_query_was_pooled_into_asks():
    model, points = toy_unet(), random_batch([70, 20])
    levels = model.backbone.plan(points).levels
    coarse = dense_layers(model, points)[2]
    _, down = pooling_matrices(levels)
    for query in (0, 35, 69, 80):
        found = attention_map(model, points, 2, None, query)
        assert found.query == levels[0].pooling.cluster[query]
        assert found.layer.level == 1
        torch.testing.assert_close(found.point, coarse[found.query] @ down, **CLOSE)
        torch.testing.assert_close(found.point.sum(), torch.tensor(1.0))


def test_by_default_the_last_layer_of_the_finest_level_is_shown():
    model, points = toy_unet(), random_batch([70])
    found = attention_map(model, points, None, None, 7)
    assert found.layer.number == 3
    torch.testing.assert_close(found.point, dense_layers(model, points)[3][7], **CLOSE)
    by_name = attention_map(model, points, found.layer.name, None, 7)
    assert torch.equal(by_name.point, found.point)


def test_biases_count():
    model = toy_unet(relative_position_bias=True)
    for module in model.modules():
        if hasattr(module, "table"):
            module.table.data.normal_()
    points = random_batch([40])
    ((module, inputs), *_) = heard_inputs(model, points)
    with torch.no_grad():
        expected = dense_attention(module, *inputs).mean(0)
    for query in (3, 39):
        found = attention_map(model, points, 0, None, query)
        torch.testing.assert_close(found.point, expected[query], **CLOSE)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"query": 40}, "points 0 to 39, found 40"),
        ({"query": -1}, "points 0 to 39, found -1"),
        ({"query": 0, "layer": 9}, "no attention layer 9"),
        ({"query": 0, "layer": "head"}, "no attention layer head"),
        ({"query": 0, "layer": 2, "head": 4}, "layer 2 has heads 0 to 3, found 4"),
        ({"query": 0, "head": -1}, "layer 3 has heads 0 to 1, found -1"),
    ],
)
def test_what_is_not_there_is_named(asked, words):
    with pytest.raises(ValueError, match=words):
        attention_map(toy_unet(), random_batch([40]), **({"layer": None, "head": None} | asked))


def test_rollout_is_the_product_of_the_layers():
    model, points = flat(num_layers=3), random_batch([12, 9], channels=8)
    product = torch.eye(21)
    for attention in dense_layers(model, points):
        product = (attention + torch.eye(21)) / 2 @ product
    for query in (0, 11, 20):
        found = attention_rollout(model, points, query)
        torch.testing.assert_close(found, product[query], **CLOSE)


def test_rollout_takes_both_ways_through_a_unet():
    model, points = toy_unet(), random_batch([60, 12])
    first, second, coarse, last = (
        (attention + torch.eye(len(attention))) / 2 for attention in dense_layers(model, points)
    )
    up, down = pooling_matrices(model.backbone.plan(points).levels)
    product = last @ (torch.eye(72) + up @ coarse @ down) / 2 @ second @ first
    for query in (5, 59, 66):
        found = attention_rollout(model, points, query)
        torch.testing.assert_close(found, product[query], **CLOSE)


@pytest.mark.parametrize("kind", [Selfish, Deaf])
def test_where_every_point_hears_itself_or_nobody_rollout_is_the_identity(kind):
    model = Segmentor(Flat([kind(), kind()]), 3).eval()
    points = random_batch([12, 3], channels=8)
    for query in range(15):
        expected = torch.zeros(15).index_fill_(0, torch.tensor([query]), 1)
        assert torch.equal(attention_rollout(model, points, query), expected)


def test_rollout_stays_in_the_cloud_of_the_query():
    found = attention_rollout(toy_unet(), random_batch([30, 40]), 35)
    assert (found[:30] == 0).all()


@pytest.mark.parametrize("name", MODELS)
def test_what_is_heard_sums_to_one_in_every_model(name):
    torch.manual_seed(0)
    model = create_model(name, 4, 3).eval()
    points = random_batch([150, 40])
    one = torch.tensor(1.0)
    for layer in list_layers(model):
        found = attention_map(model, points, layer.number, None, 77)
        torch.testing.assert_close(found.weight.sum(), one)
        torch.testing.assert_close(found.point.sum(), one)
    found = attention_rollout(model, points, 77)
    torch.testing.assert_close(found.sum(), one)
    assert (found >= 0).all() and (found[150:] == 0).all()


def test_a_coarse_value_is_shared_or_copied():
    model, points = toy_unet(), random_batch([60])
    levels = model.backbone.plan(points).levels
    cluster, coarse = parents(levels, 0), torch.rand(levels[1].num_points)
    assert torch.equal(copied(coarse, levels, 1), coarse[cluster])
    torch.testing.assert_close(spread(coarse, levels, 1), coarse @ pooling_matrices(levels)[1])
    assert torch.equal(spread(coarse, levels, 0), coarse)


@pytest.mark.parametrize(("joins", "share"), [((0,), 0.5), ((), 0.0)])
def test_where_nothing_is_added_on_the_way_back_all_went_through_the_coarse_level(joins, share):
    model, points = toy_unet(), random_batch([60])
    with torch.no_grad():
        run = replace(record(model, points), joins=joins)
    start = torch.rand(60)
    up, down = pooling_matrices(run.levels)
    found = carried(run, start, lambda _, relevance: relevance, joined=0.5)
    torch.testing.assert_close(found, share * start + (1 - share) * start @ up @ down)


def test_levels_of_as_many_points_are_told_apart():
    torch.manual_seed(0)
    model = create_model("octformer_tiny", 4, 3).eval()
    levels = [layer.level for layer in list_layers(model)]  # on a single point
    with torch.no_grad():
        assert levels == [layer.level for layer in record(model, random_batch([200])).layers]
    assert levels == sorted(levels) and len(set(levels)) > 1


def test_a_plan_that_does_not_say_how_it_pools_is_refused():
    levels = flat().backbone.plan(random_batch([5])).levels
    with pytest.raises(ValueError, match="how level 0 is pooled"):
        parents(Hierarchy(levels=levels * 2).levels, 0)


def test_every_raw_point_has_the_value_of_its_voxel():
    checkpoint, cloud = toy_checkpoint(), toy_cloud(400)
    coord = np.insert(cloud.coord, 3, [np.nan, 0, 0], axis=0)
    sample = prepare(PointCloud(coord=coord), grid_size=0.5, features=checkpoint.features)
    found = attention_map(checkpoint.build(), sample.points, None, None, 9)
    raw = on_raw_points(found.point, sample)
    assert raw.dtype == np.float32 and len(raw) == 401
    assert np.isnan(raw[3]) and np.isfinite(np.delete(raw, 3)).all()
    for row in (0, 200, 400):
        assert raw[row] == found.point[sample.inverse[row]]
