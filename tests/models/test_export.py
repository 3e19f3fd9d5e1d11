"""One exported graph serves every size, for every model."""

import pytest
import torch

from pctx.data.features import FeatureSpec
from pctx.inference.export import export_network, write_onnx
from pctx.inference.exported import LOGITS, ExportFacts, network_inputs
from pctx.models.factory import create_model, list_models
from tests.models.clouds import random_batch
from tests.toy import LABELS

TINY = [name for name in list_models() if name.endswith("_tiny")]

SIZES = ([500, 301, 0, 44], [2000], [12, 9], [1])
"""Several clouds, a large one, two below any window, and a single point."""

PAIR = {"channels": (12, 24), "depths": (1, 1), "num_heads": (1, 2), "strides": (2,)}
UP = {"decoder_channels": (12,), "decoder_depths": (1,), "decoder_num_heads": (1,)}
SMALL = {
    "custom_tiny": {**PAIR, **UP, "window_size": 16, "position": ["rotary", "sinusoidal"]},
    "litept_tiny": {
        **{**PAIR, **UP, "window_size": 16},
        **{"kinds": ("convolution", "attention"), "decoder_kinds": ("both",)},
    },
    "octformer_tiny": {
        **{"channels": (12, 24), "depths": (2, 1), "num_heads": (1, 2)},
        **{"stem_levels": 1, "pyramid_channels": 12},
    },
    "point_vit_tiny": {"channels": 24, "depth": 1, "num_heads": 2, "point_channels": 12},
    "ptv1_tiny": {
        **{"channels": (16, 24), "depths": (1, 1), "decoder_depths": (1, 0)},
        **{"num_neighbors": 8, "strides": (4,)},
    },
    "ptv2_tiny": {
        **{"channels": (12, 24), "depths": (1, 1), "groups": (2, 4), "cell_sizes": (2.5,)},
        **{"decoder_channels": (12,), "decoder_depths": (1,), "decoder_groups": (2,)},
        **{"encoding": "grouped", "position_multiplier": True},
    },
    "ptv3_tiny": {**PAIR, **UP, "window_size": 16, "relative_position_bias": True},
    "swin3d_tiny": {
        **{"channels": (12, 24), "depths": (1, 1), "num_heads": (1, 2), "strides": (3,)},
        **{"decoder_depths": (0,), "color": 0},
    },
}
"""Two levels of each family, which show every operator of it."""

LARGE = ("custom_tiny", "octformer_tiny", "swin3d_tiny")
FAMILIES = [
    pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in sorted(SMALL)
]
"""Those with the larger graphs wait for the slow run."""

# Float32 in another order, through a dozen layers; logits are about 1.
CLOSE = {"rtol": 0, "atol": 1e-5}


def make(name, **overrides):
    torch.manual_seed(0)
    return create_model(name, 4, 3, **overrides).eval()


def cases(model, names):
    """Inputs of a graph, and the logits of the model, at each size."""
    for counts in SIZES:
        batch = random_batch(counts)
        with torch.no_grad():
            yield network_inputs(model.backbone, batch, names), model(batch)


def test_every_family_is_here():
    assert set(SMALL) == set(TINY)


@pytest.mark.parametrize("name", FAMILIES)
def test_two_levels_of_a_family_are_one_graph_for_all_sizes(name):
    model = make(name, **SMALL[name])
    program, names = export_network(model)
    network = program.module()
    for inputs, expected in cases(model, names):
        torch.testing.assert_close(network(inputs), expected, **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_a_tiny_model_is_one_graph_for_all_sizes_in_both_forms(name, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="pip install 'pctx[export]'")
    model = make(name)
    program, names = export_network(model)
    facts = ExportFacts(
        inputs=names,
        backbone=f"{type(model.backbone).__module__}.{type(model.backbone).__qualname__}",
        arguments={},
        features=FeatureSpec(fields=("coord", "intensity")),
        labels=LABELS,
        grid_size=0.1,
    )
    write_onnx(tmp_path / "net.onnx", program, facts)
    session = onnxruntime.InferenceSession(
        tmp_path / "net.onnx", providers=["CPUExecutionProvider"]
    )
    assert {each.name for each in session.get_inputs()} == set(names)
    network = program.module()
    for inputs, expected in cases(model, names):
        torch.testing.assert_close(network(inputs), expected, **CLOSE)
        arrays = {key: tensor.numpy() for key, tensor in inputs.items()}
        (logits,) = session.run([LOGITS], arrays)
        torch.testing.assert_close(torch.from_numpy(logits), expected, **CLOSE)
