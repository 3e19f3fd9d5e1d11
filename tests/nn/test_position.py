import math

import pytest
import torch

from pctx.geometry.kernel_map import kernel_map
from pctx.geometry.packed import offsets_from_counts
from pctx.nn.position import (
    ConditionalEncoding,
    CoordinateMLP,
    DepthwiseConditionalEncoding,
    LearnedEncoding,
    SinusoidalEncoding,
)
from tests.nn.clouds import random_voxels


class TestSinusoidal:
    @pytest.mark.parametrize("channels", [6, 20, 48])
    def test_it_is_the_published_formula_on_each_axis(self, channels):
        coord = torch.randn(5, 3, dtype=torch.float64) * 10
        out = SinusoidalEncoding(channels, scale=0.5, temperature=100)(coord)
        width = channels // 6 * 2  # of an axis; Vaswani's d_model
        for axis in range(3):
            for i in range(width // 2):
                angle = coord[:, axis] / 0.5 / 100 ** (2 * i / width)
                torch.testing.assert_close(out[:, axis * width + 2 * i], angle.sin())
                torch.testing.assert_close(out[:, axis * width + 2 * i + 1], angle.cos())
        assert (out[:, 3 * width :] == 0).all() and out.shape == (5, channels)

    def test_every_row_has_the_same_length(self):
        out = SinusoidalEncoding(50)(torch.randn(100, 3) * 1000)
        torch.testing.assert_close(out.norm(dim=1), torch.full((100,), math.sqrt(3 * 8)))

    def test_no_two_voxels_of_a_street_are_told_alike(self):
        encode = SinusoidalEncoding(48, scale=0.05)
        axis = torch.arange(2000) * 0.05
        along = encode(torch.stack([axis, torch.zeros(2000), torch.zeros(2000)], dim=1))
        nearest = torch.cdist(along, along).fill_diagonal_(torch.inf).amin()
        assert nearest > 0.5

    def test_an_offset_turns_each_pair_by_the_same_angle_everywhere(self):
        encode, offset = SinusoidalEncoding(12).double(), torch.tensor([0.3, -2.0, 1.0])
        coord = torch.randn(50, 3).double()
        products = (encode(coord) * encode(coord + offset)).sum(1)
        torch.testing.assert_close(products, products[:1].expand(50))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"channels": 5}, "channels must be at least 6"),
            ({"channels": 6, "scale": 0}, "scale must be above 0"),
            ({"channels": 6, "temperature": 0.5}, "temperature at least 1"),
        ],
    )
    def test_sizes_that_encode_nothing_are_refused(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            SinusoidalEncoding(**arguments)


class TestLearned:
    def test_it_adds_the_rows_of_the_axes(self):
        encode = LearnedEncoding(7, size=4, step=0.5)
        out = encode(torch.tensor([[0.0, 0.6, 1.99], [0.49, 1.0, 1.5]]))
        x, y, z = encode.table
        torch.testing.assert_close(out[0], x[0] + y[1] + z[3])
        torch.testing.assert_close(out[1], x[0] + y[2] + z[3])

    def test_positions_beyond_the_table_take_its_last_rows(self):
        encode = LearnedEncoding(7, size=4, axes=1)
        out = encode(torch.tensor([[-3], [0], [3], [4], [1000]]))
        torch.testing.assert_close(out, encode.table[0, [0, 0, 3, 3, 3]])

    def test_it_teaches_its_table(self):
        position = torch.randint(0, 3, (6, 3))
        encode = LearnedEncoding(2, size=3).double()
        assert torch.autograd.gradcheck(
            lambda table: torch.func.functional_call(encode, {"table": table}, (position,)),
            encode.table.detach().clone().requires_grad_(),
        )

    @pytest.mark.parametrize("sizes", [{"size": 0}, {"size": 3, "step": 0.0}])
    def test_an_empty_table_is_refused(self, sizes):
        with pytest.raises(ValueError, match="size and step must be positive"):
            LearnedEncoding(4, **sizes)


@pytest.mark.parametrize("shape", [(10, 3), (5, 4, 3), (0, 3)])
def test_the_coordinate_mlp_keeps_the_shape_and_reads_every_axis(shape):
    torch.manual_seed(0)
    encode, offset = CoordinateMLP(7, 8), torch.randn(shape, requires_grad=True)
    out = encode(offset)
    assert out.shape == (*shape[:-1], 7)
    (grad,) = torch.autograd.grad(out.square().sum(), offset)
    assert (grad.reshape(-1, 3) != 0).any(0).all() or offset.numel() == 0


def test_rows_that_do_not_count_are_mapped_by_the_norm_of_the_others():
    torch.manual_seed(0)
    coord, valid = torch.randn(4, 5, 3), torch.rand(4, 5) < 0.5
    encode = CoordinateMLP(7, 8)
    some = encode(coord, valid)
    torch.testing.assert_close(some[valid], encode(coord[valid]))
    assert not torch.allclose(some, encode(coord))


@pytest.mark.parametrize(
    "encode", [SinusoidalEncoding(14), LearnedEncoding(14, size=9), CoordinateMLP(14, 5)]
)
def test_absolute_encodings_are_called_alike(encode):
    coord = torch.rand(11, 3) * 9
    encode.train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = encode(coord)
    assert out.shape == (11, 14) and encode(coord[:0]).shape == (0, 14)
    torch.testing.assert_close(out.float(), encode(coord), atol=0.05, rtol=0.05)
    shuffled = torch.randperm(11)
    torch.testing.assert_close(encode(coord[shuffled]), encode(coord)[shuffled])
    if out.requires_grad:
        out.float().square().sum().backward()
    for name, parameter in encode.named_parameters():
        assert parameter.grad is not None and (parameter.grad != 0).any(), name


def test_the_conditional_encoding_is_convolution_linear_norm():
    torch.manual_seed(0)
    grid_coord, offsets = random_voxels([50, 20])
    pairs, encode = kernel_map(grid_coord, offsets, 3), ConditionalEncoding(6)
    feat = torch.randn(70, 6)
    out = encode(feat, pairs)
    hidden = encode.conv(feat, pairs) @ encode.linear.weight.T + encode.linear.bias
    torch.testing.assert_close(out, torch.nn.functional.layer_norm(hidden, (6,)))


def test_the_depthwise_encoding_weighs_each_channel_of_the_neighbours():
    torch.manual_seed(0)
    grid_coord, offsets = random_voxels([30, 9])
    pairs, encode = kernel_map(grid_coord, offsets, 3), DepthwiseConditionalEncoding(5)
    feat, total = torch.randn(39, 5), torch.zeros(39, 5)
    for tap in range(27):
        weight = encode.conv.weight.flatten(1)[:, tap]
        for pair in range(pairs.starts[tap], pairs.starts[tap + 1]):
            total[pairs.target[pair]] += weight * feat[pairs.source[pair]]
    torch.testing.assert_close(encode(feat, pairs), encode.norm(total))


@pytest.mark.parametrize("kind", [ConditionalEncoding, DepthwiseConditionalEncoding])
class TestConditional:
    def test_it_knows_where_a_lone_voxel_is_not(self, kind):
        pairs = kernel_map(
            torch.tensor([[0, 0, 0], [1, 0, 0]]), offsets_from_counts(torch.tensor([2])), 3
        )
        left, right = kind(4)(torch.ones(2, 4), pairs)
        assert not torch.allclose(left, right)

    def test_whole_voxel_translations_and_the_order_of_voxels_change_nothing(self, kind):
        torch.manual_seed(0)
        grid_coord, offsets = random_voxels([40])
        encode, feat, shuffled = kind(4).eval(), torch.randn(40, 4), torch.randperm(40)
        out = encode(feat, kernel_map(grid_coord, offsets, 3))
        moved = kernel_map((grid_coord + torch.tensor([70, -9, 4]))[shuffled], offsets, 3)
        torch.testing.assert_close(encode(feat[shuffled], moved), out[shuffled])

    def test_half_precision_is_near_and_teaches_every_parameter(self, kind):
        torch.manual_seed(0)
        grid_coord, offsets = random_voxels([40])
        encode, feat = kind(4), torch.randn(40, 4)
        pairs = kernel_map(grid_coord, offsets, 3)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            half = encode(feat, pairs)
        torch.testing.assert_close(half.float(), encode(feat, pairs), atol=0.1, rtol=0.05)
        (half.float() * torch.randn(40, 4)).sum().backward()
        for name, parameter in encode.named_parameters():
            assert parameter.grad is not None and (parameter.grad != 0).any(), name
