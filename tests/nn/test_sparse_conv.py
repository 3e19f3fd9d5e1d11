import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pctx.geometry.kernel_map import kernel_map
from pctx.geometry.packed import offsets_from_counts
from pctx.geometry.strided_map import strided_map
from pctx.nn import tap_convolution
from pctx.nn.sparse_conv import SparseConv3d, SparseInverseConv3d, SubmanifoldConv3d
from tests.nn.clouds import random_voxels


def full_grid(side):
    axis = torch.arange(side)
    return torch.cartesian_prod(axis, axis, axis), offsets_from_counts(torch.tensor([side**3]))


def dense(feat, side):
    """Lay the rows of a full grid out for torch's dense convolutions: (1, c, side, side, side)."""
    return feat.T.reshape(1, -1, side, side, side)


def sparse(grid):
    return grid.flatten(2).squeeze(0).T


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("k", [1, 3, 5])
def test_on_a_full_grid_it_is_the_dense_convolution(k, dilation, groups):
    torch.manual_seed(0)
    grid_coord, offsets = full_grid(5)
    conv = SubmanifoldConv3d(4, 4, k, dilation=dilation, groups=groups).double()
    feat = torch.randn(125, 4, dtype=torch.float64)
    expected = F.conv3d(
        dense(feat, 5),
        conv.weight.permute(0, 4, 1, 2, 3),
        conv.bias,
        padding=dilation * (k // 2),
        dilation=dilation,
        groups=groups,
    )
    out = conv(feat, kernel_map(grid_coord, offsets, k, dilation))
    torch.testing.assert_close(out, sparse(expected))


@pytest.mark.parametrize(("k", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (3, 3, 0), (5, 2, 2)])
def test_strided_and_inverse_are_the_dense_ones_on_full_grids(k, stride, padding):
    torch.manual_seed(0)
    side = 6
    coarse_side = (side + 2 * padding - k) // stride + 1
    fine, coarse = full_grid(side), full_grid(coarse_side)
    pairs = strided_map(*fine, *coarse, kernel_size=k, stride=stride, padding=padding)
    down = SparseConv3d(2, 3, k, stride).double()
    feat = torch.randn(side**3, 2, dtype=torch.float64)
    weight = down.weight.permute(0, 4, 1, 2, 3)
    expected = F.conv3d(dense(feat, side), weight, down.bias, stride=stride, padding=padding)
    torch.testing.assert_close(down(feat, pairs), sparse(expected))

    up = SparseInverseConv3d(3, 2, k).double()
    feat = torch.randn(coarse_side**3, 3, dtype=torch.float64)
    reached = (coarse_side - 1) * stride + k - 2 * padding
    expected = F.conv_transpose3d(
        dense(feat, coarse_side),
        up.weight.permute(4, 0, 1, 2, 3),
        up.bias,
        stride=stride,
        padding=padding,
        output_padding=side - reached,
    )
    torch.testing.assert_close(up(feat, pairs), sparse(expected))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", ["k3_bias", "k5", "k5_bias"])
def test_values_and_gradients_are_spconvs(golden, case, dtype):
    data = np.load(golden / "subm_conv.npz")
    prefix = "f64/" if dtype == torch.float64 else ""
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5

    def same(ours, name):
        reference = torch.from_numpy(data[f"{prefix}{case}/{name}"])
        assert (ours - reference).abs().max() <= tolerance * reference.abs().max(), name

    indices = torch.from_numpy(data["input/indices"]).long()
    offsets = offsets_from_counts(torch.bincount(indices[:, 0]))
    assert (indices[:, 0].diff() >= 0).all()
    weight = torch.from_numpy(data[f"{case}/weight"])
    conv = SubmanifoldConv3d(6, 8, weight.shape[1], bias=f"{case}/bias" in data)
    conv.load_state_dict(
        {name: torch.from_numpy(data[f"{case}/{name}"]) for name in conv.state_dict()}
    )
    conv.to(dtype)
    feat = torch.from_numpy(data["input/feat"]).to(dtype).requires_grad_()
    out = conv(feat, kernel_map(indices[:, 1:], offsets, conv.kernel_size))
    out.backward(torch.from_numpy(data[f"{case}/grad_output"]).to(dtype))
    same(out.detach(), "out")
    same(feat.grad, "grad_input")
    same(conv.weight.grad, "grad_weight")
    if conv.bias is not None:
        same(conv.bias.grad, "grad_bias")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_strided_and_inverse_have_spconvs_values_and_gradients(golden, dtype):
    data = np.load(golden / "subm_conv.npz")
    prefix = "f64/" if dtype == torch.float64 else ""
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5

    def same(ours, name):
        reference = torch.from_numpy(data[prefix + name])
        assert (ours - reference).abs().max() <= tolerance * reference.abs().max(), name

    def load(conv, name):
        conv.load_state_dict({"weight": torch.from_numpy(data[f"{name}/weight"])})
        return conv.to(dtype)

    indices = torch.from_numpy(data["input/indices"]).long()
    offsets = offsets_from_counts(torch.bincount(indices[:, 0]))
    coarse = torch.from_numpy(data["down/out_indices"]).long()
    order = torch.argsort(coarse[:, 0], stable=True)
    coarse_offsets = offsets_from_counts(torch.bincount(coarse[:, 0]))
    pairs = strided_map(
        indices[:, 1:], offsets, coarse[order, 1:], coarse_offsets, kernel_size=2, stride=2
    )
    down, up = SparseConv3d(6, 10, 2, bias=False), SparseInverseConv3d(10, 6, 2, bias=False)
    load(down, "down")
    load(up, "inverse")
    feat = torch.from_numpy(data["input/feat"]).to(dtype).requires_grad_()
    at_coarse = down(feat, pairs)
    out = up(at_coarse, pairs)
    out.backward(torch.from_numpy(data["inverse/grad_output"]).to(dtype))
    same(at_coarse.detach()[torch.argsort(order)], "down/out")
    same(out.detach(), "inverse/out")
    same(feat.grad, "down/grad_input")
    same(down.weight.grad, "down/grad_weight")
    same(up.weight.grad, "inverse/grad_weight")


@pytest.mark.parametrize(
    "convolution",
    [
        lambda: SubmanifoldConv3d(2, 3, 3),
        lambda: SubmanifoldConv3d(2, 2, 3, groups=2),
        lambda: SubmanifoldConv3d(2, 4, 3, groups=2),
        lambda: SparseConv3d(2, 3, 3),
        lambda: SparseInverseConv3d(2, 3, 3),
    ],
)
def test_gradients_are_those_of_differences(convolution):
    torch.manual_seed(0)
    voxels, coarse = random_voxels([9, 0, 4], extent=3), random_voxels([3, 1, 2], extent=2)
    conv = convolution().double()
    pairs = kernel_map(*voxels, 3)
    if not isinstance(conv, SubmanifoldConv3d):
        pairs = strided_map(*voxels, *coarse, kernel_size=3, stride=2, padding=1)
    rows = pairs.num_targets if isinstance(conv, SparseInverseConv3d) else pairs.num_sources
    feat = torch.randn(rows, 2, dtype=torch.float64, requires_grad=True)

    def convolve(feat, weight, bias):
        return torch.func.functional_call(conv, {"weight": weight, "bias": bias}, (feat, pairs))

    inputs = [feat, *(p.detach().clone().requires_grad_() for p in (conv.weight, conv.bias))]
    assert torch.autograd.gradcheck(convolve, inputs)


def test_only_what_is_asked_for_is_differentiated():
    grid_coord, offsets = random_voxels([20])
    pairs, conv = kernel_map(grid_coord, offsets, 3), SubmanifoldConv3d(2, 3, 3)
    conv(torch.randn(20, 2), pairs).sum().backward()
    assert conv.weight.grad is not None and conv.bias.grad is not None
    frozen = SubmanifoldConv3d(2, 3, 3).requires_grad_(False)
    feat = torch.randn(20, 2, requires_grad=True)
    frozen(feat, pairs).sum().backward()
    assert feat.grad is not None and frozen.weight.grad is None


def test_no_voxels_give_no_rows():
    grid_coord, offsets = random_voxels([0, 0])
    conv = SubmanifoldConv3d(2, 3, 3)
    feat = torch.zeros(0, 2, requires_grad=True)
    out = conv(feat, kernel_map(grid_coord, offsets, 3))
    assert out.shape == (0, 3)
    out.sum().backward()
    assert (conv.weight.grad == 0).all()


def test_autocast_runs_it_in_bfloat16_and_its_gradients_in_float32():
    torch.manual_seed(0)
    grid_coord, offsets = random_voxels([300])
    pairs, conv = kernel_map(grid_coord, offsets, 3), SubmanifoldConv3d(16, 16, 3)
    feat = torch.randn(300, 16, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = conv(feat, pairs)
    assert half.dtype == torch.bfloat16
    half.float().sum().backward()
    assert feat.grad.dtype == conv.weight.grad.dtype == torch.float32
    # Eight bits of mantissa, and sums of up to 27 * 16 products.
    torch.testing.assert_close(half.float(), conv(feat, pairs), rtol=2e-2, atol=2e-2)


def test_chunks_change_no_number(monkeypatch):
    torch.manual_seed(0)
    pairs, conv = kernel_map(*random_voxels([300, 100]), 3), SubmanifoldConv3d(16, 16, 3)

    def run():
        feat = torch.ones(400, 16, requires_grad=True)
        out = conv(feat, pairs)
        out.square().sum().backward()
        return out.detach(), feat.grad

    whole = run()
    monkeypatch.setattr(tap_convolution, "CHUNK", 32 * 20)
    for ours, expected in zip(run(), whole, strict=True):
        assert torch.equal(ours, expected)


def test_a_map_of_another_convolution_is_refused():
    cells, offsets = random_voxels([5])
    feat, pairs = torch.zeros(5, 2), kernel_map(cells, offsets, 3)
    strided = strided_map(cells, offsets, cells, offsets, kernel_size=3, stride=2)
    with pytest.raises(ValueError, match="kernel map is of size 5, the convolution of size 3"):
        SubmanifoldConv3d(2, 3, 3)(feat, kernel_map(cells, offsets, 5))
    with pytest.raises(ValueError, match="dilation 1, the convolution stride 1 and dilation 2"):
        SubmanifoldConv3d(2, 3, 3, dilation=2)(feat, pairs)
    with pytest.raises(ValueError, match="has stride 2 and dilation 1, the convolution stride 1"):
        SubmanifoldConv3d(2, 3, 3)(feat, strided)
    with pytest.raises(ValueError, match="the kernel map has stride 1, the convolution 2"):
        SparseConv3d(2, 3, 3)(feat, pairs)
    with pytest.raises(ValueError, match="an inverse goes back over a strided map"):
        SparseInverseConv3d(2, 3, 3)(feat, pairs)
    with pytest.raises(ValueError, match="the kernel map reads 5 rows, but feat has 4"):
        SubmanifoldConv3d(2, 3, 3)(feat[:4], pairs)


def test_an_even_kernel_and_odd_groups_are_refused():
    with pytest.raises(ValueError, match="kernel_size must be odd and at least 1, found 2"):
        SubmanifoldConv3d(2, 3, 2)
    with pytest.raises(ValueError, match="groups must divide in_channels 2 and out_channels 3"):
        SubmanifoldConv3d(2, 3, 3, groups=2)
