"""Which parameter learns at which rate, schedules, Muon, and every option of a run."""

import math
import re
from functools import partial

import pytest
import torch
from hydra.utils import instantiate
from torch.optim import lr_scheduler

from pctx.cli.config import compose, config_folder
from pctx.cli.train import _group_options
from pctx.engine import schedules
from pctx.engine.muon import Muon, orthogonal
from pctx.engine.optim import depths_from_head, describe_groups, parameter_groups
from pctx.models.factory import create_model, list_models
from tests.models.clouds import random_batch

OPTIMIZERS = sorted(p.stem for p in (config_folder() / "optim").glob("*.yaml"))
SCHEDULES = sorted(p.stem for p in (config_folder() / "optim" / "scheduler").glob("*.yaml"))
TINY = [name for name in list_models() if name.endswith("_tiny")]


def model_of(name="ptv3_tiny"):
    with torch.device("meta"):
        return create_model(name, 4, 3)


def rates(model, **options):
    """The rate of each parameter, and whether it decays."""
    found = {}
    for group in parameter_groups(model, weight_decay=0.1, lr=1.0, **options):
        for parameter in group["params"]:
            assert parameter not in found
            found[parameter] = (group["lr"], group["weight_decay"] > 0)
    return {name: found[p] for name, p in model.named_parameters() if p in found}


def test_every_parameter_is_in_one_group_and_norms_and_biases_do_not_decay():
    model = model_of()
    found = rates(model, lr_factors={"blocks": 0.1})
    assert set(found) == {name for name, _ in model.named_parameters()}
    for name, p in model.named_parameters():
        assert found[name] == (0.1 if ".blocks." in name else 1.0, p.ndim > 1)


def test_the_first_pattern_in_a_name_gives_its_rate():
    found = rates(model_of(), lr_factors={"head": 2.0, r"encoder\.0.*blocks": 0.5, "blocks": 0.1})
    for name, (rate, _) in found.items():
        expected = 0.1 if ".blocks." in name else 1.0
        expected = 0.5 if ".encoder.0." in name and ".blocks." in name else expected
        assert rate == (2.0 if name.startswith("head") else expected)


def test_what_decays_is_chosen_by_kind_and_by_name():
    assert all(decays for _, decays in rates(model_of(), decay="all").values())
    found = rates(model_of(), decay="all", no_decay=["stem", r"norm\d?\."])
    for name, (_, decays) in found.items():
        assert decays == ("stem" not in name and re.search(r"norm\d?\.", name) is None)
    assert len({decays for _, decays in found.values()}) == 2


def test_hidden_groups_are_the_matrices_of_the_blocks():
    model = model_of()
    groups = parameter_groups(model, weight_decay=0.1, lr=1.0)
    hidden = {p for group in groups if group["hidden"] for p in group["params"]}
    assert hidden
    for name, p in model.named_parameters():
        assert (p in hidden) == (".blocks." in name and p.ndim > 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lr_factors": {"bloks": 0.1}}, "optim.lr_factors: no parameter has 'bloks' in its name"),
        ({"no_decay": ["tabel"]}, "optim.no_decay: no parameter has 'tabel'"),
        ({"no_decay": ["("]}, "'\\(' is no regular expression"),
        ({"lr_factors": {"blocks": 0.0}}, "optim.lr_factors.blocks must be above 0, found 0"),
        ({"decay": "some"}, "optim.decay must be matrices or all, found 'some'"),
    ],
)
def test_patterns_that_say_nothing_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        rates(model_of(), **options)


@pytest.mark.parametrize("name", TINY)
def test_in_any_model_layers_are_numbered_from_the_head_back_to_the_points(name):
    model = model_of(name)
    depth = depths_from_head(model)
    number = {p: depth[key] for key, p in model.named_parameters()}
    assert set(number.values()) == set(range(max(number.values()) + 1))
    walk = [model.head, *reversed(model.backbone.layers_in_order())]
    layers = [[number[p] for p in layer.parameters()] for layer in walk]
    assert [set(each) for each in layers if each] == [{i} for i in range(max(depth.values()) + 1)]
    # Every parameter is in one layer, so none has its number by default.
    assert sum(map(len, layers)) == len(number)


@pytest.mark.parametrize("name", TINY)
def test_a_layer_reads_what_those_before_it_gave(name):
    model = create_model(name, 4, 3).eval()
    seen = []
    layers = [*model.backbone.layers_in_order(), model.head]
    for i, layer in enumerate(layers):
        # Of a step and its stage, in a list that is never called, the parts are.
        for part in layer if isinstance(layer, torch.nn.ModuleList) else [layer]:
            part.register_forward_hook(lambda *_, i=i: seen.append(i))
    model(random_batch([120]))
    assert seen == sorted(seen) and set(seen) == set(range(len(layers)))


def test_a_unets_layers_are_its_stages_with_the_steps_to_them():
    model = model_of("ptv1_tiny")
    unet, layers = model.backbone.unet, model.backbone.layers_in_order()
    assert layers[0] is model.backbone.stem and layers[1] is unet.encoder[0]
    assert [list(layer) for layer in layers[2:5]] == [
        [step, stage] for step, stage in zip(unet.down, unet.encoder[1:], strict=True)
    ]
    assert layers[5:] == [unet.bottom, *reversed(unet.decoder)]


def test_a_layer_learns_at_a_share_of_the_rate_of_the_one_nearer_to_the_head():
    model = model_of()
    depth = depths_from_head(model)
    found = rates(model, layer_decay=0.5, lr_factors={"blocks": 0.1})
    assert set(depth.values()) == set(range(9))  # head, 3 decoder and 4 encoder stages, stem
    for name, (rate, _) in found.items():
        share = 0.1 if ".blocks." in name else 1.0
        assert math.isclose(rate, share * 0.5 ** depth[name])


def test_frozen_parameters_are_in_no_group():
    model = model_of()
    model.backbone.requires_grad_(False)
    assert set(rates(model)) == {"head.weight", "head.bias"}
    model.head.requires_grad_(False)
    with pytest.raises(ValueError, match="nothing is left to learn"):
        parameter_groups(model, weight_decay=0.1, lr=1.0)


@pytest.mark.parametrize("name", ["lr", "layer_decay"])
def test_rates_and_shares_are_above_zero(name):
    with pytest.raises(ValueError, match=f"optim.{name} must be above 0, found 0"):
        parameter_groups(model_of(), **{"weight_decay": 0.1, "lr": 1.0, name: 0})


def course(make, steps, rates=(1.0,), **options):
    """The rates of each group over the steps."""
    weights = [torch.nn.Parameter(torch.ones(2, 2)) for _ in rates]
    groups = [{"params": [w], "lr": r} for w, r in zip(weights, rates, strict=True)]
    optimizer = torch.optim.SGD(groups, lr=1.0, momentum=0.9)
    scheduler = make(optimizer, **options)
    seen = []
    for _ in range(steps):
        seen.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    return torch.tensor(seen, dtype=torch.float64)


RATES = (1.0, 0.1)


def test_one_cycle_is_torchs_with_a_highest_rate_for_each_group():
    ours = course(schedules.one_cycle, 40, RATES, total_steps=41, warm_up=0.25, div_factor=5.0)
    torchs = course(
        lr_scheduler.OneCycleLR,
        40,
        RATES,
        max_lr=[1.0, 0.1],
        total_steps=41,
        pct_start=0.25,
        div_factor=5.0,
        final_div_factor=1000.0,
    )
    torch.testing.assert_close(ours, torchs)
    assert ours.amax(0).tolist() == pytest.approx([1.0, 0.1], rel=0.01)


def test_one_cycle_turns_the_momentum_the_other_way():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.AdamW([weight], lr=1.0)
    scheduler = schedules.one_cycle(optimizer, total_steps=20, warm_up=0.5, momentum=[0.8, 0.95])
    first = []
    for _ in range(19):
        first.append(optimizer.param_groups[0]["betas"][0])
        optimizer.step()
        scheduler.step()
    assert (first[0], min(first)) == (0.95, pytest.approx(0.8))
    assert first.index(min(first)) == 9


def test_cosine_is_torchs_without_a_warm_up():
    ours = course(schedules.cosine, 30, RATES, total_steps=30, final=0.0)
    torchs = course(lr_scheduler.CosineAnnealingLR, 30, RATES, T_max=30)
    torch.testing.assert_close(ours, torchs)


def test_steps_fall_where_torchs_do():
    ours = course(schedules.multi_step, 30, RATES, total_steps=30, milestones=[0.5, 0.8])
    torchs = course(lr_scheduler.MultiStepLR, 30, RATES, milestones=[15, 24])
    torch.testing.assert_close(ours, torchs)


def test_poly_is_torchs():
    ours = course(schedules.poly, 30, RATES, total_steps=30, power=0.9)
    torchs = course(lr_scheduler.PolynomialLR, 30, RATES, total_iters=30, power=0.9)
    torch.testing.assert_close(ours, torchs)


def test_exponential_is_torchs_of_a_factor_a_step():
    ours = course(schedules.exponential, 30, RATES, total_steps=30, final=0.9**30)
    torchs = course(lr_scheduler.ExponentialLR, 30, RATES, gamma=0.9)
    torch.testing.assert_close(ours, torchs)


@pytest.mark.parametrize("name", ["cosine", "multi_step", "poly", "exponential", "constant"])
def test_a_warm_up_rises_straight_from_almost_nothing(name):
    make = getattr(schedules, name)
    plain = {"cosine": 1.0}  # it begins to fall after the warm-up
    rates = course(make, 100, total_steps=100, warm_up=0.2)[:, 0]
    without = course(make, 100, total_steps=100)[:, 0]
    rise = 1e-6 + (1 - 1e-6) * torch.arange(20) / 20
    torch.testing.assert_close(rates[:20], rise.double() * plain.get(name, without[:20]))
    if name == "cosine":
        rest = torch.arange(80) / 80
        torch.testing.assert_close(rates[20:], ((1 + (math.pi * rest).cos()) / 2).double())
    else:
        torch.testing.assert_close(rates[20:], without[20:])


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_survives_a_stop_and_few_steps(name):
    config = compose("train", [f"optim/scheduler={name}", "name=x"])
    make = instantiate(config.optim.scheduler)
    whole = course(make, 12, RATES, total_steps=13)

    weights = [torch.nn.Parameter(torch.ones(2, 2)) for _ in RATES]

    def start():
        groups = [{"params": [w], "lr": r} for w, r in zip(weights, RATES, strict=True)]
        optimizer = torch.optim.SGD(groups, lr=1.0, momentum=0.9)
        return optimizer, make(optimizer, total_steps=13)

    optimizer, scheduler = start()
    for _ in range(5):
        optimizer.step()
        scheduler.step()
    states = optimizer.state_dict(), scheduler.state_dict()
    assert states[1]["total_steps"] == 13
    optimizer, scheduler = start()
    optimizer.load_state_dict(states[0])
    scheduler.load_state_dict(states[1])
    for step in range(5, 12):
        found = [group["lr"] for group in optimizer.param_groups]
        assert found == pytest.approx(whole[step].tolist())
        optimizer.step()
        scheduler.step()
    for steps in (1, 2, 3, 10, 20):  # a twentieth of 20, a tenth of 10: rises of one step
        for options in ({}, {"warm_up": 0.05}, {"warm_up": 0.1}, {"warm_up": 0.99}):
            assert course(make, steps, total_steps=steps, **options).isfinite().all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (partial(schedules.cosine, warm_up=1.0), r"warm_up must be in \[0, 1\), found 1.0"),
        (
            partial(schedules.multi_step, milestones=[30]),
            r"milestones must be in \[0, 1\), found 30",
        ),
        (partial(schedules.exponential, final=0.0), "final must be above 0"),
    ],
)
def test_shares_out_of_range_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        course(make, 1, total_steps=10)


@pytest.mark.parametrize(
    "choice",
    [f"optim={name}" for name in OPTIMIZERS] + [f"optim/scheduler={name}" for name in SCHEDULES],
)
def test_every_optimiser_and_every_schedule_takes_steps(choice):
    config = compose("train", [choice, "name=x"])
    torch.manual_seed(0)
    model = create_model("point_vit_tiny", 4, 3)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    made = instantiate(config.optim.optimizer)(
        parameter_groups(model, **_group_options(config.optim))
    )
    scheduler = instantiate(config.optim.scheduler)(made, total_steps=10)
    for _ in range(3):  # the first is almost nothing in a warm-up
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        made.step()
        scheduler.step()
    for name, p in model.named_parameters():
        assert p.isfinite().all() and not torch.equal(p, before[name]), name


@pytest.mark.parametrize("shape", [(12, 12), (5, 40), (40, 5)])
def test_a_step_of_muon_is_almost_orthogonal(shape):
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonal(torch.randn(shape)))
    assert values.min() > 0.6 and values.max() < 1.3
    assert not orthogonal(torch.zeros(shape)).any()


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has no Muon before 2.9")
def test_muon_moves_matrices_as_torchs_does():
    torch.manual_seed(0)
    start = torch.randn(24, 40)
    ours, torchs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    one = Muon([ours], lr=0.02, weight_decay=0.1)
    other = torch.optim.Muon(
        [torchs], lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw", momentum=0.95
    )
    for _ in range(3):
        grad = torch.randn_like(start)
        ours.grad, torchs.grad = grad.clone(), grad.clone()
        one.step()
        other.step()
    moved = (torchs - start).norm()
    # Torch's iteration rounds to bfloat16.
    assert (ours - torchs).norm() < 0.02 * moved


def test_muon_moves_kernels_as_matrices_and_vectors_as_adamw_does():
    torch.manual_seed(0)
    kernel, flat = torch.randn(6, 3, 3, 3, 4), torch.nn.Parameter(torch.empty(0))
    flat = torch.nn.Parameter(kernel.reshape(6, -1).clone())
    kernel = torch.nn.Parameter(kernel)
    one, other, head, plain = (
        torch.nn.Parameter(t)
        for t in (torch.ones(7), torch.ones(7), torch.ones(3, 3), torch.ones(3, 3))
    )
    muon = Muon(
        [{"params": [kernel, flat, one]}, {"params": [head], "hidden": False}],
        lr=0.01,
        weight_decay=0.1,
    )
    adamw = torch.optim.AdamW([other, plain], lr=0.01, weight_decay=0.1, betas=(0.9, 0.98))
    for _ in range(4):
        kernel.grad = torch.randn_like(kernel)
        flat.grad = kernel.grad.reshape(6, -1)
        one.grad, head.grad = torch.randn(7), torch.randn(3, 3)
        other.grad, plain.grad = one.grad.clone(), head.grad.clone()
        muon.step()
        adamw.step()
    torch.testing.assert_close(kernel.reshape(6, -1), flat)
    torch.testing.assert_close(one, other)
    torch.testing.assert_close(head, plain)


def test_a_stopped_muon_goes_on_the_same():
    torch.manual_seed(0)
    grads = [(torch.randn(4, 6), torch.randn(5)) for _ in range(6)]

    def run(weights, optimizer, grads):
        for pair in grads:
            for weight, grad in zip(weights, pair, strict=True):
                weight.grad = grad.clone()
            optimizer.step()

    def start():
        weights = [torch.nn.Parameter(torch.ones(4, 6)), torch.nn.Parameter(torch.ones(5))]
        return weights, Muon(weights, lr=0.01)

    whole, optimizer = start()
    run(whole, optimizer, grads)
    weights, optimizer = start()
    run(weights, optimizer, grads[:3])
    again = Muon(weights, lr=0.01)
    again.load_state_dict(optimizer.state_dict())
    run(weights, again, grads[3:])
    assert all(torch.equal(a, b) for a, b in zip(whole, weights, strict=True))


def test_a_line_says_for_each_rate_which_weights_have_it():
    model = model_of()
    options = {"weight_decay": 0.1, "lr": 1.0, "lr_factors": {"blocks": 0.1}}
    lines = describe_groups(parameter_groups(model, **options), model)
    count = {(".blocks." in name, p.ndim > 1): 0 for name, p in model.named_parameters()}
    for name, p in model.named_parameters():
        count[".blocks." in name, p.ndim > 1] += p.numel()
    groups = [("1, decay 0.1", False, True), ("1, decay 0", False, False)]
    groups += [("0.1, decay 0.1", True, True), ("0.1, decay 0", True, False)]
    for line, (rate, *key) in zip(lines, groups, strict=True):
        assert line.startswith(f"lr {rate}: {count[tuple(key)]:,} weights, from backbone.")
    assert lines[1].endswith(" to head.bias")
