import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pctx.geometry.packed import offsets_from_counts
from pctx.nn.mlp import (
    MLP,
    BatchNorm,
    DropPath,
    GroupedLinear,
    LayerScale,
    LinearNorm,
    pool_moments,
)


def offsets(*counts):
    return offsets_from_counts(torch.tensor(counts))


def test_mlp_is_two_linear_layers_and_an_exact_gelu():
    torch.manual_seed(0)
    mlp, x = MLP(4, 8, 5), torch.randn(7, 4)
    hidden = x @ mlp.fc1.weight.T + mlp.fc1.bias
    hidden = hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))
    torch.testing.assert_close(mlp(x), hidden @ mlp.fc2.weight.T + mlp.fc2.bias)


def test_mlp_may_have_a_relu():
    torch.manual_seed(0)
    mlp, x = MLP(4, 8, activation="relu"), torch.randn(7, 4)
    torch.testing.assert_close(mlp(x), mlp.fc2(mlp.fc1(x).clamp(min=0)))


def test_grouped_linear_is_a_weighted_sum_of_each_groups_channels():
    torch.manual_seed(0)
    layer, x = GroupedLinear(6, 2), torch.randn(3, 5, 6)
    first, second = x[..., :3] @ layer.weight[0, :3], x[..., 3:] @ layer.weight[0, 3:]
    torch.testing.assert_close(layer(x), torch.stack([first, second], -1))
    with pytest.raises(ValueError, match="channels 6 must be a multiple of groups 4"):
        GroupedLinear(6, 4)


def test_layer_scale_is_a_factor_a_channel():
    layer, x = LayerScale(3, 0.5), torch.randn(4, 3)
    layer.weight.data[1] = 2
    torch.testing.assert_close(layer(x), x * torch.tensor([0.5, 2, 0.5]))


def test_linear_norm_is_its_three_parts():
    torch.manual_seed(0)
    layer, x = LinearNorm(4, 6), torch.randn(9, 4)
    expected = F.batch_norm(layer.linear(x), None, None, training=True, eps=1e-3)
    torch.testing.assert_close(layer(x), F.gelu(expected))


class TestBatchNorm:
    def test_it_equals_torchs_in_float64(self):
        torch.manual_seed(0)
        ours = BatchNorm(5).double()
        torchs = nn.BatchNorm1d(5, eps=1e-3, momentum=0.01).double()
        for norm in (ours, torchs):
            nn.init.uniform_(norm.weight, generator=torch.Generator().manual_seed(1))
            nn.init.uniform_(norm.bias, generator=torch.Generator().manual_seed(2))
        for mode in (True, True, False):
            x = torch.randn(30, 5, dtype=torch.float64) * 3 + 7
            ours.train(mode), torchs.train(mode)
            a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
            torch.testing.assert_close(ours(a), torchs(b))
            ours(a).sin().sum().backward(), torchs(b).sin().sum().backward()
            torch.testing.assert_close(a.grad, b.grad)
            torch.testing.assert_close(ours.weight.grad, torchs.weight.grad)
        for name, value in torchs.state_dict().items():
            torch.testing.assert_close(ours.state_dict()[name], value)

    def test_it_is_exact_over_many_rows(self):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(400_000, 4, generator=generator) + 20
        exact = (x.double() - x.double().mean(0)) / (x.double().var(0, correction=0) + 1e-3).sqrt()
        # Rounding x itself, near 20, to float32 moves a row by 1e-6.
        assert (BatchNorm(4)(x) - exact).abs().max() < 1e-5  # torch.nn.BatchNorm1d: 5e-4

    @pytest.mark.parametrize("n", [0, 1])
    def test_fewer_than_two_rows_take_the_running_statistics_and_leave_them(self, n):
        norm = BatchNorm(3)
        norm.running_mean += 1
        before = {name: value.clone() for name, value in norm.state_dict().items()}
        x = torch.randn(n, 3, requires_grad=True)
        torch.testing.assert_close(norm(x), (x - 1) / 1.001**0.5)
        norm(x).sum().backward()
        torch.testing.assert_close(x.grad, torch.full((n, 3), 1 / 1.001**0.5))
        for name, value in norm.state_dict().items():
            assert torch.equal(value, before[name])

    def test_half_precision_is_normalised_in_float32(self):
        x = torch.randn(5000, 4, generator=torch.Generator().manual_seed(0)).bfloat16()
        y = BatchNorm(4)(x)
        assert y.dtype == torch.bfloat16
        assert (y.float() - BatchNorm(4)(x.float())).abs().max() < 2e-2  # one bfloat16 step at 4

    def test_rows_that_do_not_count_change_nothing(self):
        torch.manual_seed(0)
        norm, alone = BatchNorm(3).double(), BatchNorm(3).double()
        x, valid = torch.randn(40, 3).double().requires_grad_(), torch.rand(40) < 0.5
        y = norm(torch.where(valid[:, None], x, 1e6), valid)
        torch.testing.assert_close(y[valid], alone(x[valid]))
        for a, b in zip(norm.buffers(), alone.buffers(), strict=True):
            torch.testing.assert_close(a, b)
        grads = [torch.autograd.grad(out.sin().sum(), x)[0] for out in (y[valid], alone(x[valid]))]
        torch.testing.assert_close(*grads)

    @pytest.mark.parametrize("counted", [0, 1])
    def test_fewer_than_two_rows_that_count_are_as_few_rows(self, counted):
        norm = BatchNorm(3)
        norm.running_mean += 1
        before = {name: value.clone() for name, value in norm.state_dict().items()}
        x = torch.randn(5, 3)
        torch.testing.assert_close(norm(x, torch.arange(5) < counted), (x - 1) / 1.001**0.5)
        for name, value in norm.state_dict().items():
            assert torch.equal(value, before[name])

    def test_a_batch_in_parts_is_a_batch(self):
        torch.manual_seed(0)
        whole, parted = BatchNorm(3).double(), BatchNorm(3).double()
        x = (torch.randn(40, 3) + torch.arange(40)[:, None]).double().requires_grad_()
        valid = torch.rand(40) < 0.7
        valid[:9] = False  # the first part has no rows that count
        parts = [(x[i : i + 9], valid[i : i + 9]) for i in range(0, 40, 9)]
        moments = pool_moments([parted.moments(*part) for part in parts])
        parted.track(moments)
        y = torch.cat([parted(part, moments=moments) for part, _ in parts])
        expected = whole(x, valid)
        torch.testing.assert_close(y, expected)
        for a, b in zip(whole.buffers(), parted.buffers(), strict=True):
            torch.testing.assert_close(a, b)
        grads = [torch.autograd.grad(out.sin().sum(), x)[0] for out in (y, expected)]
        torch.testing.assert_close(*grads)


class TestDropPath:
    def test_evaluation_and_zero_pass_through(self):
        x = torch.randn(6, 2)
        assert DropPath(0.5).eval()(x, offsets(2, 4)) is x
        assert DropPath(0.0)(x, offsets(2, 4)) is x

    def test_whole_clouds_are_dropped_and_the_kept_ones_scaled(self):
        torch.manual_seed(0)
        counts = [3, 0, 5, 1] * 50
        dropped = DropPath(0.25)(torch.ones(sum(counts), 2), offsets(*counts))
        clouds = dropped.split(counts)
        values = torch.stack([cloud[0, 0] for cloud in clouds if len(cloud)])
        for cloud in clouds:
            assert len(cloud) == 0 or (cloud == cloud[0, 0]).all()
        assert ((values == 0) | (values == 1 / 0.75)).all()
        assert 0.15 < (values == 0).float().mean() < 0.35  # 150 draws: 3 deviations are 0.11

    def test_a_share_outside_its_range_is_refused(self):
        with pytest.raises(ValueError, match=r"drop_path must be in \[0, 1\), found 1"):
            DropPath(1)
