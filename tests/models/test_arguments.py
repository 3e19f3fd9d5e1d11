"""Numbers that make no sense are refused, by every model alike."""

import inspect
import math
from collections.abc import Sequence

import pytest
import torch

from pctx.models.arguments import BOUNDS, count_levels, per_level, require_entries, require_numbers
from pctx.models.factory import MODELS, create_backbone, list_models

FIRST_CHANNELS = ("color", "normal")
"""Of Swin3D: numbers of channels, which have a check of their own."""

ONE_FOR_ALL = ("num_neighbors", "decoder_num_neighbors", "window_edges")
"""Lists in some model, for which one number stands as well."""

BAD = [-3, 0, 0.5, 1.5, 2, math.nan, math.inf, "2", True]


def settings(name):
    """What a model is made with, by argument."""
    row = MODELS[name]
    parameters = inspect.signature(row.backbone).parameters
    given = {key: p.default for key, p in parameters.items()} | dict(row.arguments)
    return given | {"in_channels": 4}


def are_numbers(value):
    values = value if isinstance(value, Sequence) else (value,)
    return bool(values) and all(type(each) in (int, float) for each in values)


def make(name, in_channels=4, **overrides):
    with torch.device("meta"):
        return create_backbone(name, in_channels, **overrides)


def bad_for(key):
    """Values that an argument does not take."""
    _, whole, holds = BOUNDS[key]
    kinds = (int,) if whole else (int, float)
    return [bad for bad in BAD if type(bad) not in kinds or not holds(bad)]


@pytest.mark.parametrize("name", list_models())
def test_every_number_has_bounds(name):
    numbers = {key for key, value in settings(name).items() if are_numbers(value)}
    assert numbers <= {*BOUNDS, *FIRST_CHANNELS}
    assert len(numbers) >= 5


@pytest.mark.parametrize("name", list_models())
def test_a_number_that_makes_no_sense_is_refused_by_the_name_of_its_argument(name):
    for key, value in settings(name).items():
        if key not in BOUNDS or not are_numbers(value):
            continue
        for bad in bad_for(key):
            wrong = [*value[:-1], bad] if isinstance(value, Sequence) else bad
            with pytest.raises(ValueError, match=rf"^{key} must be .*, found"):
                make(name, **{key: wrong})


@pytest.mark.parametrize("name", list_models())
def test_lists_have_an_entry_a_level(name):
    for key, value in settings(name).items():
        if not isinstance(value, Sequence) or not are_numbers(value):
            continue
        # Too many channels are too few of all others.
        wrong = [[], "33"] if key == "channels" else [[], "33", [*value, value[-1]]]
        for bad in wrong if key in ONE_FOR_ALL else [*wrong, 3]:
            with pytest.raises(ValueError, match=rf"^{key} must (have|be)"):
                make(name, **{key: bad})


@pytest.mark.parametrize("name", list_models())
def test_heads_and_groups_divide_channels(name):
    for key in ("num_heads", "groups"):
        value = settings(name).get(key)
        if value is None:
            continue
        wrong = [*value[:-1], 11] if isinstance(value, Sequence) else 11
        with pytest.raises(ValueError, match=r"must be a multiple of \w+ 11"):
            make(name, **{key: wrong})


@pytest.mark.parametrize("name", list_models())
def test_one_level_alone_is_a_model(name):
    if "channels" not in settings(name) or isinstance(settings(name)["channels"], int):
        return
    one = {
        key: () if key.startswith("decoder_") or key in ("strides", "cell_sizes") else value[-1:]
        for key, value in settings(name).items()
        if isinstance(value, Sequence) and not isinstance(value, str) and key != "curves"
    }
    if name.startswith("ptv1"):
        one["decoder_depths"] = (1,)  # its bottom's
    if name.startswith("custom"):
        del one["position"]
    backbone = make(name, **one)
    assert backbone.out_level == 0


def test_an_mlp_without_hidden_channels_is_refused():
    with pytest.raises(ValueError, match="an MLP needs a hidden channel, found 0"):
        make("ptv3_tiny", mlp_ratio=0.001)


def test_a_stem_of_an_octree_cannot_begin_below_one_channel():
    with pytest.raises(ValueError, match=r"at least 2\*\*stem_levels = 8"):
        make("octformer_tiny", channels=(6, 64, 96, 128), stem_levels=3)


def test_the_checks_say_what_is_wrong():
    require_numbers(drop_path=0, norm_momentum=1, mlp_ratio=2.5, depths=0)
    with pytest.raises(ValueError, match=r"^drop_path must be in \[0, 1\), found 1$"):
        require_numbers(drop_path=1)
    with pytest.raises(ValueError, match="^strides must be whole and at least 2, found 1$"):
        require_entries(2, strides=[2, 1])
    with pytest.raises(ValueError, match=r"^names must have 2 entries to fit channels, found \[\]"):
        require_entries(2, names=[])
    assert count_levels([8, 16]) == 2
    assert per_level(3, 2) == (3, 3) and per_level([3, 4], 2) == (3, 4)
