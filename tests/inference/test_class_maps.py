"""Maps of a class: against autograd through plain attention, and against the paper's formula."""

from dataclasses import replace

import pytest
import torch

from pctx.inference.class_maps import class_map, grad_cam
from pctx.models.factory import create_model, list_models
from pctx.models.segmentor import Segmentor
from pctx.nn.attention import WindowAttention
from pctx.nn.dot_product import plain_dot_product_attention
from tests.inference.attentive_models import Silent, flat, pooling_matrices, toy_unet
from tests.models.clouds import random_batch

MODELS = [name for name in list_models() if name.endswith("_tiny")]


def close(found, expected):
    """Within what sums of float32 in another order differ, relative to the largest."""
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def gains_by_autograd(model, points, class_number, rows, monkeypatch):
    """mean over heads of relu(A * ds / dA), dense, of each layer: [(n, n)]."""
    kept = []

    def forward(self, feat, windows, bias=None, norm=None):
        feat = feat if norm is None else norm(feat)
        query, key, value = self.split(feat, windows)
        weights = plain_dot_product_attention(query, key, value, valid=windows.valid).weights
        weights.retain_grad()
        kept.append((weights, windows, len(feat)))
        return self.merge(weights @ value, windows)

    with monkeypatch.context() as patch:
        patch.setattr(WindowAttention, "forward", forward)
        model(points)[rows, class_number].sum().backward()
    dense = []
    for weights, windows, n in kept:
        gain = (weights * weights.grad).relu().mean(1).detach()  # (w, k, k)
        matrix = torch.zeros(n, n)
        for i in range(n):
            w, place = divmod(int(windows.slot[i]), windows.window_size)
            real = torch.ones_like(windows.index[w], dtype=torch.bool)
            real = real if windows.valid is None else windows.valid[w]
            matrix[i, windows.index[w][real]] = gain[w, place][real]
        dense.append(matrix)
    return dense


@pytest.mark.parametrize("rows", [[4], [0, 12, 13]])
def test_the_map_of_a_layer_sums_gradient_times_attention(rows, monkeypatch):
    model, points = flat(num_layers=2), random_batch([12, 3], channels=8)
    expected = gains_by_autograd(model, points, 1, rows, monkeypatch)
    for number in (0, 1):
        assert expected[number].max() > 0
        close(class_map(model, points, 1, rows, layer=number), expected[number].sum(0))


def test_the_map_of_all_layers_adds_up_what_the_points_gain(monkeypatch):
    model, points = flat(num_layers=2), random_batch([12, 3], channels=8)
    first, second = gains_by_autograd(model, points, 2, [6], monkeypatch)
    every = torch.eye(15)
    product = (every + second) @ (every + first) - every
    close(class_map(model, points, 2, [6]), product[6])


def test_the_map_goes_both_ways_through_a_unet(monkeypatch):
    model, points = toy_unet(), random_batch([60, 12])
    gains = gains_by_autograd(model, points, 0, [7, 66], monkeypatch)
    first, second, coarse, last = (gain + torch.eye(len(gain)) for gain in gains)
    up, down = pooling_matrices(model.backbone.plan(points).levels)
    every = torch.eye(72)
    product = last @ (every + up @ coarse @ down) @ second @ first - (every + up @ down)
    close(class_map(model, points, 0, [7, 66]), product[[7, 66]].sum(0))
    close(class_map(model, points, 0, [7, 66], layer=2), gains[2].sum(0) @ down)


def test_grad_cam_is_the_formula():
    model, points = toy_unet(), random_batch([60, 12])
    stage = model.backbone.unet.encoder[1]
    kept = []
    hook = stage.register_forward_hook(lambda module, inputs, output: kept.append(output))
    score = model(points)[[7, 66], 2].sum()
    hook.remove()
    (slope,) = torch.autograd.grad(score, kept[0])
    value = torch.zeros(len(kept[0]))
    for channel in range(16):
        value += slope[:, channel].mean() * kept[0][:, channel].detach()
    value = value.clamp(min=0) / value.max()
    cluster = model.backbone.plan(points).levels[0].pooling.cluster
    found = grad_cam(model, points, 2, [7, 66])
    assert found.max() == 1 and found.min() == 0
    close(found, value[cluster])


def test_grad_cam_looks_at_the_layer_asked_for():
    model, points = toy_unet(), random_batch([40])
    maps = [grad_cam(model, points, 1, [3], layer) for layer in (0, 1, 2, "backbone.stem")]
    block = grad_cam(model, points, 1, [3], "backbone.unet.encoder.0.blocks.1")
    assert torch.equal(maps[1], block)
    assert len({tuple(values.tolist()) for values in maps}) == 4


def test_grad_cam_knows_its_level_where_all_have_as_many_points():
    torch.manual_seed(0)
    model = create_model("octformer_tiny", 4, 3).eval()
    points = random_batch([12])
    # So far apart that no two are ever merged; the levels sort them by their own order.
    points = replace(points, grid_coord=points.grid_coord * 256, coord=points.coord * 256)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    moved = {name: getattr(points, name)[order] for name in ("coord", "grid_coord", "feat")}
    shuffled = replace(points, **moved, label=None)
    for number in range(3):
        found = grad_cam(model, points, number, range(12), layer=0)
        close(grad_cam(model, shuffled, number, range(12), layer=0), found[order])


def test_grad_cam_needs_no_attention():
    torch.manual_seed(0)
    model = Segmentor(Silent(), 3).eval()
    found = grad_cam(model, random_batch([20], channels=8), 1, layer="backbone.linear")
    assert found.max() == 1
    with pytest.raises(ValueError, match="Silent has no attention layers"):
        grad_cam(model, random_batch([20], channels=8), 1)


@pytest.mark.parametrize("show", [class_map, grad_cam])
def test_by_default_all_points_predicted_as_the_class_make_the_score(show):
    model, points = toy_unet(), random_batch([60])
    with torch.no_grad():
        predicted = model(points).argmax(1)
    rows = (predicted == 2).nonzero()[:, 0].tolist()
    assert 0 < len(rows) < 60
    assert torch.equal(show(model, points, 2), show(model, points, 2, rows))


@pytest.mark.parametrize("show", [class_map, grad_cam])
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"class_number": 3}, "classes 0 to 2, found 3"),
        ({"class_number": -1}, "classes 0 to 2, found -1"),
        ({"class_number": 0, "rows": [0, 40]}, "points 0 to 39, found 40"),
        ({"class_number": 0, "rows": []}, "rows must name a point of the score"),
        ({"class_number": 0, "layer": 7}, "no attention layer 7"),
    ],
)
def test_what_is_not_there_is_named(show, asked, words):
    with pytest.raises(ValueError, match=words):
        show(toy_unet(), random_batch([40]), **asked)


@pytest.mark.parametrize("show", [class_map, grad_cam])
def test_a_class_that_is_predicted_nowhere_is_named(show):
    model = toy_unet()
    model.head.bias.data[2] = -1000
    with pytest.raises(ValueError, match="no point is predicted as class 2"):
        show(model, random_batch([40]), 2)


def test_a_module_that_gives_no_rows_of_features_is_refused():
    layer = "backbone.unet.encoder.0.blocks"
    with pytest.raises(ValueError, match=f"^{layer} gives no rows of features"):
        grad_cam(toy_unet(), random_batch([40]), 0, [0], layer)


def test_nothing_is_left_in_the_model():
    model, points = toy_unet(), random_batch([40])
    class_map(model, points, 0, [0])
    grad_cam(model, points, 0, [0])
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())
    assert points.feat.grad is None and not points.feat.requires_grad


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_maps_of_its_classes(name):
    torch.manual_seed(0)
    model = create_model(name, 4, 3).eval()
    points = random_batch([150, 40])
    heard = class_map(model, points, 1, [77])
    assert heard.isfinite().all() and (heard >= 0).all() and heard.max() > 0
    assert (heard[150:] == 0).all()
    seen = grad_cam(model, points, 1, [77])
    assert seen.isfinite().all() and seen.min() >= 0 and seen.max() <= 1
