import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pctx.geometry.curves import decode
from pctx.geometry.kernel_map import kernel_map
from pctx.geometry.packed import offsets_from_counts
from pctx.geometry.windows import octree_windows, serial_windows
from pctx.nn.dot_product import dot_product_attention
from pctx.nn.position import DepthwiseConditionalEncoding
from pctx.nn.relative import CoordinateBias, RelativePositionBias, RotaryEncoding
from tests.nn.clouds import random_voxels


def cloud_windows(counts=(9, 4), size=5, extent=9):
    grid_coord, offsets = random_voxels(counts, extent=extent)
    return grid_coord, serial_windows(torch.arange(sum(counts)), offsets, size)


def heads(windows, h, d, dtype=torch.float64):
    w, k = windows.index.shape
    return [torch.randn(w, h, k, d, dtype=dtype) for _ in range(2)]


class TestBias:
    @pytest.mark.parametrize(
        ("window", "bound"), [(26, 9), (32, 10), (48, 11), (128, 15), (1024, 31)]
    )
    def test_the_bound_of_a_window_is_the_published_one(self, window, bound):
        assert RelativePositionBias.bound_for(window) == bound

    @pytest.mark.parametrize(
        ("window", "dilation", "rows"),
        [(8, 1, 39), (8, 2, 57), (13, 1, 63), (13, 4, 123), (26, 1, 123), (26, 4, 249)],
    )
    def test_the_table_of_an_octree_window_is_the_published_one(self, window, dilation, rows):
        bound = RelativePositionBias.octformer_bound(window, dilation)
        assert RelativePositionBias(2, bound).table.shape == (rows, 2)

    def test_it_adds_the_tables_of_three_axes(self):
        torch.manual_seed(0)
        grid_coord, windows = cloud_windows()
        encode = RelativePositionBias(2, bound=3)
        bias = encode(grid_coord, windows)
        assert bias.shape == (3, 2, 5, 5)
        for w in range(3):
            for i in range(5):
                for j in range(5):
                    step = grid_coord[windows.index[w, i]] - grid_coord[windows.index[w, j]]
                    rows = step.clamp(-3, 3) + 3 + torch.tensor([0, 7, 14])
                    torch.testing.assert_close(bias[w, :, i, j], encode.table[rows].sum(0))

    def test_it_teaches_its_table(self):
        torch.manual_seed(0)
        grid_coord, windows = cloud_windows((12,), 6)
        encode = RelativePositionBias(2, bound=1).double()
        assert torch.autograd.gradcheck(
            lambda table: torch.func.functional_call(
                encode, {"table": table}, (grid_coord, windows)
            ),
            encode.table.detach().clone().requires_grad_(),
        )

    def test_offsets_past_the_bound_are_told_alike(self):
        encode = RelativePositionBias(3, bound=4)
        windows = serial_windows(torch.arange(4), offsets_from_counts(torch.tensor([4])), 4)
        line = torch.tensor([[0, 0, 0], [0, 3, 0], [0, 4, 0], [0, 90, 0]])
        bias = encode(line, windows)
        torch.testing.assert_close(bias[0, :, 2, 0], bias[0, :, 3, 0])
        assert not torch.allclose(bias[0, :, 1, 0], bias[0, :, 2, 0])

    def test_half_tables_are_taught_as_well_as_whole_ones(self):
        torch.manual_seed(0)
        grid_coord, windows = cloud_windows((3000,), 256, extent=None)
        half = RelativePositionBias(1, bound=1).bfloat16()
        bias = half(grid_coord, windows)
        (grad,) = torch.autograd.grad(bias.sum(), half.table)
        # Each axis shares out the pairs of all windows.
        torch.testing.assert_close(
            grad.float().sum(), torch.tensor(3.0 * bias.numel()), rtol=0.01, atol=0
        )


class TestCoordinateBias:
    def test_it_is_the_mlp_of_each_offset(self):
        torch.manual_seed(0)
        _, windows = cloud_windows()
        coord, encode = torch.randn(13, 3), CoordinateBias(2).eval()
        bias = encode(coord, windows)
        places = coord[windows.index]
        for i in range(5):
            for j in range(5):
                torch.testing.assert_close(bias[..., i, j], encode.mlp(places[:, i] - places[:, j]))

    def test_masked_slots_teach_its_norm_nothing(self):
        torch.manual_seed(0)
        _, windows = cloud_windows((9, 4), 9)
        assert windows.valid is not None
        coord, encode = torch.randn(13, 3), CoordinateBias(2)
        encode(coord, windows)
        hidden = [
            encode.mlp.fc1((cloud[:, None] - cloud[None]).view(-1, 3))
            for cloud in coord.split([9, 4])
        ]
        expected = 0.9 + 0.1 * torch.cat(hidden).var(0)  # the momentum, from 1
        torch.testing.assert_close(encode.mlp.norm.running_var, expected)


class TestRotary:
    def test_it_turns_the_halves_of_each_third(self):
        torch.manual_seed(0)
        grid_coord, windows = cloud_windows((7,), 7)
        query, key = heads(windows, 2, 12)
        grid_coord -= grid_coord[0].clone()  # angles count from the first point of the window
        turned = RotaryEncoding(12, base=50.0)(grid_coord, windows, query, key)
        for before, after in zip((query, key), turned, strict=True):
            for slot in range(7):
                for axis in range(3):
                    for i in range(2):
                        angle = grid_coord[slot, axis].double() * 50.0 ** (-2 * i / 4)
                        first, second = 4 * axis + i, 4 * axis + 2 + i
                        plane = torch.complex(before[0, :, slot, first], before[0, :, slot, second])
                        expected = plane * torch.exp(1j * angle)
                        found = torch.complex(after[0, :, slot, first], after[0, :, slot, second])
                        # The angles are float32.
                        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)

    def test_products_depend_on_the_offset_alone(self):
        torch.manual_seed(0)
        windows = serial_windows(torch.arange(40), offsets_from_counts(torch.tensor([40])), 40)
        grid_coord = torch.randint(0, 3, (40, 3))
        query, key = (t[:, :, :1].expand(1, 2, 40, 18) for t in heads(windows, 2, 18))
        query, key = RotaryEncoding(18)(grid_coord, windows, query, key)
        products = (query @ key.transpose(-2, -1))[0, 0]
        offset = grid_coord[:, None] - grid_coord[None]
        number = ((offset + 2) * torch.tensor([25, 5, 1])).sum(-1)
        for each in number.unique():
            same = products[number == each]
            torch.testing.assert_close(same, same[:1].expand_as(same), atol=1e-4, rtol=1e-4)
        assert products.std() > 0.1

    def test_lengths_are_kept(self):
        grid_coord, windows = cloud_windows()
        query, key = heads(windows, 2, 24)
        turned = RotaryEncoding(24)(grid_coord * 1000, windows, query, key)
        for before, after in zip((query, key), turned, strict=True):
            torch.testing.assert_close(
                after.norm(dim=-1), before.norm(dim=-1), rtol=1e-6, atol=1e-6
            )

    def test_heads_keep_their_type(self):
        grid_coord, windows = cloud_windows()
        query, key = heads(windows, 2, 6, dtype=torch.bfloat16)
        turned = RotaryEncoding(6)(grid_coord, windows, query, key)
        assert {t.dtype for t in turned} == {torch.bfloat16}

    def test_gradients_pass_through(self):
        grid_coord, windows = cloud_windows((4,), 4)
        inputs = [t.requires_grad_() for t in heads(windows, 1, 6)]
        encode = RotaryEncoding(6)
        assert torch.autograd.gradcheck(lambda q, k: encode(grid_coord, windows, q, k), inputs)

    @pytest.mark.parametrize("d", [0, 8, 16, 27])
    def test_heads_without_six_equal_parts_are_refused(self, d):
        with pytest.raises(ValueError, match=f"multiple of 6, found {d}"):
            RotaryEncoding(d)


def position_for(encode, grid_coord):
    return grid_coord.float() if isinstance(encode, CoordinateBias) else grid_coord


def scores_of(encode, position, windows):
    """What the encoding makes of the scores, whatever it works on; queries go by the point."""
    if not isinstance(encode, RotaryEncoding):
        return encode(position, windows)
    generator = torch.Generator().manual_seed(3)
    query, key = (
        torch.randn(len(position), 2, 18, generator=generator)[windows.index].transpose(1, 2)
        for _ in range(2)
    )
    query, key = encode(position, windows, query, key)
    return query @ key.transpose(-2, -1)


@pytest.fixture(params=["table", "coordinates", "rotary"])
def encode(request):
    torch.manual_seed(0)
    if request.param == "table":
        return RelativePositionBias(2, bound=4)
    return CoordinateBias(2).eval() if request.param == "coordinates" else RotaryEncoding(18)


class TestRelativeLaws:
    def test_whole_voxel_translations_change_nothing(self, encode):
        grid_coord, windows = cloud_windows()
        far = torch.tensor([640, -320, 8])
        if not isinstance(encode, CoordinateBias):
            far *= 10_000_000  # beyond 32 bits
        moved = scores_of(encode, position_for(encode, grid_coord + far), windows)
        assert torch.equal(moved, scores_of(encode, position_for(encode, grid_coord), windows))

    def test_scores_follow_the_order_of_slots(self, encode):
        grid_coord, _ = cloud_windows((7,), 7)
        position = position_for(encode, grid_coord)
        offsets, order = offsets_from_counts(torch.tensor([7])), torch.randperm(7)
        plain = scores_of(encode, position, serial_windows(torch.arange(7), offsets, 7))
        mixed = scores_of(encode, position, serial_windows(order, offsets, 7))
        torch.testing.assert_close(mixed, plain[:, :, order][..., order], atol=1e-4, rtol=1e-4)

    def test_no_windows_have_no_scores(self, encode):
        windows = serial_windows(torch.arange(0), offsets_from_counts(torch.tensor([0])), 4)
        position = position_for(encode, torch.zeros(0, 3, dtype=torch.int64))
        assert scores_of(encode, position, windows).shape == (0, 2, 1, 1)

    def test_fast_attention_in_half_precision_takes_it_and_teaches_it(self, encode):
        grid_coord, windows = cloud_windows()
        position = position_for(encode, grid_coord)
        value = torch.randn(*windows.index.shape, 2, 18).transpose(1, 2)

        def attend():
            query, key, bias = value, value, None
            if isinstance(encode, RotaryEncoding):
                query, key = encode(position, windows, query, key)
            else:
                bias = encode(position, windows)
            return dot_product_attention(query, key, value, valid=windows.valid, bias=bias)

        with torch.autocast("cpu", dtype=torch.bfloat16):
            half = attend()
        torch.testing.assert_close(half.float(), attend(), atol=0.05, rtol=0.05)
        if not isinstance(encode, RotaryEncoding):
            half.float().square().sum().backward()
        for name, parameter in encode.named_parameters():
            assert parameter.grad is not None and (parameter.grad != 0).any(), name


class Published:
    """The arrays of a golden file and its stages, and layers with the published weights."""

    def __init__(self, folder, name):
        self.arrays = dict(np.load(folder / f"{name}.npz")) | dict(
            np.load(folder / f"{name}_stages.npz")
        )

    def __getitem__(self, key):
        return torch.from_numpy(self.arrays[key])

    def linear(self, x, key):
        return F.linear(x, self[f"param/{key}.weight"], self[f"param/{key}.bias"])

    def layer_norm(self, x, key):
        return F.layer_norm(x, x.shape[1:], self[f"param/{key}.weight"], self[f"param/{key}.bias"])

    def batch_norm(self, x, key, eps):
        names = ("running_mean", "running_var", "weight", "bias")
        return F.batch_norm(x, *(self[f"param/{key}.{name}"] for name in names), eps=eps)

    def mlp(self, x, key):
        return self.linear(F.gelu(self.linear(x, f"{key}.fc1")), f"{key}.fc2")

    def attend(self, x, key, windows, h, bias=None, rotate=lambda query, key: (query, key)):
        w, k = windows.index.shape
        query, key_, value = (
            self.linear(x, f"{key}.qkv")[windows.index].view(w, k, 3, h, -1).permute(2, 0, 3, 1, 4)
        )
        query, key_ = rotate(query, key_)
        out = dot_product_attention(query, key_, value, valid=windows.valid, bias=bias)
        return self.linear(out.transpose(1, 2).reshape(w * k, -1)[windows.slot], f"{key}.proj")


@torch.no_grad()
def test_rotary_attention_is_litepts(golden):
    net, stage, level = Published(golden, "litept_small"), "backbone.enc.enc3", "level/3"
    # The level's pooling: linear, maximum, batch norm, GELU.
    cluster = net[f"{level}/pooling_inverse"].long()
    fine = net.linear(net["stage/enc2"], f"{stage}.down.proj")
    feat = torch.full((len(cluster.unique()), 36), -torch.inf)
    feat.scatter_reduce_(0, cluster[:, None].expand_as(fine), fine, "amax")
    feat = F.gelu(net.batch_norm(feat, f"{stage}.down.norm.0", eps=1e-3))

    grid_coord = net[f"{level}/grid_coord"].long()
    offsets = offsets_from_counts(torch.bincount(net[f"{level}/batch"].long()))
    rotary = RotaryEncoding(18, base=100.0)
    for block, code in enumerate(net[f"{level}/serialized_code"]):
        windows = serial_windows(torch.argsort(code), offsets, 32)
        key = f"{stage}.block{block}"
        feat = net.layer_norm(feat, f"{key}.norm0.0")
        feat = feat + net.attend(
            net.layer_norm(feat, f"{key}.norm1.0"),
            f"{key}.attn",
            windows,
            h=2,
            rotate=lambda query, key_, windows=windows: rotary(grid_coord, windows, query, key_),
        )
        feat = feat + net.mlp(net.layer_norm(feat, f"{key}.norm2.0"), f"{key}.mlp.0")
    # Four blocks in float32 on features up to 5.
    torch.testing.assert_close(feat, net["stage/enc3"], atol=1e-5, rtol=0)


@torch.no_grad()
def test_octree_attention_with_dilation_is_octformers(golden):
    net, depth, k, h = Published(golden, "octformer_two_stage"), 5, 13, 2
    key_of = net[f"level/{depth}/key_nonempty"]
    grid_coord = decode(key_of & ((1 << 48) - 1), depth, "z")
    offsets = offsets_from_counts(torch.bincount(key_of >> 48))
    pairs = kernel_map(grid_coord, offsets, 3)
    feat = net["stage/patch_embed"]
    for block, dilation in enumerate((1, 4)):
        key = f"backbone.layers.0.blocks.{block}"
        bound = RelativePositionBias.octformer_bound(k, dilation)
        encode, relative = DepthwiseConditionalEncoding(16).eval(), RelativePositionBias(h, bound)
        relative.load_state_dict({"table": net[f"param/{key}.attention.rpe.rpe_table"]})
        weights = net[f"param/{key}.cpe.conv.weights"]  # (27, 1, c)
        encode.load_state_dict(
            {"conv.weight": weights.view(3, 3, 3, 1, 16).movedim(-1, 0)}
            | {
                f"norm.{name}": net[f"param/{key}.cpe.bn.{name}"]
                for name in encode.norm.state_dict()
            }
        )
        feat = feat + encode(feat, pairs)
        windows = octree_windows(torch.arange(len(feat)), offsets, k, dilation, published=True)
        feat = feat + net.attend(
            net.layer_norm(feat, f"{key}.norm1"),
            f"{key}.attention",
            windows,
            h,
            bias=relative(grid_coord, windows),
        )
        feat = feat + net.mlp(net.layer_norm(feat, f"{key}.norm2"), f"{key}.mlp")
    # Two blocks in float32 on features up to 10.
    torch.testing.assert_close(feat, net["stage/layer0"], atol=2e-5, rtol=0)
