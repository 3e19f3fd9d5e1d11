import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pctx.geometry.neighbors import Neighborhood
from pctx.geometry.packed import offsets_from_counts
from pctx.geometry.windows import serial_windows
from pctx.nn.attention import WindowAttention
from pctx.nn.block import TransformerBlock
from pctx.nn.recompute import recompute
from pctx.nn.vector_attention import VectorAttention

OFFSETS = offsets_from_counts(torch.tensor([11, 0, 3, 20]))
WINDOWS = serial_windows(torch.arange(34), OFFSETS, 4)


def block_of(seed=0, **more):
    torch.manual_seed(seed)
    return TransformerBlock(8, WindowAttention(8, 2), **more).double()


def features(seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(34, 8, generator=generator, dtype=torch.float64, requires_grad=True)


def layer_norm(norm, x):
    return F.layer_norm(x, (8,), norm.weight, norm.bias)


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_pre_norm_leaves_the_residual_as_it_is(activation):
    block, feat = block_of(activation=activation, mlp_ratio=3), features()
    assert block.mlp.fc1.out_features == 24
    act = getattr(F, activation)
    mixed = feat + block.mixer(layer_norm(block.norm1, feat), WINDOWS)
    expected = mixed + block.mlp.fc2(act(block.mlp.fc1(layer_norm(block.norm2, mixed))))
    torch.testing.assert_close(block(feat, OFFSETS, WINDOWS), expected)


def test_post_norm_normalises_the_sums():
    block, feat = block_of(norm="post"), features()
    mixed = layer_norm(block.norm1, feat + block.mixer(feat, WINDOWS))
    expected = layer_norm(block.norm2, mixed + block.mlp(mixed))
    torch.testing.assert_close(block(feat, OFFSETS, WINDOWS), expected)


def test_a_layer_scale_of_zero_is_the_identity():
    feat = features()
    assert torch.equal(block_of(layer_scale=0.0)(feat, OFFSETS, WINDOWS), feat)


def test_layer_scale_scales_each_branch():
    block, feat = block_of(layer_scale=0.1), features()
    block.scale2.weight.data.fill_(0.2)
    mixed = feat + 0.1 * block.mixer(block.norm1(feat), WINDOWS)
    expected = mixed + 0.2 * block.mlp(block.norm2(mixed))
    torch.testing.assert_close(block(feat, OFFSETS, WINDOWS), expected)


def test_whole_clouds_leave_branches_out():
    block, feat = block_of(drop_path=0.5), features()
    kept = {tuple((block(feat, OFFSETS, WINDOWS) == feat).all(1).int().tolist()) for _ in range(60)}
    for rows in kept:
        for start, end in itertools.pairwise(OFFSETS):
            assert len(set(rows[start:end])) <= 1
    assert len(kept) > 1
    block.eval()
    assert torch.equal(block(feat, OFFSETS, WINDOWS), block(feat, OFFSETS, WINDOWS))


@pytest.mark.parametrize("drop_path", [0.0, 0.5])
def test_checkpointing_changes_neither_results_nor_gradients(drop_path):
    plain, feat = block_of(drop_path=drop_path, layer_scale=0.1), features()
    frugal = copy.deepcopy(plain)
    frugal.checkpoint = True
    found = []
    for block in (plain, frugal):
        torch.manual_seed(7)
        out = block(feat, OFFSETS, WINDOWS)
        found.append([out, *torch.autograd.grad(out.sin().sum(), [feat, *block.parameters()])])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def test_checkpointing_keeps_less():
    block, feat = block_of(), features()

    def kept(checkpoint):
        sizes = []
        block.checkpoint = checkpoint

        def pack(tensor):
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            block(feat, OFFSETS, WINDOWS)
        return sum(sizes)

    assert kept(checkpoint=True) < kept(checkpoint=False) / 10


def test_running_statistics_see_a_checkpointed_batch_once():
    torch.manual_seed(0)
    mixer = VectorAttention(8).double()
    plain = TransformerBlock(8, mixer).double()
    frugal = copy.deepcopy(plain)
    frugal.checkpoint = True
    coord = torch.randn(34, 3, dtype=torch.float64)
    around = Neighborhood(index=torch.randint(0, 34, (34, 4)), valid=None)
    for block in (plain, frugal):
        block(features(), OFFSETS, coord, around).sum().backward()
    for a, b in zip(plain.buffers(), frugal.buffers(), strict=True):
        assert torch.equal(a, b)
    assert mixer.norm1.num_batches_tracked == 1


def test_a_frozen_norm_elsewhere_survives_a_recomputation():
    norm, inner = nn.BatchNorm1d(8).double().eval(), nn.BatchNorm1d(8).double()
    module = nn.Sequential(norm, nn.Linear(8, 8).double(), inner)
    feat = features()
    out = norm(recompute(module, module, norm(feat)))
    out.sum().backward()
    assert inner.num_batches_tracked == 1 and feat.grad is not None


def test_without_gradients_nothing_is_checkpointed():
    block = block_of(checkpoint=True)
    with torch.no_grad():
        assert not block(features(), OFFSETS, WINDOWS).requires_grad


def test_gradients_are_those_of_differences():
    block = block_of(layer_scale=0.5)
    offsets = offsets_from_counts(torch.tensor([4, 2]))
    windows = serial_windows(torch.arange(6), offsets, 3)
    feat = torch.randn(6, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: block(x, offsets, windows), feat)


def test_no_points_give_no_rows():
    offsets = offsets_from_counts(torch.tensor([0, 0]))
    windows = serial_windows(torch.arange(0), offsets, 4)
    for norm in ("pre", "post"):
        for checkpoint in (False, True):
            block = block_of(norm=norm, checkpoint=checkpoint)
            assert block(features()[:0], offsets, windows).shape == (0, 8)


def test_unknown_settings_are_refused():
    with pytest.raises(ValueError, match="norm must be pre or post, found layer"):
        block_of(norm="layer")
    with pytest.raises(ValueError, match="activation must be gelu or relu, found tanh"):
        block_of(activation="tanh")
