"""The compiled kernel gives what torch's gives, whatever the windows, and is nowhere needed."""

import pytest
import torch

from pctx.geometry.compiled import kernel
from pctx.geometry.windows import serial_windows
from pctx.nn import attention, backend, compiled_attention
from pctx.nn.attention import WindowAttention
from pctx.nn.compiled_attention import compiled_agrees, compiled_suits
from pctx.nn.compiled_products import compiled_agrees as products_agree

# Sums of a few hundred products, in another order.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}

WINDOWS = {
    "full": ([256], 64, {}),
    "borrowing": ([210], 64, {}),
    "small clouds": ([30, 0, 1, 64, 65, 7], 64, {}),
    "not of a vector's width": ([50, 23], 19, {}),
    "shifted": ([150, 90], 32, {"shift": 13}),
    "dilated": ([150, 90], 32, {"dilation": 2}),
}


@pytest.fixture
def compiled(monkeypatch):
    if compiled_attention._library() is None:
        pytest.skip("there is no C compiler, or no cache")
    assert compiled_agrees()
    monkeypatch.setattr(compiled_attention, "COMPILED_FROM", 0)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def without_library():
    caches = (kernel, compiled_agrees)
    for each in caches:
        each.cache_clear()
    yield
    for each in caches:
        each.cache_clear()


def windows_of(name):
    counts, size, options = WINDOWS[name]
    offsets = torch.tensor([0, *counts]).cumsum(0)
    generator = torch.Generator().manual_seed(1)
    order = torch.cat(
        [
            start + torch.randperm(count, generator=generator)
            for start, count in zip(offsets[:-1], counts, strict=True)
        ]
    )
    return serial_windows(order, offsets, size, **options)


def results(module, windows, width, norm=None, spread=1.0):
    generator = torch.Generator().manual_seed(2)
    shape, dtype = (len(windows.slot), width), module.proj.weight.dtype
    feat = (spread * torch.randn(shape, generator=generator)).to(dtype).requires_grad_()
    upstream = torch.randn(shape, generator=generator).to(dtype)
    out = module(feat, windows, norm=norm)
    weights = [*module.parameters(), *(norm.parameters() if norm is not None else ())]
    return out, *torch.autograd.grad(out, [feat, *weights], upstream)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("head", [16, 32, 64])
@pytest.mark.parametrize("name", WINDOWS)
def test_values_and_gradients_are_those_of_torch(name, head):
    torch.manual_seed(0)
    ours, plain = WindowAttention(2 * head, 2), WindowAttention(2 * head, 2, backend="sdpa")
    plain.load_state_dict(ours.state_dict())
    windows = windows_of(name)
    assert compiled_suits(torch.zeros(len(windows.slot), 2 * head), windows, 2)
    pairs = zip(results(ours, windows, 2 * head), results(plain, windows, 2 * head), strict=True)
    for found, expected in pairs:
        torch.testing.assert_close(found, expected, **CLOSE)


@pytest.fixture
def projected(compiled, monkeypatch):
    if not products_agree():
        pytest.skip("the products' kernel is not built")
    monkeypatch.setattr(backend, "products_gain", lambda: True)
    monkeypatch.setattr(backend, "COMPILED_FROM", 0)
    monkeypatch.setattr(backend, "PANEL", 1)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("head", [16, 32, 64])
@pytest.mark.parametrize("spread", [0.01, 4.0, 40.0])
def test_scores_of_any_size_are_weighed_as_in_double_precision(head, spread):
    torch.manual_seed(0)
    ours, plain = (WindowAttention(2 * head, 2, backend=each) for each in ("auto", "plain"))
    plain.load_state_dict(ours.state_dict())
    windows = windows_of("borrowing")
    found = results(ours, windows, 2 * head, spread=spread)
    expected = results(plain.double(), windows, 2 * head, spread=spread)
    for one, other in zip(found, expected, strict=True):
        missed = (one - other).abs().max() / other.abs().max()
        assert missed < 1e-5 * max(1, spread**2 / 10), (missed, one.shape)


@pytest.mark.usefixtures("projected")
@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("normed", [False, True])
def test_query_key_and_value_computed_anew_give_the_same_gradients(name, normed):
    torch.manual_seed(0)
    ours, plain = WindowAttention(64, 4), WindowAttention(64, 4, backend="sdpa")
    plain.load_state_dict(ours.state_dict())
    norm = torch.nn.LayerNorm(64) if normed else None
    if normed:
        torch.nn.init.normal_(norm.weight)
        torch.nn.init.normal_(norm.bias)
    found, expected = (results(each, windows_of(name), 64, norm) for each in (ours, plain))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        feat = torch.randn(len(windows_of(name).slot), 64)
        torch.testing.assert_close(
            *(each(feat, windows_of(name), norm=norm) for each in (ours, plain)), **CLOSE
        )


@pytest.mark.usefixtures("projected")
def test_neither_query_key_and_value_nor_what_a_norm_gives_is_kept():
    module, feat, kept = WindowAttention(64, 4), torch.randn(210, 64), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t), t)[1], lambda t: t):
        module(feat, windows_of("borrowing"), norm=torch.nn.LayerNorm(64))
    wide = [each for each in kept if each.dim() == 2 and len(each) == 210]
    assert len({each.data_ptr() for each in wide}) == 2  # `feat` and what is heard
    assert any(each.data_ptr() == feat.data_ptr() for each in wide)


@pytest.mark.usefixtures("projected")
@pytest.mark.parametrize("frozen", ["qkv.weight", "qkv.bias", "norm", "feat", "all but feat"])
def test_what_is_frozen_gets_no_gradient(frozen):
    module, norm = WindowAttention(64, 4), torch.nn.LayerNorm(64)
    feat = torch.randn(210, 64, requires_grad=frozen != "feat")
    named = {**dict(module.named_parameters()), "norm.weight": norm.weight, "norm.bias": norm.bias}
    for name, weight in named.items():
        weight.requires_grad_(not (name.startswith(frozen) or frozen == "all but feat"))
    module(feat, windows_of("borrowing"), norm=norm).sum().backward()
    for each in (feat, *named.values()):
        assert (each.grad is not None) == each.requires_grad


@pytest.mark.usefixtures("projected")
def test_bytes_do_not_depend_on_the_threads(threads):
    torch.manual_seed(0)
    module, windows, norm = WindowAttention(64, 4), windows_of("borrowing"), torch.nn.LayerNorm(64)
    found = []
    for count in (1, 2, 5):
        threads(count)
        found.append(results(module, windows, 64, norm)[:-2])  # torch's sums of a norm's do
    for alone, two, five in zip(*found, strict=True):
        assert torch.equal(alone, two) and torch.equal(alone, five)


@pytest.mark.usefixtures("compiled")
def test_what_is_no_number_is_not_hidden():
    module, windows = WindowAttention(32, 2), windows_of("full")
    feat = torch.zeros(256, 32)
    point = int(windows.index[1, 5])
    feat[point, 0] = torch.nan
    rows = module(feat, windows).isnan().any(1)
    assert set(rows.nonzero()[:, 0].tolist()) == set(windows.index[1].tolist())


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("part", ["query", "key", "value"])
def test_a_number_that_is_none_is_one_nowhere_whatever_its_bits(part):
    windows = windows_of("full")
    qkv = torch.randn(256, 3 * 32)
    bits = qkv.view(torch.int32)
    bits[7, 32 * ("query", "key", "value").index(part)] = 0x7FC00001
    heard = compiled_attention.compiled_attention(qkv, windows, 2).isnan()
    asks = (windows.index == 7).any(1)
    others = windows.index[asks].flatten()
    assert heard[7].any() and (part == "query" or heard[others].any(1).all())


@pytest.mark.usefixtures("compiled")
def test_windows_of_other_points_are_refused():
    with pytest.raises(IndexError, match="windows of 256 points, found 200"):
        compiled_attention.compiled_attention(torch.randn(200, 96), windows_of("full"), 2)


@pytest.mark.usefixtures("compiled")
def test_large_scores_do_not_overflow():
    module, windows = WindowAttention(32, 2), windows_of("borrowing")
    feat = 1e4 * torch.randn(210, 32, generator=torch.Generator().manual_seed(0))
    plain = WindowAttention(32, 2, backend="plain")
    plain.load_state_dict(module.state_dict())
    # Scores of 1e8 differ by more than 1 where they are rounded: each point hears one other.
    assert module(feat, windows).isfinite().all() and plain(feat, windows).isfinite().all()


@pytest.mark.usefixtures("compiled")
def test_there_is_no_second_derivative():
    module, windows = WindowAttention(32, 2), windows_of("full")
    feat = torch.randn(256, 32, requires_grad=True)
    with pytest.raises(RuntimeError, match="second derivatives"):
        torch.autograd.grad(module(feat, windows).sum(), feat, create_graph=True)


@pytest.mark.usefixtures("compiled")
def test_what_does_not_suit_is_left_to_torch(monkeypatch):
    windows = windows_of("full")
    rows = torch.zeros(256, 32)
    assert compiled_suits(rows, windows, 2)
    assert not compiled_suits(rows.double(), windows, 2)
    assert not compiled_suits(rows, windows, 4)  # 8 channels a head
    assert not compiled_suits(rows.to("meta"), windows, 2)
    monkeypatch.setattr(compiled_attention, "COMPILED_FROM", 2 * 4 * 64**2 + 1)
    assert not compiled_suits(rows, windows, 2)


@pytest.mark.usefixtures("without_library")
@pytest.mark.parametrize(
    "lack", [("CC", "/no/compiler"), ("CC", "false"), ("PCTX_COMPILE", "0"), ("HOME", "/dev/null")]
)
def test_without_a_compiler_or_a_cache_nothing_is_said(lack, monkeypatch, tmp_path, capfd, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if lack[0] == "HOME":
        monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv(*lack)
    monkeypatch.setattr(attention, "compiled_suits", compiled_suits)
    monkeypatch.setattr(compiled_attention, "COMPILED_FROM", 0)
    assert not compiled_agrees()
    assert WindowAttention(32, 2)(torch.zeros(256, 32), windows_of("full")).shape == (256, 32)
    assert capfd.readouterr() == ("", "") and not caplog.records
    assert not list(tmp_path.rglob("*.so"))


@pytest.mark.usefixtures("without_library")
def test_a_kernel_that_errs_is_not_used(monkeypatch):
    if compiled_attention._library() is None:
        pytest.skip("there is no C compiler, or no cache")
    right = compiled_attention.compiled_attention
    monkeypatch.setattr(compiled_attention, "compiled_attention", lambda *a: right(*a) * 1.01)
    assert not compiled_agrees()


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_taken_in_parts_give_the_rows_of_all_at_once(name, monkeypatch):
    torch.manual_seed(0)
    module, windows = WindowAttention(64, 4), windows_of(name)
    feat = torch.randn(len(windows.slot), 64)
    whole = module(feat, windows)
    for numbers in (1, 2 * 192 * windows.window_size, 2**40):
        monkeypatch.setattr(compiled_attention, "PART", numbers)
        with torch.no_grad():
            torch.testing.assert_close(module(feat, windows), whole, **CLOSE)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("grads", [False, True])
def test_under_autocast_products_are_bf16_and_attention_is_summed_in_float32(grads):
    torch.manual_seed(0)
    module, windows = WindowAttention(64, 4), windows_of("borrowing")
    feat = torch.randn(210, 64)
    exact = module(feat, windows)
    with torch.autocast("cpu", torch.bfloat16), torch.set_grad_enabled(grads):
        assert compiled_suits(feat, windows, 4)
        found = module(feat, windows)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), exact, rtol=0.02, atol=0.02)
