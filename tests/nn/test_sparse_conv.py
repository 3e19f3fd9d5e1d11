import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pctx.geometry.kernel_map import kernel_map
from pctx.geometry.packed import offsets_from_counts
from pctx.nn.sparse_conv import SubmanifoldConv3d
from tests.nn.clouds import random_voxels


def full_grid(side):
    axis = torch.arange(side)
    return torch.cartesian_prod(axis, axis, axis), offsets_from_counts(torch.tensor([side**3]))


@pytest.mark.parametrize("k", [1, 3, 5])
def test_on_a_full_grid_it_is_the_dense_convolution(k):
    torch.manual_seed(0)
    grid_coord, offsets = full_grid(4)
    conv = SubmanifoldConv3d(2, 3, k).double()
    feat = torch.randn(64, 2, dtype=torch.float64)
    dense = F.conv3d(
        feat.T.reshape(1, 2, 4, 4, 4), conv.weight.permute(0, 4, 1, 2, 3), conv.bias, padding=k // 2
    )
    out = conv(feat, kernel_map(grid_coord, offsets, k))
    torch.testing.assert_close(out, dense.reshape(3, 64).T)


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


def test_gradients_are_those_of_differences():
    torch.manual_seed(0)
    grid_coord, offsets = random_voxels([9, 0, 4], extent=3)
    pairs, conv = kernel_map(grid_coord, offsets, 3), SubmanifoldConv3d(2, 3, 3).double()
    feat = torch.randn(13, 2, dtype=torch.float64, requires_grad=True)

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


def test_a_map_of_another_size_is_refused():
    grid_coord, offsets = random_voxels([5])
    with pytest.raises(ValueError, match="kernel map is of size 5, the convolution of size 3"):
        SubmanifoldConv3d(2, 3, 3)(torch.zeros(5, 2), kernel_map(grid_coord, offsets, 5))


def test_an_even_kernel_is_refused():
    with pytest.raises(ValueError, match="kernel_size must be odd and at least 1, found 2"):
        SubmanifoldConv3d(2, 3, 2)
