import inspect

import pytest

from pctx.models.factory import MODELS, create_model, list_models
from pctx.models.point_transformer_v3 import PointTransformerV3
from pctx.models.segmentor import Segmentor


def test_the_models_are_listed_in_order():
    assert list_models() == sorted(list_models())
    assert {"ptv3", "ptv3_base", "ptv3_rpe", "ptv3_tiny"} <= set(list_models())


@pytest.mark.parametrize("name", list_models())
def test_a_row_names_arguments_that_its_class_has(name):
    row = MODELS[name]
    assert set(row.arguments) <= set(inspect.signature(row.backbone).parameters)


def test_the_tiny_models_are_tiny():
    for name in list_models():
        if name.endswith("_tiny"):
            model = create_model(name, 4, 19)
            assert sum(p.numel() for p in model.parameters()) < 2_000_000, name


def test_overrides_replace_a_rows_arguments():
    model = create_model("ptv3_tiny", 4, 5, window_size=[16, 16, 8, 8], encoder_only=False)
    assert isinstance(model, Segmentor)
    assert model.backbone.window_sizes == (16, 16, 8, 8)
    assert model.head.out_features == 5


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(
        ValueError, match="no model is called 'ptv3_tyni'; did you mean 'ptv3_tiny'"
    ):
        create_model("ptv3_tyni", 4, 5)
    with pytest.raises(ValueError, match="no model is called 'zzz'; known: .*ptv3_base"):
        create_model("zzz", 4, 5)


def test_an_unknown_argument_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="no argument 'windowsize'; did you mean 'window_size'"):
        create_model("ptv3_tiny", 4, 5, windowsize=16)


def test_a_segmentor_needs_rows_for_all_points_and_a_class():
    with pytest.raises(ValueError, match="the backbone ends at level 3"):
        create_model("ptv3_tiny", 4, 5, encoder_only=True)
    with pytest.raises(ValueError, match="num_classes must be at least 1, found 0"):
        create_model("ptv3_tiny", 4, 0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"depths": [1, 1]}, r"depths must have 5 entries to fit channels, found \[1, 1\]"),
        ({"strides": [2] * 5}, "strides must have 4 entries"),
        ({"window_size": [16]}, "window_size must have 5 entries"),
        ({"decoder_depths": [1]}, "decoder_depths must have 4 entries"),
        ({"curves": ["z", "y"]}, "curves must be some of z, z-trans, hilbert, hilbert-trans"),
        ({"curves": []}, r"curves must be some of .*; found \[\]"),
        ({"num_heads": [3, 4, 8, 16, 32]}, "channels 32 must be a multiple of num_heads 3"),
        ({"drop_path": 1.0}, "drop_path must be in"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        PointTransformerV3(in_channels=4, **wrong)
