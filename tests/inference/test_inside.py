"""Looking inside: which layers there are, what they were given, whom their points hear."""

from dataclasses import replace

import pytest
import torch

from pctx.geometry.neighbors import Neighborhood, knn
from pctx.geometry.windows import grid_windows, serial_windows
from pctx.inference import hearing
from pctx.inference.hearing import attention_of, gain_of
from pctx.inference.inside import (
    Layer,
    describe_layers,
    feature_module,
    find_layer,
    list_layers,
    record,
)
from pctx.models.factory import create_model, list_models
from pctx.models.segmentor import Segmentor
from pctx.nn.attention import WindowAttention
from pctx.nn.attentive import Attentive
from pctx.nn.neighbor_attention import NeighborAttention
from pctx.nn.rotary_attention import RotaryWindowAttention
from pctx.nn.vector_attention import GroupedVectorAttention, VectorAttention
from tests.inference.attentive_models import Selfish, Silent, dense_attention, toy_unet
from tests.models.clouds import random_batch
from tests.nn.clouds import random_voxels

MODELS = [name for name in list_models() if name.endswith("_tiny")]
COUNTS = [40, 0, 3, 16]
CLOSE = {"rtol": 0, "atol": 1e-5}  # sums of float32 in another order


def everyone(n):
    return torch.arange(n)


def layers_of_every_kind():
    """One layer each, with the inputs of its forward."""
    torch.manual_seed(0)
    grid_coord, offsets = random_voxels(COUNTS)
    feat, coord = torch.randn(len(grid_coord), 24), grid_coord.float()
    serial = serial_windows(everyone(len(feat)), offsets, 7)
    grid = grid_windows(grid_coord, offsets, 3)
    near = knn(coord, offsets, 5)
    bias = torch.randn(serial.num_windows, 2, 7, 7)
    kinds = {
        "windows": (WindowAttention(24, 2), (feat, serial)),
        "windows with a bias": (WindowAttention(24, 2), (feat, serial, bias)),
        "windows with masked slots": (WindowAttention(24, 3), (feat, grid)),
        "rotary": (RotaryWindowAttention(24, 2), (feat, grid_coord, grid)),
        "neighbours": (NeighborAttention(24, 2), (feat, near)),
        "neighbours with a bias": (
            NeighborAttention(24, 2),
            (feat, near, torch.randn(len(feat), 2, 1, 5)),
        ),
        "vector": (VectorAttention(24), (feat, coord, near)),
        "grouped vector": (GroupedVectorAttention(24, 6), (feat, coord, near)),
        "vector in windows": (VectorAttention(24, share_channels=3), (feat, coord, grid)),
        "itself": (Selfish(), (feat, serial)),
    }
    return {
        name: Layer(
            number=0,
            name=name,
            level=0,
            decoder=False,
            module=module.eval(),
            inputs=inputs,
            output=module.eval()(*inputs).detach(),
        )
        for name, (module, inputs) in kinds.items()
    }


LAYERS = layers_of_every_kind()


@pytest.fixture(params=LAYERS)
def layer(request):
    return LAYERS[request.param]


def dense(parts, n):
    """(n, h, n): what was heard, in a matrix."""
    heads = parts[0].weights.shape[1]
    matrix = torch.zeros(n, heads, n)
    for heard in parts:
        index = heard.index[:, None].expand_as(heard.weights)
        rows = torch.zeros(len(heard.rows), heads, n).scatter_add_(2, index, heard.weights)
        matrix[heard.rows] = rows
    return matrix


def test_every_kind_of_attention_can_be_looked_into(layer):
    assert isinstance(layer.module, Attentive)


def test_with_its_own_weights_a_layer_says_what_it_says(layer):
    weights = layer.module.weights(*layer.inputs)
    torch.testing.assert_close(layer.module.attend(weights, *layer.inputs), layer.output, **CLOSE)


def test_what_a_point_hears_sums_to_one_and_masked_slots_are_silent(layer):
    for heard in attention_of(layer, everyone(len(layer.output))):
        assert heard.weights.ndim == 3
        torch.testing.assert_close(
            heard.weights.sum(2), torch.ones(heard.weights.shape[:2]), **CLOSE
        )
        if heard.valid is not None:
            masked = ~heard.valid[:, None].expand_as(heard.weights)
            assert (heard.weights[masked] == 0).all()


def test_a_few_points_hear_what_they_hear_among_all(layer):
    n = len(layer.output)
    every = dense(list(attention_of(layer, everyone(n))), n)
    rows = torch.tensor([57, 3, 41, 0, 22])
    few = dense(list(attention_of(layer, rows)), n)
    torch.testing.assert_close(few[rows], every[rows], **CLOSE)
    others = torch.ones(n, dtype=torch.bool).index_fill(0, rows, False)
    assert (few[others] == 0).all()


def test_memory_in_parts_changes_nothing(layer, monkeypatch):
    n = len(layer.output)
    gradient = torch.randn(n, 24, generator=torch.Generator().manual_seed(1))
    paid = dense(list(attention_of(layer, everyone(n))), n)
    gained = dense(list(gain_of(layer, everyone(n), gradient)), n)
    monkeypatch.setattr(hearing, "NUMBERS_AT_ONCE", 1)
    parts = list(attention_of(layer, everyone(n)))
    assert len(parts) > 5
    assert sorted(torch.cat([heard.rows for heard in parts]).tolist()) == list(range(n))
    torch.testing.assert_close(dense(parts, n), paid, **CLOSE)
    again = dense(list(gain_of(layer, everyone(n), gradient)), n)
    torch.testing.assert_close(again, gained, **CLOSE)


def test_a_window_is_heard_as_the_equation_says():
    for name in ("windows", "windows with a bias", "windows with masked slots"):
        layer = LAYERS[name]
        with torch.no_grad():
            expected = dense_attention(layer.module, *layer.inputs)
        n = len(layer.output)
        found = dense(list(attention_of(layer, everyone(n))), n)
        torch.testing.assert_close(found.transpose(0, 1), expected, **CLOSE)


def test_the_weights_of_a_point_are_computed_for_its_window_alone(monkeypatch):
    seen = []

    class Counting(WindowAttention):
        def weights(self, feat, windows, bias=None):
            seen.append((len(feat), windows.num_windows))
            return super().weights(feat, windows, bias)

    layer = replace(LAYERS["windows with a bias"], module=Counting(24, 2).eval())
    list(attention_of(layer, torch.tensor([30])))
    assert seen == [(7, 1)]


def test_a_point_that_hears_nobody_has_no_weights():
    module = GroupedVectorAttention(24, 6).eval()
    feat, coord, near = LAYERS["grouped vector"].inputs
    valid = torch.ones_like(near.index, dtype=torch.bool)
    valid[4] = False
    inputs = (feat, coord, Neighborhood(index=near.index, valid=valid))
    layer = replace(LAYERS["grouped vector"], module=module, inputs=inputs)
    (heard,) = attention_of(layer, torch.tensor([4]))
    assert (heard.weights == 0).all()


def test_what_a_published_layer_pays_to_missing_neighbours_is_not_shown():
    feat, coord, around = LAYERS["vector"].inputs
    valid = torch.rand(len(feat), 5, generator=torch.Generator().manual_seed(2)) > 0.4
    near = Neighborhood(index=around.index, valid=valid)
    module = VectorAttention(24, published=True).eval()
    layer = replace(LAYERS["vector"], module=module, inputs=(feat, coord, near))
    missing = ~valid[:, None].expand(-1, 3, -1)
    assert (module.weights(feat, coord, near)[missing] > 0).any()
    for heard in attention_of(layer, everyone(len(feat))):
        assert (heard.weights[~valid[heard.rows][:, None].expand(-1, 3, -1)] == 0).all()


def test_layers_are_numbered_as_they_run():
    model = toy_unet()
    run = record(model, random_batch([60]))
    assert [layer.number for layer in run.layers] == [0, 1, 2, 3]
    assert [layer.level for layer in run.layers] == [0, 0, 1, 0]
    assert [layer.decoder for layer in run.layers] == [False, False, False, True]
    assert run.joins == (0,)
    assert describe_layers(run.layers) == (
        "0 to 1 on level 0, 2 on level 1, 3 on level 0 of the decoder"
    )
    assert [layer.name for layer in list_layers(model)] == [layer.name for layer in run.layers]


def test_recording_changes_neither_the_result_nor_the_model():
    model, points = toy_unet(), random_batch([60])
    with torch.no_grad():
        expected = model(points)
        assert torch.equal(record(model, points).logits, expected)
    assert not any(module._forward_hooks for module in model.modules())


def test_only_the_inputs_asked_for_are_kept():
    run = record(toy_unet(), random_batch([60]), keep=(2,))
    assert [len(layer.inputs) > 0 for layer in run.layers] == [False, False, True, False]


def test_a_layer_inside_another_is_not_told_apart_from_it():
    model = create_model("litept_tiny", 4, 3).eval()
    found = [module for module in model.modules() if isinstance(module, Attentive)]
    outer = [module for module in found if isinstance(module, RotaryWindowAttention)]
    assert len(found) == 2 * len(outer)
    assert [layer.module for layer in list_layers(model)] == outer


def test_layers_are_found_by_number_and_name():
    layers = list_layers(toy_unet())
    assert find_layer(layers, 2) is layers[2]
    assert find_layer(layers, layers[1].name) is layers[1]
    assert find_layer(layers, None) is layers[3]  # the last of the finest level
    with pytest.raises(ValueError, match="no attention layer 4; .* 0 to 1 on level 0, 2 on"):
        find_layer(layers, 4)


def test_features_are_those_of_a_block_a_stage_or_a_named_module():
    model = toy_unet()
    unet = model.backbone.unet
    assert feature_module(model, None)[1] is unet.encoder[1]
    assert feature_module(model, 1)[1] is unet.encoder[0].blocks[1]
    assert feature_module(model, "backbone.stem")[1] is model.backbone.stem
    with pytest.raises(ValueError, match="no module backbone.hat"):
        feature_module(model, "backbone.hat")


def test_a_model_without_attention_says_so():
    with pytest.raises(ValueError, match="^Silent has no attention layers to look into$"):
        record(Segmentor(Silent(), 3).eval(), random_batch([5], channels=8))


def test_a_model_in_training_is_refused():
    with pytest.raises(ValueError, match=r"in training mode; call model.eval\(\) first"):
        record(toy_unet().train(), random_batch([5]))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_can_be_looked_into(name):
    torch.manual_seed(0)
    model = create_model(name, 4, 3).eval()
    layers = list_layers(model)
    assert layers
    with torch.no_grad():
        run = record(model, random_batch([200]))
    assert [(a.name, a.level, a.decoder) for a in run.layers] == [
        (b.name, b.level, b.decoder) for b in layers
    ]
    for layer in run.layers:
        assert len(layer.output) == run.levels[layer.level].num_points
        weights = layer.module.weights(*layer.inputs)
        torch.testing.assert_close(
            layer.module.attend(weights, *layer.inputs), layer.output, **CLOSE
        )
