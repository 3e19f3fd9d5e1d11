import copy
import csv
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pctx.geometry.neighbors import Neighborhood, knn
from pctx.geometry.packed import batch_from_offsets, offsets_from_counts
from pctx.geometry.windows import serial_windows
from pctx.nn import backend
from pctx.nn import pairs as pairs_module
from pctx.nn.vector_attention import GroupedVectorAttention, VectorAttention

KINDS = {
    "v1": lambda **more: VectorAttention(16, share_channels=4, **more),
    "v1, a weight a channel": lambda **more: VectorAttention(16, share_channels=1, **more),
    "v2": lambda **more: GroupedVectorAttention(16, 4, **more),
    "v2, multiplied": lambda **more: GroupedVectorAttention(
        16, 4, encoding="grouped", position_multiplier=True, qkv_bias=False, **more
    ),
}

PUBLISHED_V1 = {
    "linear_q": "query",
    "linear_k": "key",
    "linear_v": "value",
    "linear_p.0": "position.fc1",
    "linear_p.1": "position.norm",
    "linear_p.3": "position.fc2",
    "linear_w.0": "norm1",
    "linear_w.2": "fc1",
    "linear_w.3": "norm2",
    "linear_w.5": "fc2",
}
PUBLISHED_V2 = {
    "linear_q.0": "query",
    "linear_q.1.norm": "query_norm",
    "linear_k.0": "key",
    "linear_k.1.norm": "key_norm",
    "linear_v": "value",
    "linear_p_multiplier.0": "position_multiplier.fc1",
    "linear_p_multiplier.1.norm": "position_multiplier.norm",
    "linear_p_multiplier.3": "position_multiplier.fc2",
    "linear_p_bias.0": "position_bias.fc1",
    "linear_p_bias.1.norm": "position_bias.norm",
    "linear_p_bias.3": "position_bias.fc2",
    "weight_encoding.0": "fc1",
    "weight_encoding.1.norm": "norm",
    "weight_encoding.3": "fc2",
}


def scene(n=30, k=5, missing=0.3, seed=0, dtype=torch.float64):
    """Random features, coordinates and neighbours; point 3 has none where some are missing."""
    generator = torch.Generator().manual_seed(seed)
    feat = torch.randn(n, 16, generator=generator, dtype=dtype, requires_grad=True)
    coord = torch.randn(n, 3, generator=generator, dtype=dtype)
    index = torch.randint(0, n, (n, k), generator=generator)
    valid = None
    if missing:
        valid = torch.rand(n, k, generator=generator) > missing
        valid[3] = False
    return feat, coord, Neighborhood(index=index, valid=valid)


def made(kind, **more):
    """A double-precision module whose norms are not trivial."""
    torch.manual_seed(1)
    attention = KINDS[kind](**more).double()
    for name, buffer in attention.named_buffers():
        if buffer.dtype.is_floating_point:
            buffer.copy_(torch.rand_like(buffer) + (0.5 if name.endswith("var") else 0))
    return attention


def by_hand(attention, feat, coord, around, i):
    """The printed equations for point i, in evaluation, one neighbour after the other."""

    def norm(layer, x):
        share = (layer.running_var + layer.eps).rsqrt() * layer.weight
        return (x - layer.running_mean) * share + layer.bias

    def mlp(layer, x):
        return layer.fc2(norm(layer.norm, layer.fc1(x)).relu())

    scores, told = [], []
    real = range(around.index.shape[1])
    if around.valid is not None:
        real = torch.nonzero(around.valid[i])[:, 0].tolist()
    for place in real:
        j = around.index[i, place]
        offset = coord[j] - coord[i]
        if isinstance(attention, VectorAttention):
            delta = mlp(attention.position, offset)
            relation = attention.key(feat[j]) - attention.query(feat[i]) + delta
            hidden = attention.fc1(norm(attention.norm1, relation).relu())
            scores.append(attention.fc2(norm(attention.norm2, hidden).relu()))
        else:
            delta = mlp(attention.position_bias, offset)
            key = norm(attention.key_norm, attention.key(feat[j])).relu()
            relation = key - norm(attention.query_norm, attention.query(feat[i])).relu()
            if attention.position_multiplier is not None:
                relation = relation * mlp(attention.position_multiplier, offset)
            hidden = norm(attention.norm, attention.fc1(relation + delta)).relu()
            scores.append(attention.fc2(hidden))
        told.append(attention.value(feat[j]) + delta)
    if not told:
        return torch.zeros(16, dtype=feat.dtype)
    weights = torch.stack(scores).softmax(0)  # (k, g)
    shared = 16 // weights.shape[1]
    if isinstance(attention, VectorAttention):
        weights = weights.repeat(1, shared)
    else:
        weights = weights.repeat_interleave(shared, 1)
    return (weights * torch.stack(told)).sum(0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("missing", [0, 0.3])
def test_it_is_the_printed_equation(kind, missing):
    attention, (feat, coord, around) = made(kind).eval(), scene(missing=missing)
    out = attention(feat, coord, around)
    for i in range(len(feat)):
        torch.testing.assert_close(out[i], by_hand(attention, feat, coord, around, i))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("training", [True, False])
class TestLaws:
    def test_one_neighbour_is_told_as_it_is(self, kind, training):
        attention, (feat, coord, around) = made(kind).train(training), scene(k=1, missing=0)
        encode = (
            attention.position
            if isinstance(attention, VectorAttention)
            else attention.position_bias
        )
        out = attention(feat, coord, around)
        rows = around.index[:, 0]
        expected = attention.value(feat[rows]) + encode(coord[rows] - coord)
        torch.testing.assert_close(out, expected)

    def test_equal_neighbours_are_averaged(self, kind, training):
        attention, (feat, coord, around) = made(kind).train(training), scene(missing=0)
        attention.key.weight.data.zero_()
        coord = torch.zeros_like(coord)
        encode = (
            attention.position
            if isinstance(attention, VectorAttention)
            else attention.position_bias
        )
        out = attention(feat, coord, around)
        value = attention.value(feat)[around.index].mean(1) + encode(coord)
        torch.testing.assert_close(out, value)

    def test_missing_neighbours_have_no_say(self, kind, training):
        attention, (feat, coord, around) = made(kind).train(training), scene()
        twin = copy.deepcopy(attention)
        generator = torch.Generator().manual_seed(5)
        elsewhere = torch.randint(0, 30, around.index.shape, generator=generator)
        index = torch.where(around.valid, around.index, elsewhere)
        moved = Neighborhood(index=index, valid=around.valid)
        torch.testing.assert_close(attention(feat, coord, around), twin(feat, coord, moved))
        for a, b in zip(attention.buffers(), twin.buffers(), strict=True):
            torch.testing.assert_close(a, b)

    def test_without_neighbours_there_is_nothing(self, kind, training):
        attention, (feat, coord, around) = made(kind).train(training), scene()
        out = attention(feat, coord, around)
        assert (out[3] == 0).all()
        (grad,) = torch.autograd.grad(out[3].sum(), feat)
        assert (grad == 0).all()
        nobody = Neighborhood(index=around.index, valid=torch.zeros_like(around.valid))
        out = attention(feat, coord, nobody)
        assert (out == 0).all()
        grads = torch.autograd.grad(out.sum(), [feat, *attention.parameters()], allow_unused=True)
        assert all(grad is None or (grad == 0).all() for grad in grads)

    def test_points_may_come_in_any_order(self, kind, training):
        attention, (feat, coord, around) = made(kind).train(training), scene()
        generator = torch.Generator().manual_seed(5)
        order = torch.randperm(30, generator=generator)
        places = torch.randperm(5, generator=generator)
        other = Neighborhood(
            index=order.argsort()[around.index[order][:, places]],
            valid=around.valid[order][:, places],
        )
        expected = attention(feat, coord, around)[order]
        torch.testing.assert_close(attention(feat[order], coord[order], other), expected)

    def test_gradients_are_those_of_differences(self, kind, training):
        attention, (feat, coord, around) = made(kind).train(training), scene(n=4, k=2)
        # BatchNorm's running statistics change, its results do not.
        assert torch.autograd.gradcheck(
            lambda x, p: attention(x, p, around), (feat, coord.requires_grad_())
        )

    @pytest.mark.parametrize("windowed", [False, True])
    def test_parts_are_the_whole(self, kind, training, windowed, monkeypatch):
        monkeypatch.setattr(pairs_module, "NUMBERS_AT_ONCE", 16 * 5 * 7)  # 7 points of 5 neighbours
        whole, (feat, coord, around) = made(kind).train(training), scene()
        if windowed:
            offsets = offsets_from_counts(torch.tensor([17, 0, 3, 10]))
            around = serial_windows(torch.arange(30), offsets, 5)
        parts, inspected = made(kind, checkpoint=True).train(training), copy.deepcopy(whole)
        outs = [each(feat, coord, around) for each in (whole, parts)]
        torch.testing.assert_close(*outs)
        with torch.no_grad():
            torch.testing.assert_close(inspected(feat, coord, around), outs[0])
        upstream = torch.randn_like(outs[0])
        grads = [
            torch.autograd.grad(out, [feat, *each.parameters()], upstream)
            for out, each in zip(outs, (whole, parts), strict=True)
        ]
        for a, b in zip(*grads, strict=True):
            torch.testing.assert_close(a, b)
        for a, b, c in zip(whole.buffers(), parts.buffers(), inspected.buffers(), strict=True):
            torch.testing.assert_close(a, b)
            torch.testing.assert_close(a, c)

    def test_frozen_norms_stay_frozen(self, kind, training, monkeypatch):
        monkeypatch.setattr(pairs_module, "NUMBERS_AT_ONCE", 16 * 5 * 7)
        whole, (feat, coord, around) = made(kind).train(training), scene()
        frozen = next(m for m in whole.modules() if isinstance(m, torch.nn.BatchNorm1d)).eval()
        before = frozen.running_mean.clone()
        parts = copy.deepcopy(whole)
        parts.checkpoint = True
        torch.testing.assert_close(parts(feat, coord, around), whole(feat, coord, around))
        assert torch.equal(frozen.running_mean, before)
        for a, b in zip(whole.buffers(), parts.buffers(), strict=True):
            torch.testing.assert_close(a, b)

    def test_no_points_give_no_rows(self, kind, training):
        none = Neighborhood(index=torch.zeros(0, 4, dtype=torch.int64), valid=None)
        attention = made(kind).train(training)
        feat, coord = torch.zeros(0, 16).double(), torch.zeros(0, 3).double()
        assert attention(feat, coord, none).shape == (0, 16)


@pytest.mark.parametrize("kind", KINDS)
def test_windows_are_the_neighbours_in_a_points_own_window(kind):
    offsets = offsets_from_counts(torch.tensor([17, 3, 10]))
    generator = torch.Generator().manual_seed(2)
    order = torch.cat(
        [torch.randperm(n, generator=generator) + s for n, s in ((17, 0), (3, 17), (10, 20))]
    )
    windows = serial_windows(order, offsets, 5)
    own = windows.slot // 5
    around = Neighborhood(index=windows.index[own], valid=windows.valid[own])
    attention, (feat, coord, _) = made(kind).eval(), scene()
    out = attention(feat, coord, windows)
    torch.testing.assert_close(out, attention(feat, coord, around))
    batch = batch_from_offsets(offsets, 30)
    (grad,) = torch.autograd.grad(out[batch == 1].sum(), feat)
    assert (grad[batch != 1] == 0).all() and (grad[batch == 1] != 0).any()


@pytest.mark.parametrize("kind", ["v1", "v2"])
def test_an_exported_graph_serves_any_number_of_points(kind):
    class Flat(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = made(kind)

        def forward(self, feat, coord, index, valid):
            return self.attention(feat, coord, Neighborhood(index=index, valid=valid))

    def flat(feat, coord, around):
        return feat.detach(), coord, around.index, around.valid

    net, points = Flat().eval(), {0: torch.export.Dim("n", min=2)}
    with torch.no_grad():
        graph = torch.export.export(net, flat(*scene()), dynamic_shapes=(points,) * 4).module()
        for n in (9, 200):
            inputs = flat(*scene(n))
            torch.testing.assert_close(graph(*inputs), net(*inputs))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [7, 30, 301])
def test_bytes_do_not_depend_on_the_number_of_threads(kind, n):
    if "oneDNN" not in backend.engines()["matrix products"]:
        pytest.skip("oneDNN is not in this build of torch")
    attention, (feat, coord, around) = made(kind).float().eval(), scene(n, dtype=torch.float32)
    before, outs = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            with torch.no_grad():
                outs.append(attention(feat, coord, around))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(outs[0], outs[1]) and torch.equal(outs[0], outs[2])


def test_half_precision_is_weighed_in_float32():
    attention, (feat, coord, around) = made("v2").float().eval(), scene(dtype=torch.float32)
    out = attention(feat, coord, around)
    half = attention.bfloat16()(feat.bfloat16(), coord.bfloat16(), around)
    assert half.dtype == torch.bfloat16
    assert (half - out).abs().max() < 0.05 * out.abs().max()  # a few steps of bfloat16, 2**-8


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_are_taken_before_they_are_rounded(kind):
    attention, (feat, coord, around) = made(kind).bfloat16().eval(), scene(dtype=torch.float32)
    coord = (coord * 64).round() / 64  # so that positions are exact everywhere
    near = attention(feat.bfloat16(), coord, around)
    far = attention(feat.bfloat16(), coord + 4096, around)
    assert near.dtype == torch.bfloat16
    assert torch.equal(near, far)


def test_wrong_sizes_are_refused():
    feat, coord, around = scene()
    with pytest.raises(ValueError, match="channels 10 must be a multiple of share_channels 8"):
        VectorAttention(10)
    with pytest.raises(ValueError, match="channels 10 must be a multiple of groups 4"):
        GroupedVectorAttention(10, 4)
    with pytest.raises(ValueError, match="encoding must be linear or grouped, found mlp"):
        GroupedVectorAttention(16, 4, encoding="mlp")
    with pytest.raises(ValueError, match="a row for each of the 29 points, found 30"):
        made("v1")(feat[1:], coord[1:], around)


def published(state, prefix, names):
    """The published tensors below a prefix, by our names."""
    found = {}
    for key in state:
        if key.startswith(prefix):
            layer, tensor = key.removeprefix(prefix).rsplit(".", 1)
            found[f"{names[layer]}.{tensor}"] = state[key]
    return found


@pytest.mark.parametrize(
    "table", ["ptv1_s3dis", "ptv2m1_scannet", "ptv2m2_scannet", "ptv2m2_s3dis"]
)
def test_every_published_tensor_has_one_home(golden, table):
    with (golden / f"state_dict_{table}.tsv").open() as lines:
        shapes = {row["key"]: row["shape"] for row in csv.DictReader(lines, delimiter="\t")}
    name, names = ("attn.", PUBLISHED_V2) if "ptv2" in table else ("transformer.", PUBLISHED_V1)
    prefixes = {match[0] for key in shapes if (match := re.match(rf".*\.{name}", key))}
    assert len(prefixes) > 10
    for prefix in prefixes:
        tensors = published(shapes, prefix, names)
        channels = int(tensors["value.bias"])
        groups = int(tensors["fc2.bias"])
        if "ptv1" in table:
            ours = VectorAttention(channels, share_channels=channels // groups)
        else:
            ours = GroupedVectorAttention(
                channels,
                groups,
                encoding="grouped" if "m1" in table else "linear",
                position_multiplier="m1" in table,
            )
        assert tensors == {
            key: ",".join(map(str, tensor.shape)) or "scalar"
            for key, tensor in ours.state_dict().items()
        }


class Golden:
    """A file of published numbers: `tensor`s, `norm`s and `linear`s of the layers around ours."""

    def __init__(self, folder, name):
        self.arrays = {}
        for part in (name, f"{name}_stages"):
            self.arrays.update(np.load(folder / f"{part}.npz", allow_pickle=False))

    def __getitem__(self, key):
        return torch.from_numpy(self.arrays[key])

    def load(self, attention, prefix, names):
        keys = [key for key in self.arrays if key.startswith(f"param/{prefix}")]
        state = published({key: self[key] for key in keys}, f"param/{prefix}", names)
        attention.load_state_dict(state, strict=True)
        return attention.eval()

    def linear(self, name, x):
        return F.linear(x, self[f"param/{name}.weight"])

    def norm(self, name, x):
        mean, var, weight, bias = (
            self[f"param/{name}.{part}"]
            for part in ("running_mean", "running_var", "weight", "bias")
        )
        return F.batch_norm(x, mean, var, weight, bias, eps=1e-5)

    def block_v1(self, name, feat, coord, around, channels):
        attention = VectorAttention(channels, published=True)
        self.load(attention, f"{name}.transformer.", PUBLISHED_V1)
        hidden = self.norm(f"{name}.bn1", self.linear(f"{name}.linear1", feat)).relu()
        hidden = self.norm(f"{name}.bn2", attention(hidden, coord, around)).relu()
        return (feat + self.norm(f"{name}.bn3", self.linear(f"{name}.linear3", hidden))).relu()

    def block_v2(self, name, feat, coord, around, attention):
        self.load(attention, f"{name}.attn.", PUBLISHED_V2)
        hidden = self.norm(f"{name}.norm1.norm", self.linear(f"{name}.fc1", feat)).relu()
        hidden = self.norm(f"{name}.norm2.norm", attention(hidden, coord, around)).relu()
        return (feat + self.norm(f"{name}.norm3.norm", self.linear(f"{name}.fc3", hidden))).relu()


def starts(ends):
    """Offsets out of published running totals."""
    return F.pad(ends, (1, 0))


CLOSE = {"rtol": 1e-5, "atol": 2e-5}
"""The published numbers are float32: about 1e-6 of a stage's largest, some 10."""


@pytest.mark.parametrize("name", ["ptv1_stride2_k8", "ptv1_seg26_missing_neighbours"])
def test_the_first_stage_of_ptv1_has_its_published_numbers(golden, name):
    file = Golden(golden, name)
    feat, coord = file["input/feat"], file["input/coord"]
    around = Neighborhood(index=file["level/0/knn_index"].long(), valid=None)
    stem = file.norm("backbone.enc1.0.bn", file.linear("backbone.enc1.0.linear", feat)).relu()
    out = file.block_v1("backbone.enc1.1", stem, coord, around, 16)
    torch.testing.assert_close(out, file["stage/enc1"], **CLOSE)


def test_missing_neighbours_of_ptv1_take_part_as_published(golden):
    file = Golden(golden, "ptv1_seg26_missing_neighbours")
    coord, ends = file["level/4/coord"], file["level/4/offset"]
    fine, fine_ends = file["level/3/coord"], file["level/3/offset"]
    # The way down: offset and features of 16 neighbours, linear, norm, ReLU, the largest.
    near = knn(fine, starts(fine_ends), 16, query=coord, query_offsets=starts(ends))
    rows = torch.cat([fine[near.index] - coord[:, None], file["stage/enc4"][near.index]], -1)
    rows = rows.masked_fill(~near.valid[..., None], 0)
    hidden = file.linear("backbone.enc5.0.linear", rows).flatten(0, 1)
    hidden = file.norm("backbone.enc5.0.bn", hidden).relu().view(len(coord), 16, -1).amax(1)
    around = knn(coord, starts(ends), 16)
    assert not around.valid.all()
    out = file.block_v1("backbone.enc5.1", hidden, coord, around, 32)
    torch.testing.assert_close(out, file["stage/enc5"], **CLOSE)


V2_FILES = {
    "ptv2m1_base": {"encoding": "grouped", "position_multiplier": True},
    "ptv2m2_base": {},
    "ptv2m2_interp_missing_neighbours": {"position_multiplier": True, "qkv_bias": False},
}


@pytest.mark.parametrize("name", V2_FILES)
def test_stages_of_ptv2_have_their_published_numbers(golden, name):
    file = Golden(golden, name)
    around = Neighborhood(index=file["level/0/knn_index"].long(), valid=None)
    stem = file.norm(
        "backbone.patch_embed.proj.1.norm",
        file.linear("backbone.patch_embed.proj.0", file["input/feat"]),
    ).relu()
    attention = GroupedVectorAttention(12, 3, published=True, **V2_FILES[name])
    block = "backbone.patch_embed.blocks.blocks.0"
    out = file.block_v2(block, stem, file["input/coord"], around, attention)
    torch.testing.assert_close(out, file["stage/patch_embed"], **CLOSE)

    coord = file["level/3/coord"]
    around = knn(coord, starts(file["level/3/offset"]), 16)
    assert (around.valid is None) == ("missing" not in name)
    attention = GroupedVectorAttention(32, 8, published=True, **V2_FILES[name])
    block = "backbone.enc_stages.2.blocks.blocks.0"
    out = file.block_v2(block, file["stage/down2"], coord, around, attention)
    torch.testing.assert_close(out, file["stage/enc2"], **CLOSE)


def test_a_training_step_of_ptv2_leaves_the_published_statistics(golden):
    file = Golden(golden, "ptv2m2_base")
    after = np.load(golden / "ptv2m2_base_trainbn.npz", allow_pickle=False)
    block = "backbone.patch_embed.blocks.blocks.0"

    def norm(name, x):
        weight, bias = file[f"param/{name}.weight"], file[f"param/{name}.bias"]
        return F.batch_norm(x, None, None, weight, bias, training=True, eps=1e-5)

    stem = file.linear("backbone.patch_embed.proj.0", file["input/feat"])
    stem = norm("backbone.patch_embed.proj.1.norm", stem).relu()
    hidden = norm(f"{block}.norm1.norm", file.linear(f"{block}.fc1", stem)).relu()
    attention = GroupedVectorAttention(12, 3, published=True, checkpoint=True)
    file.load(attention, f"{block}.attn.", PUBLISHED_V2).train()
    around = Neighborhood(index=file["level/0/knn_index"].long(), valid=None)
    attention(hidden, file["input/coord"], around)
    state = {f"x.{key}": tensor for key, tensor in attention.state_dict().items()}
    for theirs, ours in PUBLISHED_V2.items():
        for part in ("running_mean", "running_var", "num_batches_tracked"):
            key = f"trainbn/after/{block}.attn.{theirs}.{part}"
            if key in after:
                expected = torch.from_numpy(np.asarray(after[key]))
                torch.testing.assert_close(
                    state[f"x.{ours}.{part}"], expected, rtol=1e-5, atol=1e-5
                )
