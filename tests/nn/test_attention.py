import subprocess
import sys
import time

import pytest
import torch
import torch.nn.functional as F

from pctx.geometry.packed import batch_from_offsets, offsets_from_counts
from pctx.geometry.windows import serial_windows
from pctx.nn import fused_attention as fused_module
from pctx.nn.attention import CrossWindowAttention, MultiHeadAttention, WindowAttention
from pctx.nn.backend import PLAIN_BELOW, attention_engine
from pctx.nn.dot_product import (
    attention_weights,
    dot_product_attention,
    plain_dot_product_attention,
)

ENGINES = ["plain", "sdpa"]


def windows_of(counts, size):
    offsets = offsets_from_counts(torch.tensor(counts))
    return serial_windows(torch.arange(sum(counts)), offsets, size)


def heads(w=3, h=2, k=7, d=4, q=None, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(w, h, rows, d, generator=generator, dtype=torch.float64)
        .to(dtype)
        .requires_grad_()
        for rows in (q or k, k, k)
    ]


def bias_of(w=3, h=2, k=7, q=None, dtype=torch.float64):
    generator = torch.Generator().manual_seed(9)
    bias = torch.randn(w, h, q or k, k, generator=generator, dtype=torch.float64)
    return bias.to(dtype).requires_grad_()


@pytest.mark.parametrize("backend", ENGINES)
class TestTruths:
    def test_one_key_is_its_value(self, backend):
        query, key, value = heads(k=1)
        torch.testing.assert_close(dot_product_attention(query, key, value, backend=backend), value)

    def test_equal_keys_are_averaged(self, backend):
        query, key, value = heads()
        mean = value.mean(2, keepdim=True).expand_as(value)
        found = dot_product_attention(query, torch.zeros_like(key), value, backend=backend)
        torch.testing.assert_close(found, mean)

    def test_a_loud_key_is_chosen(self, backend):
        _query, _key, value = heads(k=3, d=3)
        loud = torch.eye(3, dtype=torch.float64).expand_as(value) * 1000
        chosen = dot_product_attention(loud[..., [2, 0, 1], :], loud, value, backend=backend)
        torch.testing.assert_close(chosen, value[..., [2, 0, 1], :])

    def test_three_keys_by_hand(self, backend):
        query = torch.tensor([[[[1.0, 0.0]]]])
        key = torch.tensor([[[[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]]])
        value = torch.tensor([[[[10.0, 0.0], [20.0, 0.0], [30.0, 0.0]]]])
        # The scores are 1, 0 and -1 over sqrt 2.
        loud = torch.tensor([2**-0.5, 0.0, -(2**-0.5)]).exp()
        weights = attention_weights(query, key)[0, 0, 0]
        torch.testing.assert_close(weights, loud / loud.sum())
        assert weights.tolist() == pytest.approx([0.576, 0.284, 0.140], abs=5e-4)
        found = dot_product_attention(query, key, value, backend=backend)
        assert found[0, 0, 0].tolist() == pytest.approx([15.64, 0.0], abs=5e-3)

    def test_causal_queries_hear_the_first_keys_only(self, backend):
        query, key, value = heads()
        found = dot_product_attention(query, key, value, causal=True, backend=backend)
        torch.testing.assert_close(found[..., 0, :], value[..., 0, :])
        for i in range(7):
            alone = query[..., i : i + 1, :], key[..., : i + 1, :], value[..., : i + 1, :]
            torch.testing.assert_close(found[..., i : i + 1, :], dot_product_attention(*alone))
        weights = attention_weights(query, key, causal=True)
        assert torch.equal(weights, weights.tril()) and (weights.tril() > 0).sum() == 6 * 28

    def test_queries_and_keys_may_be_of_two_sets(self, backend):
        query, key, value = heads(q=5)
        found = dot_product_attention(query, key, value, backend=backend)
        assert found.shape == (3, 2, 5, 4)
        for i in range(5):
            one = dot_product_attention(query[..., i : i + 1, :], key, value, backend=backend)
            torch.testing.assert_close(found[..., i : i + 1, :], one)

    def test_points_may_come_in_any_order(self, backend):
        query, key, value = heads()
        order, back = torch.randperm(7), torch.randperm(7)
        expected = dot_product_attention(query, key, value, backend=backend)[..., order, :]
        shuffled = query[..., order, :], key[..., back, :], value[..., back, :]
        torch.testing.assert_close(dot_product_attention(*shuffled, backend=backend), expected)

    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("masked", [False, True])
    @pytest.mark.parametrize("biased", [False, True])
    def test_gradients_are_those_of_differences(self, backend, masked, biased, causal):
        inputs = heads(w=2, h=1, k=3, d=2, q=4)
        valid = torch.tensor([[True, False, True], [False] * 3]) if masked else None
        if biased:
            inputs.append(bias_of(w=2, h=1, k=3, q=4))

        def attend(query, key, value, bias=None):
            return dot_product_attention(
                query, key, value, valid=valid, bias=bias, causal=causal, backend=backend
            )

        assert torch.autograd.gradcheck(attend, inputs)

    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("biased", [False, True])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_a_window_without_keys_gets_zeros_and_gives_no_gradient(
        self, backend, biased, causal, dtype
    ):
        inputs = heads(dtype=dtype)
        valid = torch.tensor([[True] * 7, [False] * 7, [False, True] + [False] * 5])
        bias = bias_of(dtype=dtype) if biased else None
        found = dot_product_attention(
            *inputs, valid=valid, bias=bias, causal=causal, backend=backend
        )
        assert found.isfinite().all() and (found[1] == 0).all() and (found[0] != 0).all()
        assert (found[2, :, 0] == 0).all() == causal  # query 0 may hear key 0 only
        for each in torch.autograd.grad(found.sum(), inputs + ([bias] if biased else [])):
            assert each.isfinite().all() and (each[1] == 0).all() and (each[0] != 0).any()
        weights = attention_weights(*inputs[:2], valid=valid, bias=bias, causal=causal)
        assert (weights[1] == 0).all()

    def test_an_empty_context_gets_zeros(self, backend):
        query, key, value = heads()
        found = dot_product_attention(query, key[:, :, :0], value[:, :, :0], backend=backend)
        assert torch.equal(found, torch.zeros_like(query))

    def test_half_precision_is_summed_in_float32(self, backend):
        for dtype in (torch.bfloat16, torch.float16):
            query, key, value = heads(k=300, d=16, dtype=dtype)
            query = query * 5
            found = dot_product_attention(query, key, value, backend=backend)
            exact = dot_product_attention(query.double(), key.double(), value.double())
            # As far from the exact as its own rounding takes it.
            step = torch.finfo(dtype).eps
            torch.testing.assert_close(found.double(), exact, rtol=step, atol=1e-5)
            assert found.dtype == dtype

    def test_autocast_does_not_reach_the_softmax(self, backend):
        inputs = heads(k=60, d=16, dtype=torch.float32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = dot_product_attention(*inputs, backend=backend)
        torch.testing.assert_close(found, dot_product_attention(*inputs))


def test_scores_of_independent_numbers_have_variance_one():
    query, key, _ = heads(w=40, h=4, k=30, d=64)
    # log(weights) are the scores up to a number a query, their mean over keys.
    scores = attention_weights(query, key).log()
    centred = scores - scores.mean(-1, keepdim=True)
    assert (centred.square().sum(-1).mean() / 29).item() == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("q", [None, 70])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [None, "given", "learned", "shared"])
@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_engines_are_equal_in_value_and_gradient(
    dtype, close, biased, masked, causal, q, monkeypatch
):
    monkeypatch.setattr(fused_module, "SCORES_AT_ONCE", 2 * 2 * 70 * 40)  # two windows a time
    inputs = heads(k=40, d=16, q=q, dtype=dtype)
    valid = torch.arange(40) < torch.tensor([[40], [0], [17]]) if masked else None
    bias = (
        None if biased is None else bias_of(1 if biased == "shared" else 3, k=40, q=q, dtype=dtype)
    )
    if biased == "given":
        bias = bias.detach()
    wanted = inputs + ([bias] if biased in ("learned", "shared") else [])
    options = {"valid": valid, "bias": bias, "causal": causal}
    fast = dot_product_attention(*inputs, **options, backend="sdpa")
    plain = plain_dot_product_attention(*inputs, **options)
    torch.testing.assert_close(fast, plain.feat, rtol=close, atol=close)
    torch.testing.assert_close(plain.weights, attention_weights(*inputs[:2], **options))
    upstream = torch.randn_like(fast)
    found = torch.autograd.grad(fast, wanted, upstream)
    expected = torch.autograd.grad(plain.feat, wanted, upstream)
    for grad, twin in zip(found, expected, strict=True):
        # A key's gradient sums over some ten queries' worth.
        torch.testing.assert_close(grad, twin, rtol=close, atol=10 * close)


def test_weights_of_each_query_sum_to_one_and_spare_masked_keys():
    query, key, _ = heads(k=5)
    valid = torch.arange(5) < torch.tensor([[5], [1], [3]])
    weights = attention_weights(query, key, valid=valid)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert (weights.transpose(2, 3)[~valid[:, None, :].expand(-1, 2, -1)] == 0).all()


def test_few_keys_take_the_plain_engine_and_many_the_fused():
    few, many = torch.zeros(1, 1, PLAIN_BELOW - 1, 4), torch.zeros(1, 1, PLAIN_BELOW, 4)
    assert attention_engine(few) == "plain" and attention_engine(many) == "sdpa"
    assert attention_engine(few, "sdpa") == "sdpa" and attention_engine(many, "plain") == "plain"
    assert attention_engine(few.to("meta")) == "sdpa"  # measured on the CPU only
    with pytest.raises(ValueError, match="backend must be auto, plain or sdpa, found flash"):
        attention_engine(many, "flash")


@pytest.mark.parametrize("scope", ["all", "masked", "causal", "learned bias"])
def test_the_fused_engine_keeps_no_scores(scope):
    w, h, k, d = 2, 2, 200, 4
    inputs, options, allowed = heads(w, h, k, d, dtype=torch.float32), {}, 0
    if scope == "masked":
        options["valid"] = torch.arange(k) < torch.tensor([[k], [3]])
    if scope == "causal":
        options["causal"] = True
    if scope == "learned bias":
        options["bias"] = bias_of(w, h, k, dtype=torch.float32)
        allowed = 1
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda tensor: tensor):
        dot_product_attention(*inputs, **options)
    assert sum(tensor.numel() >= k * k for tensor in kept) == allowed


class TestMultiHeadAttention:
    @pytest.mark.parametrize("cross", [False, True])
    def test_it_is_attention_by_head_and_a_last_product(self, cross):
        torch.manual_seed(0)
        attention = MultiHeadAttention(8, 2, kv_channels=6 if cross else None).double()
        feat = torch.randn(3, 5, 8, dtype=torch.float64)
        context = torch.randn(3, 7, 6, dtype=torch.float64) if cross else feat
        out = attention(feat, context) if cross else attention(feat)
        query = attention.query(feat)
        key, value = attention.key_value(context).chunk(2, -1)
        each = [
            (query[..., s] @ key[..., s].mT / 2).softmax(-1) @ value[..., s]
            for s in (slice(0, 4), slice(4, 8))
        ]
        torch.testing.assert_close(out, attention.proj(torch.cat(each, -1)))

    def test_masks_biases_and_causality_reach_the_scores(self):
        torch.manual_seed(0)
        attention = MultiHeadAttention(8, 2, qkv_bias=False).double()
        feat = torch.randn(3, 5, 8, dtype=torch.float64)
        options = {
            "valid": torch.arange(5) < torch.tensor([[5], [2], [0]]),
            "bias": bias_of(k=5),
            "causal": True,
        }
        attended = dot_product_attention(*attention.split(feat), **options)
        expected = attention.proj(attended.transpose(1, 2).reshape(3, 5, 8))
        torch.testing.assert_close(attention(feat, **options), expected)
        torch.testing.assert_close(expected[2], attention.proj.bias.expand(5, 8))

    def test_heads_that_do_not_divide_are_refused(self):
        with pytest.raises(ValueError, match="channels 10 must be a multiple of num_heads 4"):
            MultiHeadAttention(10, 4)


class TestWindowAttention:
    def test_it_is_attention_over_the_points_of_each_window(self):
        torch.manual_seed(0)
        attention, windows = WindowAttention(8, 2).double(), windows_of([11, 3], 4)
        feat = torch.randn(14, 8, dtype=torch.float64)
        out = attention(feat, windows)
        query, key, value = attention.qkv(feat).view(14, 3, 2, 4).unbind(1)
        for point in range(14):
            window = windows.slot[point] // 4
            keys = windows.index[window]
            if windows.valid is not None:
                keys = keys[windows.valid[window]]
            attended = F.scaled_dot_product_attention(
                query[point, :, None], key[keys].transpose(0, 1), value[keys].transpose(0, 1)
            )
            torch.testing.assert_close(out[point], attention.proj(attended.reshape(8)))

    @pytest.mark.parametrize("biased", [False, True])
    @pytest.mark.parametrize("counts", [[300, 100], [300, 70]])
    def test_engines_are_equal(self, counts, biased):
        torch.manual_seed(0)
        windows = windows_of(counts, 100)
        assert (windows.valid is None) == (counts[1] == 100)
        feat = torch.randn(sum(counts), 32, requires_grad=True)
        bias = bias_of(windows.num_windows, 2, 100, dtype=torch.float32) if biased else None
        found = []
        for backend in ENGINES:
            torch.manual_seed(1)
            attention = WindowAttention(32, 2, backend=backend)
            out = attention(feat, windows, bias)
            wanted = [feat, *attention.parameters()] + ([bias] if biased else [])
            found.append([out, *torch.autograd.grad(out.sin().sum(), wanted)])
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-4)

    def test_points_hear_only_their_own_cloud(self):
        attention, windows = WindowAttention(8, 2), windows_of([11, 3, 20], 4)
        feat = torch.randn(34, 8, requires_grad=True)
        batch = batch_from_offsets(offsets_from_counts(torch.tensor([11, 3, 20])), 34)
        for cloud in range(3):
            out = attention(feat, windows)[batch == cloud].sum()
            (grad,) = torch.autograd.grad(out, feat)
            assert (grad[batch != cloud] == 0).all() and (grad[batch == cloud] != 0).any()

    def test_its_weights_are_those_it_pays(self):
        torch.manual_seed(0)
        attention, windows = WindowAttention(8, 2).double(), windows_of([11, 3], 4)
        feat, bias = torch.randn(14, 8).double(), torch.randn(4, 2, 4, 4).double()
        weights = attention.weights(feat, windows, bias)
        _, _, value = attention.split(feat, windows)
        torch.testing.assert_close(
            attention(feat, windows, bias), attention.merge(weights @ value, windows)
        )

    def test_no_points_give_no_rows(self):
        assert WindowAttention(8, 2)(torch.zeros(0, 8), windows_of([0, 0], 4)).shape == (0, 8)

    def test_channels_that_do_not_divide_are_refused(self):
        with pytest.raises(ValueError, match="channels 10 must be a multiple of num_heads 4"):
            WindowAttention(10, 4)


class TestCrossWindowAttention:
    def test_points_hear_the_context_of_their_window(self):
        torch.manual_seed(0)
        attention = CrossWindowAttention(8, 2, kv_channels=6).double()
        windows, others = windows_of([4, 4, 3], 4), windows_of([5, 2, 1], 5)
        feat = torch.randn(11, 8, dtype=torch.float64)
        context = torch.randn(8, 6, dtype=torch.float64)
        out = attention(feat, windows, context, others)
        for rows, heard in (((0, 4), (0, 5)), ((4, 8), (5, 7)), ((8, 11), (7, 8))):
            alone = attention.attention(feat[None, slice(*rows)], context[None, slice(*heard)])
            torch.testing.assert_close(out[slice(*rows)], alone[0])

    def test_as_many_windows_are_needed(self):
        feat, windows = torch.zeros(8, 8), windows_of([4, 4], 4)
        with pytest.raises(
            ValueError, match="context_windows must be as many as windows, 2, found 1"
        ):
            CrossWindowAttention(8, 2)(feat, windows, torch.zeros(4, 8), windows_of([4], 4))


@pytest.mark.slow
class TestCosts:
    """What the fused engine saves; run with `-s` to see the figures. Needs a quiet minute."""

    def test_windows_of_1024_are_several_times_faster(self):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            forward, both = (self.ratio(backward=backward) for backward in (False, True))
        finally:
            torch.set_num_threads(threads)
        print(f"\nfused over plain, 16 windows of 1024, 2 heads of 16: {forward:.1f}x, {both:.1f}x")
        assert forward > 4 and both > 2.5

    def ratio(self, *, backward):
        inputs = heads(w=16, h=2, k=1024, d=16, dtype=torch.float32)
        best = dict.fromkeys(ENGINES, float("inf"))
        for _ in range(7):
            for backend in ENGINES:
                start = time.perf_counter()
                with torch.set_grad_enabled(backward):
                    out = dot_product_attention(*inputs, backend=backend)
                    if backward:
                        torch.autograd.grad(out, inputs, torch.ones_like(out))
                best[backend] = min(best[backend], time.perf_counter() - start)
        return best["plain"] / best["sdpa"]

    @pytest.mark.skipif(sys.platform != "linux", reason="the peak is read in /proc")
    @pytest.mark.parametrize("masked", [False, True])
    def test_peak_memory_does_not_grow_with_the_window(self, masked):
        peaks = {
            (backend, k): self.peak(backend, k, masked)
            for backend, k in [("sdpa", 256), ("sdpa", 2048), ("plain", 256), ("plain", 2048)]
        }
        print(f"\npeak MB of 8,192 points, 2 heads of 16, masked {masked}: {peaks}")
        # The allocator's whims are tens of MB; a table of scores of 2,048 slots is 256.
        assert peaks["sdpa", 2048] < peaks["sdpa", 256] + 50
        assert peaks["plain", 2048] > peaks["plain", 256] + 150

    def peak(self, backend, k, masked):
        """MB that forward and backward add to a fresh process."""
        program = f"""
import torch
from pathlib import Path
from pctx.nn.dot_product import dot_product_attention
torch.set_num_threads(1)
def run(w, k):
    inputs = [torch.randn(w, 2, k, 16, requires_grad=True) for _ in range(3)]
    valid = torch.arange(k).expand(w, k) < k - 5 if {masked} else None
    out = dot_product_attention(*inputs, valid=valid, backend={backend!r})
    torch.autograd.grad(out, inputs, torch.ones_like(out))
def memory(line):
    status = Path("/proc/self/status").read_text()
    return int(status.split(line + ":")[1].split()[0]) / 1024
run(2, 64)
Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
before = memory("VmRSS")
run({8192 // k}, {k})
print(memory("VmHWM") - before)
"""
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        return float(done.stdout)
