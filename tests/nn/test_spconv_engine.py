import numpy as np
import pytest
import torch

from pctx.geometry.kernel_map import kernel_map
from pctx.geometry.packed import offsets_from_counts
from pctx.geometry.strided_map import strided_map
from pctx.nn import backend, spconv_engine
from pctx.nn.sparse_conv import SparseConv3d, SparseInverseConv3d, SubmanifoldConv3d
from tests.nn.clouds import random_voxels

CPU = torch.device("cpu")


@pytest.fixture
def spconv():
    if not spconv_engine.spconv_is_installed():
        pytest.skip("spconv is not installed")
    return spconv_engine.spconv_library()


def touching():
    """Two clouds of which one ends where the other begins, were they one."""
    cells = [[x, y, z] for x in range(3) for y in range(3) for z in range(3)]
    first, second = torch.tensor(cells), torch.tensor(cells) + torch.tensor([3, 0, 0])
    return torch.cat([first, second]), offsets_from_counts(torch.tensor([27, 27]))


def far_apart():
    """Clouds whose common volume needs more than 32 bits, the last cells of one beside the next."""
    far = 2**20
    corners = torch.cartesian_prod(*[torch.tensor([0, 1, far - 1, far])] * 3)
    return corners.repeat(3, 1), torch.arange(0, 64 * 3 + 1, 64)


CLOUDS = {
    "scan": lambda: random_voxels([300, 0, 80]),
    "one voxel": lambda: random_voxels([1]),
    "touching": touching,
    "far apart": far_apart,
}


def twins(make, feat, pairs):
    """Run both engines: their value and gradients."""
    torch.manual_seed(0)
    convs = [make(backend=name) for name in ("torch", "spconv")]
    convs[1].load_state_dict(convs[0].state_dict())
    results = []
    for conv in convs:
        assert backend.convolution_engine(feat, conv.weight, pairs, conv.backend) == conv.backend
        x = feat.clone().requires_grad_()
        out = conv(x, pairs)
        out.backward(torch.linspace(-1, 1, out.numel()).view_as(out))
        results.append([out.detach(), x.grad, conv.weight.grad, conv.bias.grad])
    return zip(*results, strict=True)


def assert_equal_within(tolerance, results):
    for ours, theirs in results:
        assert (ours - theirs).abs().max() <= tolerance * max(1, ours.abs().max())


@pytest.mark.usefixtures("spconv")
@pytest.mark.parametrize("channels", [(1, 1), (3, 16), (64, 64), (20, 7)])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("kernel_size", [1, 3, 5])
@pytest.mark.parametrize("clouds", CLOUDS)
def test_spconv_equals_torch_over_submanifold_maps(clouds, kernel_size, dilation, channels):
    grid_coord, offsets = CLOUDS[clouds]()
    pairs = kernel_map(grid_coord, offsets, kernel_size, dilation)
    feat = torch.randn(len(grid_coord), channels[0], generator=torch.Generator().manual_seed(0))

    def make(backend):
        return SubmanifoldConv3d(*channels, kernel_size, dilation=dilation, backend=backend)

    assert_equal_within(1e-5, twins(make, feat, pairs))


@pytest.mark.usefixtures("spconv")
@pytest.mark.parametrize(("kernel_size", "padding"), [(2, 0), (3, 1)])
@pytest.mark.parametrize("convolution", [SparseConv3d, SparseInverseConv3d])
def test_spconv_equals_torch_over_strided_maps(convolution, kernel_size, padding):
    fine, coarse = random_voxels([200, 0, 70]), random_voxels([50, 3, 20], seed=1)
    pairs = strided_map(*fine, *coarse, kernel_size=kernel_size, stride=2, padding=padding)
    read = pairs if convolution is SparseConv3d else pairs.turned()
    feat = torch.randn(read.num_sources, 5, generator=torch.Generator().manual_seed(0))

    def make(backend):
        return convolution(5, 6, kernel_size, backend=backend)

    assert_equal_within(1e-5, twins(make, feat, pairs))


@pytest.mark.usefixtures("spconv")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_rounds_what_spconv_reads_and_writes_but_no_sum(dtype):
    pairs = kernel_map(*random_voxels([300]), 3)
    conv = SubmanifoldConv3d(16, 16, 3, backend="spconv")
    feat = torch.randn(300, 16, requires_grad=True)
    with torch.autocast("cpu", dtype=dtype):
        half = conv(feat, pairs)
    assert half.dtype == dtype
    half.float().sum().backward()
    assert feat.grad.dtype == conv.weight.grad.dtype == torch.float32
    rounded = SubmanifoldConv3d(16, 16, 3, backend="torch")
    rounded.load_state_dict({name: p.to(dtype).float() for name, p in conv.state_dict().items()})
    exact = rounded(feat.detach().to(dtype).float(), pairs)
    # Rounded once to 8 or 11 bits, and once more with the bias.
    step = torch.finfo(dtype).eps
    torch.testing.assert_close(half.float(), exact, rtol=2 * step, atol=2 * step)


def test_state_dicts_and_results_are_those_of_spconvs_own_modules(spconv):
    from spconv.pytorch import SparseConvTensor, SubMConv3d

    grid_coord, offsets = random_voxels([80, 60])
    theirs = SubMConv3d(4, 6, 3, bias=False, algo=spconv.ConvAlgo.Native)
    ours = SubmanifoldConv3d(4, 6, 3, bias=False)
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    batch = torch.repeat_interleave(torch.arange(2), offsets.diff())
    indices = torch.cat([batch[:, None], grid_coord], 1).int()
    feat = torch.randn(140, 4)
    expected = theirs(SparseConvTensor(feat, indices, [64, 64, 64], 2)).features
    torch.testing.assert_close(ours(feat, kernel_map(grid_coord, offsets, 3)), expected)


@pytest.mark.usefixtures("spconv")
def test_what_spconv_cannot_do_is_left_to_torch():
    pairs, weight = kernel_map(*random_voxels([20]), 3), torch.zeros(4, 3, 3, 3, 4)
    feat = torch.zeros(20, 4)

    def engine(feat, weight, pairs):
        return backend.convolution_engine(feat, weight, pairs, "spconv")

    assert engine(feat, weight, pairs) == "spconv"
    assert engine(feat.double(), weight.double(), pairs) == "torch"
    assert engine(feat, weight[..., :1], pairs) == "torch"
    empty = kernel_map(*random_voxels([0, 0]), 3)
    assert engine(feat[:0], weight, empty) == "torch"
    out = SubmanifoldConv3d(4, 4, 3, backend="spconv")(feat[:0], empty)
    assert out.shape == (0, 4)


@pytest.mark.usefixtures("spconv")
def test_more_numbers_than_32_bits_count_are_left_to_torch(monkeypatch):
    pairs, weight = kernel_map(*random_voxels([20]), 3), torch.zeros(4, 3, 3, 3, 4)
    monkeypatch.setattr(spconv_engine, "LARGEST", 80)
    assert not spconv_engine.spconv_suits(torch.zeros(20, 4), weight, pairs)
    monkeypatch.setattr(spconv_engine, "LARGEST", 2 * 28 * 20 + 1)
    assert spconv_engine.spconv_suits(torch.zeros(20, 4), weight, pairs)


@pytest.mark.usefixtures("spconv")
def test_a_spconv_that_computes_otherwise_is_not_used(monkeypatch):
    pairs, weight = kernel_map(*random_voxels([20]), 3), torch.zeros(4, 3, 3, 3, 4)
    ours = spconv_engine.convolve_by_spconv

    def wrong(feat, weight, kernel_map):
        return ours(feat, weight, kernel_map) + 1

    def broken(feat, weight, kernel_map):
        raise RuntimeError("no kernel image for this device")

    for impostor in (wrong, broken):
        spconv_engine.spconv_agrees.cache_clear()
        monkeypatch.setattr(spconv_engine, "convolve_by_spconv", impostor)
        assert backend.convolution_engine(torch.zeros(20, 4), weight, pairs, "spconv") == "torch"
    monkeypatch.undo()
    spconv_engine.spconv_agrees.cache_clear()
    assert spconv_engine.spconv_agrees(CPU)


@pytest.mark.usefixtures("spconv")
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_spconv_is_found_to_agree_where_no_gradient_is_wanted(mode):
    spconv_engine.spconv_agrees.cache_clear()
    with mode():
        assert spconv_engine.spconv_agrees(CPU)


def test_auto_is_torch_on_a_cpu():
    pairs, weight = kernel_map(*random_voxels([20]), 3), torch.zeros(4, 3, 3, 3, 4)
    assert backend.convolution_engine(torch.zeros(20, 4), weight, pairs) == "torch"


def test_an_absent_spconv_is_named_with_what_to_install(monkeypatch):
    import sys

    spconv_engine.spconv_library.cache_clear()
    monkeypatch.setitem(sys.modules, "spconv", None)
    monkeypatch.setitem(sys.modules, "spconv.pytorch", None)
    pairs = kernel_map(*random_voxels([20]), 3)
    with pytest.raises(ImportError, match="spconv cannot be loaded.*pip install spconv-cu120"):
        SubmanifoldConv3d(2, 3, 3, backend="spconv")(torch.zeros(20, 2), pairs)


@pytest.mark.parametrize("here", [True, False])
def test_reports_say_what_convolves_and_what_would_be_faster(monkeypatch, here):
    monkeypatch.setattr(backend, "spconv_is_installed", lambda: here)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    report = backend.engines()["sparse convolution"]
    assert "torch; spconv" in report
    assert ("backend='spconv'" if here else "pip install spconv-cu120") in report


def test_an_unknown_backend_is_refused():
    pairs = kernel_map(*random_voxels([20]), 3)
    with pytest.raises(ValueError, match="backend must be auto, torch or spconv, found cudnn"):
        SubmanifoldConv3d(2, 3, 3, backend="cudnn")(torch.zeros(20, 2), pairs)


@pytest.mark.usefixtures("spconv")
def test_values_are_the_published_ones(golden):
    data = np.load(golden / "subm_conv.npz")
    indices = torch.from_numpy(data["input/indices"]).long()
    offsets = offsets_from_counts(torch.bincount(indices[:, 0]))
    conv = SubmanifoldConv3d(6, 8, 3, backend="spconv")
    conv.load_state_dict({k: torch.from_numpy(data[f"k3_bias/{k}"]) for k in ("weight", "bias")})
    out = conv(torch.from_numpy(data["input/feat"]), kernel_map(indices[:, 1:], offsets, 3))
    torch.testing.assert_close(out, torch.from_numpy(data["k3_bias/out"]), rtol=1e-5, atol=1e-5)
