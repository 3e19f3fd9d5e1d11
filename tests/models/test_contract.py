"""What every model keeps, whatever it is made of."""

import inspect
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from pctx.geometry.points import pack
from pctx.models.factory import MODELS as ROWS
from pctx.models.factory import create_model, list_models
from tests.models.clouds import VOXEL, random_batch, single_clouds

MODELS = [name for name in list_models() if name.endswith("_tiny")]
WINDOW = 16
SMALL = {
    "window_size": WINDOW,
    "num_neighbors": WINDOW,
    "cell_sizes": (2, 4, 8),
    "drop_path": 0.0,
}

# Sums of float32 in another order, through a dozen layers; logits are about 1.
CLOSE = {"rtol": 0, "atol": 1e-5}


def make(name, seed=0):
    """A model for small clouds: one that sees WINDOW points at a time."""
    torch.manual_seed(seed)
    known = inspect.signature(ROWS[name].backbone).parameters
    return create_model(name, 4, 3, **{key: SMALL[key] for key in SMALL if key in known})


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


@pytest.fixture
def model(name):
    return make(name).eval()


def test_every_point_gets_a_score_a_class(model):
    batch = random_batch([300, 0, 7])
    assert model(batch).shape == (307, 3)
    assert model(batch).isfinite().all()


def test_a_gradient_reaches_every_parameter_and_every_point(name):
    model = make(name).train()
    batch = random_batch([300, 40])
    feat = batch.feat.requires_grad_()
    F.cross_entropy(model(batch), batch.label).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), key
        assert parameter.grad.abs().max() > 0, key
    assert (feat.grad.abs().amax(1) > 0).all()


def test_clouds_do_not_hear_each_other(model):
    batch = random_batch([300, 5, 0, WINDOW, 90])
    alone = torch.cat([model(cloud) for cloud in single_clouds(batch)])
    torch.testing.assert_close(model(batch), alone, **CLOSE)


def test_the_order_of_points_does_not_matter(model):
    batch = random_batch([300])
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    shuffled = replace(
        batch,
        coord=batch.coord[order],
        grid_coord=batch.grid_coord[order],
        feat=batch.feat[order],
        label=None,
    )
    torch.testing.assert_close(model(shuffled), model(batch)[order], **CLOSE)


def test_whole_voxel_translations_do_not_matter(model):
    batch = random_batch([300, 40])
    step = torch.tensor([13, -7, 1000])
    moved = replace(batch, coord=batch.coord + step * VOXEL, grid_coord=batch.grid_coord + step)
    torch.testing.assert_close(model(moved), model(batch), **CLOSE)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("n", [0, 1, 2, WINDOW - 1, WINDOW, WINDOW + 1])
def test_small_clouds_are_ordinary(name, n, training):
    model = make(name).train(training)
    for batch in (random_batch([n]), random_batch([n, 60, n])):
        batch.feat.requires_grad_()
        logits = model(batch)
        assert logits.shape == (len(batch), 3) and logits.isfinite().all()
        logits.sum().backward()
        assert batch.feat.grad.isfinite().all()


def test_a_batch_of_no_clouds_gives_no_rows(model):
    assert model(random_batch([])).shape == (0, 3)


def test_gradients_are_those_of_differences(name):
    model = make(name).double().eval()
    batch = random_batch([40, 3], dtype=torch.float64)
    hierarchy = model.backbone.plan(batch)

    def loss(batch):
        return F.cross_entropy(model(batch, hierarchy), batch.label)

    assert torch.autograd.gradcheck(
        lambda feat: model(replace(batch, feat=feat), hierarchy),
        batch.feat.clone().requires_grad_(),
        fast_mode=True,
    )
    # Along one random direction through all parameters at once.
    parameters = list(model.parameters())
    generator = torch.Generator().manual_seed(0)
    direction = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]
    grads = torch.autograd.grad(loss(batch), parameters)
    slope = sum((g * d).sum() for g, d in zip(grads, direction, strict=True))
    step, ends = 1e-7, []  # a larger one meets kinks of maxima
    with torch.no_grad():
        for sign in (1, -2):
            for parameter, d in zip(parameters, direction, strict=True):
                parameter += sign * step * d
            ends.append(loss(batch))
    torch.testing.assert_close((ends[0] - ends[1]) / (2 * step), slope, rtol=1e-5, atol=1e-7)


def test_weights_go_round(name, model):
    batch = random_batch([200])
    other = make(name, seed=1).eval()
    assert not torch.equal(other(batch), model(batch))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(batch), model(batch))


@pytest.mark.parametrize("training", [False, True])
def test_the_same_twice_is_the_same_bytes(name, training):
    model = make(name).train(training)
    batch = random_batch([400, 90])
    state = {key: value.clone() for key, value in model.state_dict().items()}

    def run():
        model.load_state_dict(state)
        model.zero_grad()
        torch.manual_seed(5)  # for stochastic depth
        logits = model(batch)
        F.cross_entropy(logits, batch.label).backward()
        return [logits, *(p.grad.clone() for p in model.parameters())]

    for first, second in zip(run(), run(), strict=True):
        assert torch.equal(first, second)


def test_logits_do_not_depend_on_the_number_of_threads(name):
    # 19 classes: with three threads torch's own product of that width gives other bytes.
    torch.manual_seed(0)
    model, batch = create_model(name, 4, 19).eval(), random_batch([900, 200])
    before, logits = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            with torch.no_grad():
                logits.append(model(batch))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(logits[0], logits[1]) and torch.equal(logits[0], logits[2])


def test_a_plan_serves_any_features_of_the_same_points(model):
    batch = random_batch([120])
    other = replace(batch, feat=batch.feat * 2 - 1)
    hierarchy = model.backbone.plan(batch)
    assert torch.equal(model(other, hierarchy), model(other))


def test_planning_draws_only_from_its_generator(model):
    batch = random_batch([120])
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    model.backbone.plan(batch)
    model.backbone.plan(batch, torch.Generator().manual_seed(0))
    assert torch.equal(torch.rand(1), expected)


def test_forward_changes_nothing_it_is_given(model):
    batch = random_batch([120])
    feat = batch.feat.clone()
    hierarchy = model.backbone.plan(batch)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    model(batch, hierarchy)
    assert torch.equal(batch.feat, feat)
    for key, value in model.state_dict().items():
        assert torch.equal(value, state[key]), key


def test_autocast_runs_and_stays_near(model):
    batch = random_batch([300, 40])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = model(batch)
    F.cross_entropy(half.float(), batch.label).backward()
    # Eight bits of mantissa through a dozen layers.
    assert (half.float() - model(batch)).abs().mean() < 0.05


def test_packing_batches_is_packing_their_logits(model):
    batches = [random_batch([100], seed=1), random_batch([30, 8], seed=2)]
    torch.testing.assert_close(
        model(pack(batches)), torch.cat([model(b) for b in batches]), **CLOSE
    )


def test_points_of_another_width_are_refused(model):
    with pytest.raises(ValueError, match="the points carry 5 channels, the model reads 4"):
        model(random_batch([10], channels=5))
