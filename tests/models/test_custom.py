"""Every recipe that makes sense works; every other is refused by what would."""

import re
from dataclasses import replace
from itertools import cycle, product

import pytest
import torch
import torch.nn.functional as F

from pctx.geometry.serialization import serialize
from pctx.geometry.windows import curve_windows, grid_windows, octree_windows
from pctx.models.custom import CustomTransformer
from pctx.models.segmentor import Segmentor
from tests.models.clouds import random_batch, single_clouds

WINDOWS = ("serial", "octree", "grid", "knn")
ATTENTIONS = ("dot", "vector", "grouped_vector")
ABSOLUTES = (None, "sinusoidal", "coordinate_mlp")
RELATIVES = (None, "relative_bias", "coordinate_bias", "rotary", "contextual")
ALTERNATIONS = ("curve", "dilation", "shift", "none")
K = 8

UNHEARD = re.compile(
    r"mixer\..*fc1\.bias|stem.*fc1\.bias|mixer\.(attention|bias|bias\.mlp)\.fc2\.bias"
)
"""What is added to all rows goes in the next norm, what is added to all scores in the softmax."""

# Sums of float32 in another order, through five blocks; logits are about 1.
CLOSE = {"rtol": 0, "atol": 1e-5}


def makes_sense(window, attention, relative):
    """Relative encodings belong to dot products in windows; one of metres needs no window."""
    if relative is None:
        return True
    return attention == "dot" and (window != "knn" or relative == "coordinate_bias")


def combinations(*, sensible):
    """Every neighbourhood, attention and relative encoding; others in turns, as they meet none."""
    found = [
        (window, attention, relative)
        for window, attention, relative in product(WINDOWS, ATTENTIONS, RELATIVES)
        if makes_sense(window, attention, relative) == sensible
    ]
    others = cycle(product(ABSOLUTES, (None, "conditional")))
    return [
        (window, attention, [name for name in (relative, *more) if name is not None])
        for (window, attention, relative), more in zip(found, others, strict=False)
    ]


def name_of(value):
    return "+".join(value) or "no position" if isinstance(value, list) else str(value)


def make(window="serial", attention="dot", position=("conditional",), **more):
    torch.manual_seed(0)
    arguments = {
        "channels": (12, 24),
        "depths": (2, 1),
        "num_heads": (1, 2),
        "share_channels": 4,
        "strides": (2,),
        "decoder_channels": (12,),
        "decoder_depths": (0,),
        "decoder_num_heads": (1,),
        "window_size": K,
        "window_edge": 4,
        "mlp_ratio": 1.0,
        "drop_path": 0.0,
    }
    choice = {"window": window, "attention": attention, "position": position}
    return Segmentor(CustomTransformer(in_channels=4, **(arguments | choice | more)), 3)


def scattered(counts, seed=0):
    """Clouds whose points lie anywhere in their voxels, so that no two distances are equal."""
    batch = random_batch(counts, seed=seed)
    inside = torch.rand(len(batch), 3, generator=torch.Generator().manual_seed(seed))
    return replace(batch, coord=(batch.grid_coord + inside) * 0.1)


@pytest.mark.parametrize(
    ("window", "attention", "position"), combinations(sensible=True), ids=name_of
)
def test_what_makes_sense_trains_and_keeps_clouds_apart(window, attention, position):
    model, batch = make(window, attention, position), scattered([50, 0, 5, 20])
    logits = model(batch)
    assert logits.shape == (75, 3)
    F.cross_entropy(logits, batch.label).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), key
        assert parameter.grad.abs().max() > 0 or UNHEARD.search(key), key
    model.eval()
    with torch.no_grad():
        alone = torch.cat([model(cloud) for cloud in single_clouds(batch)])
        torch.testing.assert_close(model(batch), alone, **CLOSE)
        halved = replace(batch, coord=batch.coord.bfloat16(), feat=batch.feat.bfloat16())
        assert model.bfloat16()(halved).isfinite().all()


@pytest.mark.parametrize(
    ("window", "attention", "position"), combinations(sensible=False), ids=name_of
)
def test_what_makes_none_is_refused_with_what_would(window, attention, position):
    (relative,) = set(position) & set(RELATIVES)
    with pytest.raises(ValueError, match=f"position {relative} .*; (leave|take) ") as refused:
        make(window, attention, position)
    remedy = str(refused.value).split(";")[1]
    if attention != "dot":
        assert f"leave {relative} out, or take attention=dot" in remedy
    else:
        assert "take position coordinate_bias, or window=serial" in remedy


@pytest.mark.parametrize(
    ("position", "message"),
    [
        (["sinusoidal", "coordinate_mlp"], "at most one of sinusoidal, coordinate_mlp, found sinu"),
        (["rotary", "contextual"], "at most one of relative_bias, coordinate_bias, rotary, cont"),
        (["rotary", "rotary"], "found rotary and rotary; leave one out"),
        (["conditional", "conditional"], "at most one of conditional"),
        (["none"], "position must be one of conditional, sinusoidal, .*; found 'none'"),
    ],
)
def test_positions_that_say_the_same_are_refused(position, message):
    with pytest.raises(ValueError, match=message):
        make(position=position)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"window": "cube"}, "window must be one of serial, octree, grid, knn; found 'cube'"),
        ({"attention": "scalar"}, "attention must be one of dot, vector, grouped_vector; found"),
        ({"stem": "mlp"}, "stem must be conv or linear, found 'mlp'"),
        ({"dilation": 0}, "dilation must be whole and at least 1, found 0"),
        ({"curves": ["x"]}, "curves must be some of z, .*; found"),
        ({"window_size": [8]}, "window_size must have 2 entries"),
        ({"decoder_depths": []}, "decoder_depths must have 1 entries"),
        (
            {"position": "rotary", "num_heads": (3, 3)},
            "head_channels to be a multiple of 6, found 4; choose channels / num_heads",
        ),
        ({"attention": "vector", "share_channels": 5}, "12 must be a multiple of share_channels 5"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        make(**wrong)


def test_one_position_needs_no_list():
    alone = make(position="rotary").backbone.recipe
    assert alone.position == ("rotary",) == make(position=["rotary"]).backbone.recipe.position


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("window", WINDOWS)
class TestEachNeighbourhoodAndAttention:
    def test_small_clouds_are_ordinary(self, window, attention):
        model, sizes = make(window, attention, ["coordinate_mlp"]), (0, 1, 2, K - 1, K, K + 1)
        batch = scattered(sizes)
        feat = batch.feat.requires_grad_()
        model(batch).sum().backward()
        assert feat.grad.isfinite().all()
        assert model(random_batch([])).shape == (0, 3)
        for n in sizes:
            logits = model(scattered([n]))
            assert logits.shape == (n, 3) and logits.isfinite().all()

    def test_the_order_of_points_does_not_matter(self, window, attention):
        # On a lattice, where most distances are equal to others.
        model, batch = make(window, attention).eval(), random_batch([80])
        order = torch.randperm(80, generator=torch.Generator().manual_seed(1))
        shuffled = replace(
            batch,
            coord=batch.coord[order],
            grid_coord=batch.grid_coord[order],
            feat=batch.feat[order],
            label=None,
        )
        torch.testing.assert_close(model(shuffled), model(batch)[order], **CLOSE)

    def test_gradients_are_those_of_differences(self, window, attention):
        position = ["sinusoidal", *(["coordinate_bias"] if attention == "dot" else [])]
        model = make(window, attention, position).double().eval()
        batch = random_batch([25, 3], dtype=torch.float64)
        hierarchy = model.backbone.plan(batch)
        assert torch.autograd.gradcheck(
            lambda feat: model(replace(batch, feat=feat), hierarchy),
            batch.feat.clone().requires_grad_(),
            fast_mode=True,
        )


@pytest.mark.parametrize(("window", "attention"), list(zip(WINDOWS[1:], ATTENTIONS, strict=True)))
def test_it_learns(window, attention):
    model, batch = make(window, attention, norm_momentum=0.1), scattered([60])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    hierarchy, losses = model.backbone.plan(batch), []
    for _ in range(10):
        loss = F.cross_entropy(model(batch, hierarchy), batch.label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize(
    ("window", "position"),
    [*(("serial", name) for name in (*ABSOLUTES[1:], *RELATIVES[1:])), ("knn", "coordinate_bias")],
)
def test_whole_voxel_translations_do_not_matter(window, position):
    model, batch = make(window, position=position).double().eval(), scattered([60, 20])
    batch = replace(batch, coord=batch.coord.double(), feat=batch.feat.double())
    step = torch.tensor([13, -7, 1000])
    moved = replace(
        batch, coord=batch.coord + step.double() * 0.1, grid_coord=batch.grid_coord + step
    )
    torch.testing.assert_close(model(moved), model(batch))


def exchange(position):
    """How far logits are from following features that trade places within one window."""
    one_level = {"channels": (12,), "depths": (2,), "num_heads": (1,), "strides": ()}
    no_decoder = {"decoder_channels": (), "decoder_depths": (), "decoder_num_heads": ()}
    model = make(position=position, stem="linear", **one_level, **no_decoder).eval()
    batch = scattered([K])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("table"):
                parameter.mul_(20)  # fresh tables are all but 0
        traded = replace(batch, feat=batch.feat.flip(0))
        return float((model(traded).flip(0) - model(batch)).abs().max())


@pytest.mark.parametrize("position", [*ABSOLUTES[1:], *RELATIVES[1:], "conditional"])
def test_each_position_is_heard(position):
    assert exchange([position]) > 1e-3


def test_without_position_a_window_is_a_set():
    assert exchange([]) < CLOSE["atol"]


class TestAlternation:
    def partitions(self, window, **more):
        backbone = make(window, **more).backbone
        batch = random_batch([90, 10])
        cells = batch.grid_coord
        along = serialize(cells, batch.offsets, backbone.curves)
        return backbone.plan(batch).levels[0].windows, along, cells, batch.offsets

    def check(self, found, expected):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert torch.equal(a.index, b.index) and torch.equal(a.slot, b.slot)

    def test_serial_windows_take_a_curve_a_block(self):
        found, along, *_ = self.partitions("serial")
        self.check(found, curve_windows(along, K))

    def test_octree_windows_are_dilated_every_other_block(self):
        found, along, _, offsets = self.partitions("octree", dilation=3)
        order = along.order[0]
        self.check(found, [octree_windows(order, offsets, K, dilation) for dilation in (1, 3)])

    def test_grid_windows_are_shifted_by_half_every_other_block(self):
        found, along, cells, offsets = self.partitions("grid")
        order = along.order[0]
        self.check(
            found,
            [
                grid_windows(cells, offsets, 4, shift=shift, order=order, slots=K)
                for shift in (0, 2)
            ],
        )
        assert all(windows.window_size <= K for windows in found)

    def test_serial_windows_can_shift_and_dilate(self):
        found, along, *_ = self.partitions("serial", alternate="shift")
        self.check(found, [curve_windows(along, K, shift=shift)[0] for shift in (0, K // 2)])
        found, along, *_ = self.partitions("serial", alternate="dilation")
        self.check(found, [curve_windows(along, K, dilation=dilation)[0] for dilation in (1, 4)])

    @pytest.mark.parametrize("window", WINDOWS[:3])
    def test_none_is_one_partition(self, window):
        found, *_ = self.partitions(window, alternate="none")
        assert len(found) == 1

    @pytest.mark.parametrize(("window", "way"), list(product(WINDOWS, ALTERNATIONS)))
    def test_every_way_works_or_is_refused_with_those_that_do(self, window, way):
        ways = make(window).backbone.recipe.ways
        if way in ways:
            position = ["relative_bias"] if window != "knn" else []
            assert make(window, position=position, alternate=way)(scattered([40])).isfinite().all()
        else:
            with pytest.raises(ValueError, match=f"one of auto, {', '.join(ways)}; found '{way}'"):
                make(window, alternate=way)

    def test_blocks_take_the_partitions_in_turns(self):
        model, batch = make("grid", position=(), stem="linear").eval(), scattered([60])
        plan = model.backbone.plan(batch)
        first, second = plan.levels[0].windows

        def run(*windows):
            levels = (replace(plan.levels[0], windows=windows), *plan.levels[1:])
            return model(batch, replace(plan, levels=levels))

        logits = run(first, second)
        assert torch.equal(run(first, second, first), logits)
        assert not torch.allclose(run(first), logits)

    def test_curves_are_shuffled_only_by_a_generator(self):
        def changes(*, shuffle):
            backbone, batch = make("octree", shuffle_curves=shuffle).backbone, random_batch([90])

            def slots(generator=None):
                return backbone.plan(batch, generator).levels[0].windows[0].slot

            seeded = (slots(torch.Generator().manual_seed(seed)) for seed in range(5))
            return any(not torch.equal(slot, slots()) for slot in seeded)

        assert changes(shuffle=True) and not changes(shuffle=False)


@pytest.mark.parametrize(
    ("window", "alternate", "reaches"),
    [
        # 2 (4 K)**(1/3) of K and 2 K points; 0.8 K sqrt(dilation); the edge of a cube.
        ("serial", "curve", (6, 6)),
        ("serial", "dilation", (6, 7)),
        ("octree", "dilation", (6, 9)),
        ("octree", "curve", (6, 6)),
        ("grid", "shift", (4, 4)),
    ],
)
def test_tables_reach_as_far_as_windows_are_wide(window, alternate, reaches):
    for position in ("relative_bias", "contextual"):
        model = make(window, position=position, alternate=alternate, dilation=2)
        blocks = model.backbone.unet.encoder[0].blocks
        mixers = [block.block.mixer for block in blocks]
        if position == "relative_bias":
            found = [mixer.bias.bound for mixer in mixers]
        else:
            found = [max(mixer.attention.encoding.bounds) for mixer in mixers]
        assert tuple(found) == reaches


def test_only_what_is_used_is_planned():
    def maps(**more):
        levels = make(**more).backbone.plan(random_batch([40])).levels
        return [sorted(level.kernel_maps) for level in levels]

    assert maps() == [[3, 5], [3]]
    assert maps(stem="linear") == [[3], [3]]
    assert maps(position=["rotary"]) == [[5], []]
    assert maps(position=[], stem="linear") == [[], []]


def test_neighbours_are_the_nearest_and_the_point_itself_comes_first():
    batch = scattered([40, 3])
    for level in make("knn").backbone.plan(batch).levels:
        around = level.neighbors
        assert level.windows == () and around is not None
        assert torch.equal(around.index[:, 0], torch.arange(level.num_points))
        n = int(level.offsets[1])
        distances = torch.cdist(level.coord[:n], level.coord[:n])
        expected = distances.topk(min(K, n), largest=False).indices.sort(1).values
        found = around.index[:n, : min(K, n)].sort(1).values
        assert torch.equal(found, expected)


def test_checkpointing_keeps_less_and_changes_no_gradient():
    batch, grads, kept = scattered([60, 9]), [], []

    def count(tensor):
        kept[-1] += tensor.numel()
        return tensor

    for checkpoint in (False, True):
        model = make("serial", "vector", ["conditional"], checkpoint=checkpoint)
        kept.append(0)
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            loss = F.cross_entropy(model(batch), batch.label)
        loss.backward()
        grads.append([p.grad for p in model.parameters()] + list(model.buffers()))
    assert kept[1] < kept[0] / 2
    for plain, again in zip(*grads, strict=True):
        torch.testing.assert_close(plain, again)
