"""The kernel gives torch's products, in bytes that no thread and no other row changes."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from pctx.geometry.kernel_map import kernel_map
from pctx.geometry.strided_map import strided_map
from pctx.nn import compiled_products, tap_convolution
from pctx.nn.compiled_products import (
    Norm,
    compiled_agrees,
    gelu_backward_,
    mlp,
    multiply,
    outer,
    products_suit,
)
from pctx.nn.tap_convolution import convolve_by_tap
from tests.nn.clouds import random_voxels

# Sums of a few hundred products, in another order.
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(autouse=True)
def compiled():
    if compiled_products._library() is None:
        pytest.skip("there is no C compiler, or no cache, or no OpenMP")
    assert compiled_agrees()


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def norm_of(channels):
    return Norm(torch.randn(channels), torch.randn(channels), 1e-5)


def normed(norm, x):
    return x if norm is None else F.layer_norm(x, x.shape[1:], norm.weight, norm.bias, norm.eps)


@pytest.mark.parametrize("rows", [0, 1, 8, 129, 300])
@pytest.mark.parametrize(("i", "o"), [(1, 1), (6, 32), (33, 31), (64, 96), (20, 50)])
@pytest.mark.parametrize("plain", [True, False])
def test_rows_are_taken_normalised_multiplied_and_put_in_place(rows, i, o, plain):
    torch.manual_seed(0)
    x, weight, bias = torch.randn(max(rows, 5), i), torch.randn(o, i), torch.randn(o)
    if plain:
        torch.testing.assert_close(multiply(x[:rows], weight), x[:rows] @ weight.t(), **CLOSE)
        return
    norm, source = norm_of(i), torch.randint(len(x), (rows,))
    target, out = torch.randperm(rows + 7)[:rows], torch.zeros(rows + 7, o)
    expected = out.clone()
    expected[target] = F.linear(normed(norm, x[source]), weight, bias)
    multiply(x, weight, bias, source=source, out=out, target=target, norm=norm)
    torch.testing.assert_close(out, expected, **CLOSE)


@pytest.mark.parametrize("outside", [-1, 50, 2**40])
def test_an_index_outside_is_an_error(outside):
    x, weight, index = torch.randn(50, 4), torch.randn(3, 4), torch.tensor([0, 49, outside])
    for place in ("source", "target"):
        with pytest.raises(IndexError, match="outside"):
            multiply(
                x[:3] if place == "target" else x, weight, out=torch.zeros(50, 3), **{place: index}
            )


@pytest.mark.parametrize("layout", ["rows", "columns", "neither"])
def test_a_matrix_may_have_any_strides(layout):
    x = torch.randn(70, 24)
    weight = {
        "rows": torch.randn(40, 24),
        "columns": torch.randn(24, 40).t(),
        "neither": torch.randn(40, 3, 24, 2)[:, 1, :, 0],
    }[layout]
    torch.testing.assert_close(multiply(x, weight), x @ weight.t(), **CLOSE)


@pytest.mark.parametrize("rows", [0, 1, 999, 1001, 2300])
@pytest.mark.parametrize(("o", "i"), [(1, 1), (9, 33), (64, 32)])
def test_outer_products_are_summed_and_added(rows, o, i):
    torch.manual_seed(0)
    a, b = torch.randn(rows, o), torch.randn(rows, i)
    sums = torch.empty(o)
    loose = {"rtol": 1e-4, "atol": 1e-3}
    torch.testing.assert_close(outer(a, b, sums=sums), a.t() @ b, **loose)
    torch.testing.assert_close(sums, a.sum(0), **loose)
    total = torch.ones(o, i)
    outer(a, b, total, sums)
    torch.testing.assert_close(total, 1 + a.t() @ b, **loose)
    torch.testing.assert_close(sums, 2 * a.sum(0), **loose)


@pytest.mark.parametrize("rows", [0, 3, 200])
@pytest.mark.parametrize("gelu", [True, False])
@pytest.mark.parametrize("biased_norm", [True, False])
def test_an_mlp_is_two_products_and_what_is_between(rows, gelu, biased_norm):
    torch.manual_seed(0)
    x, norm = torch.randn(rows, 20), norm_of(20) if biased_norm else None
    first, second = (torch.randn(51, 20), torch.randn(51)), (torch.randn(17, 51), torch.randn(17))
    hidden = F.linear(normed(norm, x), *first)
    expected = F.linear(F.gelu(hidden) if gelu else hidden.relu(), *second)
    torch.testing.assert_close(mlp(x, *first, *second, gelu, norm), expected, **CLOSE)


def test_gelu_and_its_slope_are_exact_to_single_precision():
    x = torch.linspace(-14, 14, 10_001)
    exact = x.double().requires_grad_()
    (slope,) = torch.autograd.grad(F.gelu(exact).sum(), exact)
    hidden, grad = x.clone(), torch.ones_like(x)
    gelu_backward_(hidden, grad)
    torch.testing.assert_close(hidden.double(), F.gelu(exact).detach(), rtol=0, atol=1e-6)
    torch.testing.assert_close(grad.double(), slope, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["submanifold", "strided", "depthwise"])
@pytest.mark.parametrize(("i", "o"), [(6, 32), (64, 48), (5, 7)])
def test_convolutions_are_those_of_torch(monkeypatch, kind, i, o):
    torch.manual_seed(0)
    grid_coord, offsets = random_voxels([300, 5, 90])
    if kind == "strided":
        coarse, size = random_voxels([30, 2, 9]), 2
        pairs = strided_map(grid_coord, offsets, *coarse, kernel_size=2, stride=2)
    else:
        pairs, size = kernel_map(grid_coord, offsets, 3), 3
    feat = torch.randn(len(grid_coord), i, requires_grad=True)
    shape = (i, size, size, size, 1) if kind == "depthwise" else (o, size, size, size, i)
    weight = torch.randn(shape, requires_grad=True)
    found = []
    for suits in (products_suit, lambda *_: False):
        monkeypatch.setattr(tap_convolution, "products_suit", suits)
        out = convolve_by_tap(feat, weight, pairs)
        found.append((out, *torch.autograd.grad(out.sin().sum(), (feat, weight))))
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, **CLOSE)


def test_bytes_depend_on_no_thread_and_on_no_other_row(threads):
    torch.manual_seed(0)
    grid_coord, offsets = random_voxels([900])
    pairs = kernel_map(grid_coord, offsets, 3)
    feat, weight = torch.randn(len(grid_coord), 32), torch.randn(48, 3, 3, 3, 32)
    matrix, bias, back = torch.randn(40, 32), torch.randn(40), torch.randn(32, 40)
    found = []
    for count in (1, 2, 3):
        threads(count)
        leaves = (feat.clone().requires_grad_(), weight.clone().requires_grad_())
        out = convolve_by_tap(*leaves, pairs)
        found.append(
            (
                out,
                *torch.autograd.grad(out.sin().sum(), leaves),
                multiply(feat, matrix, bias),
                outer(feat, feat),
                mlp(feat, matrix, bias, back, bias[:32], True),
            )
        )
    for others in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found[0], others, strict=True))
    assert torch.equal(multiply(feat[100:231], matrix, bias), found[0][3][100:231])


def test_what_does_not_suit_is_left_to_torch():
    feat = torch.zeros(5, 4)
    assert products_suit(feat, torch.nn.Parameter(feat))
    for other in (feat.double(), feat.to("meta"), feat.half()):
        assert not products_suit(feat, other)


@pytest.mark.parametrize("place", ["autocast", "meta", "float64"])
def test_the_kernel_is_tried_in_single_precision_wherever_it_is_used_first(place):
    compiled_agrees.cache_clear()
    before = torch.get_default_dtype()
    try:
        if place == "float64":
            torch.set_default_dtype(torch.float64)
        inside = {
            "autocast": torch.autocast("cpu", torch.bfloat16),
            "meta": torch.device("meta"),
            "float64": torch.no_grad(),
        }
        with inside[place]:
            assert compiled_agrees()
    finally:
        torch.set_default_dtype(before)


def test_sizes_that_do_not_fit_are_refused_before_anything_is_read():
    x, weight = torch.randn(50, 8), torch.randn(16, 8)
    wrong = (
        {"bias": torch.randn(15)},
        {"bias": torch.randn(16).double()},
        {"norm": norm_of(7)},
        {"source": torch.arange(3), "target": torch.arange(4), "out": torch.zeros(9, 16)},
    )
    for options in wrong:
        with pytest.raises(ValueError, match=r"do not fit|must be written"):
            multiply(x, weight, **options)
    with pytest.raises(ValueError, match="do not fit"):
        multiply(x[:, :7], weight)
    with pytest.raises(ValueError, match="do not fit"):
        mlp(x, weight, torch.randn(16), torch.randn(4, 15), torch.randn(4), True)


def test_numbers_with_strides_are_read_where_they_lie():
    norm = Norm(torch.randn(16)[::2], torch.randn(1).expand(8), 1e-5)
    x, weight = torch.randn(20, 8), torch.randn(16, 8)
    expected = F.linear(normed(norm, x), weight)
    torch.testing.assert_close(multiply(x, weight, norm=norm), expected, **CLOSE)


def test_what_listens_to_operators_hears_them():
    class Listener(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    feat = torch.zeros(5, 4)
    with Listener():
        assert not products_suit(feat)
    assert products_suit(feat)
