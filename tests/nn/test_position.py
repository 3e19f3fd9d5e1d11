import pytest
import torch

from pctx.geometry.kernel_map import kernel_map
from pctx.geometry.packed import offsets_from_counts
from pctx.geometry.windows import serial_windows
from pctx.nn.position import ConditionalEncoding, CoordinateMLP, RelativePositionBias
from tests.nn.clouds import random_voxels


@pytest.mark.parametrize(("window", "bound"), [(26, 9), (32, 10), (48, 11), (128, 15), (1024, 31)])
def test_the_bound_of_a_window_is_the_published_one(window, bound):
    assert RelativePositionBias.bound_for(window) == bound


def test_the_relative_bias_adds_the_tables_of_three_axes():
    torch.manual_seed(0)
    grid_coord, offsets = random_voxels([9, 4], extent=9)
    windows = serial_windows(torch.arange(13), offsets, 5)
    encode = RelativePositionBias(2, bound=3)
    bias = encode(grid_coord, windows)
    assert bias.shape == (3, 2, 5, 5)
    for w in range(3):
        for i in range(5):
            for j in range(5):
                step = grid_coord[windows.index[w, i]] - grid_coord[windows.index[w, j]]
                rows = step.clamp(-3, 3) + 3 + torch.tensor([0, 7, 14])
                torch.testing.assert_close(bias[w, :, i, j], encode.table[rows].sum(0))


def test_the_relative_bias_teaches_its_table():
    torch.manual_seed(0)
    grid_coord, offsets = random_voxels([12])
    windows = serial_windows(torch.arange(12), offsets, 6)
    encode = RelativePositionBias(2, bound=1).double()
    assert torch.autograd.gradcheck(
        lambda table: torch.func.functional_call(encode, {"table": table}, (grid_coord, windows)),
        encode.table.detach().clone().requires_grad_(),
    )


def test_the_conditional_encoding_is_convolution_linear_norm():
    torch.manual_seed(0)
    grid_coord, offsets = random_voxels([50, 20])
    pairs, encode = kernel_map(grid_coord, offsets, 3), ConditionalEncoding(6)
    feat = torch.randn(70, 6)
    out = encode(feat, pairs)
    hidden = encode.conv(feat, pairs) @ encode.linear.weight.T + encode.linear.bias
    torch.testing.assert_close(out, torch.nn.functional.layer_norm(hidden, (6,)))


def test_the_conditional_encoding_knows_where_a_lone_voxel_is_not():
    pairs = kernel_map(
        torch.tensor([[0, 0, 0], [1, 0, 0]]), offsets_from_counts(torch.tensor([2])), 3
    )
    left, right = ConditionalEncoding(4)(torch.ones(2, 4), pairs)
    assert not torch.allclose(left, right)


@pytest.mark.parametrize("shape", [(10, 3), (5, 4, 3), (0, 3)])
def test_the_coordinate_mlp_keeps_the_shape_and_reads_every_axis(shape):
    torch.manual_seed(0)
    encode, offset = CoordinateMLP(7, 8), torch.randn(shape, requires_grad=True)
    out = encode(offset)
    assert out.shape == (*shape[:-1], 7)
    (grad,) = torch.autograd.grad(out.square().sum(), offset)
    assert (grad.reshape(-1, 3) != 0).any(0).all() or offset.numel() == 0
