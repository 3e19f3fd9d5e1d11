import pickle
from pathlib import Path

import pytest
import torch

from pctx.checkpoint import build_model, fine_tune, load_checkpoint
from pctx.data.features import FeatureSpec
from pctx.data.labels import LabelSet
from tests.toy import ARGUMENTS, BACKBONE, LABELS, toy_checkpoint, toy_cloud


@pytest.fixture
def file(tmp_path):
    toy_checkpoint().save(tmp_path / "model.pt")
    return tmp_path / "model.pt"


def test_a_model_file_gives_back_all_it_was_given(file):
    written, read = toy_checkpoint(), load_checkpoint(file)
    assert read.labels == written.labels
    assert read.features == written.features
    assert read.grid_size == written.grid_size
    assert read.arguments == written.arguments
    for name, value in written.weights.items():
        torch.testing.assert_close(read.weights[name], value, rtol=0, atol=0)


def test_a_rebuilt_model_gives_the_same_logits(file):
    from pctx.data.prepare import voxelize

    one, other = toy_checkpoint(), load_checkpoint(file)
    points = voxelize(toy_cloud(), 0.5, one.features)
    with torch.inference_mode():
        assert torch.equal(one.build()(points), other.build()(points))


def test_a_renamed_key_fails_with_a_short_difference_and_the_version(file):
    checkpoint = load_checkpoint(file)
    weights = dict(checkpoint.weights)
    weights["strange"] = weights.pop("head.bias")
    broken = type(checkpoint)(**{**vars(checkpoint), "weights": weights})
    with pytest.raises(ValueError, match=r"of pctx .*1 missing \(head.bias.*1 unexpected"):
        broken.build()


@pytest.mark.parametrize(
    "content", [b"", b"not a model", pickle.dumps({"format": "pctx-model-1"}), b"PK\x03\x04half"]
)
def test_a_file_of_another_kind_is_refused_in_one_sentence(tmp_path, content):
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not a pctx model file"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"state_dict": {}}, "`pctx convert` makes one of published weights"),
        ({"pytorch-lightning_version": "2"}, "the state of a run, which `resume=` goes on from"),
        ({"format": "pctx-model-0"}, "its format is 'pctx-model-0', this version reads"),
    ],
)
def test_other_files_of_torch_are_told_apart(tmp_path, content, words):
    torch.save(content, tmp_path / "other.pt")
    with pytest.raises(ValueError, match=words):
        load_checkpoint(tmp_path / "other.pt")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.pt: no such model file"):
        load_checkpoint(tmp_path / "nowhere.pt")
    with pytest.raises(FileNotFoundError, match="no such model file; give .*model.pt"):
        load_checkpoint(tmp_path)


class _Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_code_in_a_model_file_is_not_run(tmp_path):
    path = tmp_path / "model.pt"
    trace = tmp_path / "was here"
    torch.save({"format": "pctx-model-1", "weights": _Evil(trace)}, path)
    with pytest.raises(ValueError, match="not a pctx model file"):
        load_checkpoint(path)
    assert not trace.exists()


def test_a_backbone_is_never_imported_from_elsewhere(file):
    checkpoint = load_checkpoint(file)
    for path in ("os.system", "antigravity.fly", "pctx.models.segmentor.Segmentor"):
        broken = type(checkpoint)(**{**vars(checkpoint), "backbone": path})
        with pytest.raises(ValueError, match=r"import antigravity first|not a backbone"):
            broken.build()


OTHER_LABELS = LabelSet(names=("a", "b"), colors=((0, 0, 0),) * 2, raw=((1,), (2,)))


def fresh(features=None, labels=LABELS, backbone=BACKBONE, **arguments):
    torch.manual_seed(1)
    features = features or toy_checkpoint().features
    return build_model(backbone, {**ARGUMENTS, **arguments}, features, labels)


def test_fine_tuning_to_other_classes_makes_the_head_new_and_nothing_else():
    old, model = toy_checkpoint(), fresh(labels=OTHER_LABELS)
    head = model.state_dict()["head.weight"].clone()
    difference = fine_tune(model, old)
    assert difference.lines() == [
        "of another shape: head.weight (3, 8) for (2, 8)",
        "of another shape: head.bias (3,) for (2,)",
    ]
    own = model.state_dict()
    assert torch.equal(own["head.weight"], head)
    assert all(torch.equal(own[name], old.weights[name]) for name in own if name[:4] != "head")


def test_fine_tuning_to_other_channels_makes_the_stem_new():
    model = fresh(FeatureSpec(fields=("height", "intensity")))
    difference = fine_tune(model, toy_checkpoint())
    assert list(difference.reshaped) == ["backbone.stem.conv.weight"]
    assert difference.num_new == 1


def test_fine_tuning_with_nothing_new_is_the_model_of_the_file():
    old, model = toy_checkpoint(), fresh()
    assert not fine_tune(model, old)
    assert all(torch.equal(value, old.weights[name]) for name, value in model.state_dict().items())


def test_fine_tuning_refuses_another_architecture_and_touches_nothing():
    old = toy_checkpoint()
    narrow = {"channels": [8, 12], "num_heads": [1, 2], "strides": [2], "depths": [1, 1]}
    litept = build_model(
        "pctx.models.litept.LitePT",
        {
            **narrow,
            "kinds": ["convolution", "attention"],
            "decoder_channels": [8],
            "decoder_depths": [0],
            "decoder_kinds": ["convolution"],
            "decoder_num_heads": [1],
            "window_size": 32,
        },
        old.features,
        LABELS,
    )
    before = {name: value.clone() for name, value in litept.state_dict().items()}
    with pytest.raises(ValueError, match="are of PointTransformerV3, the model is LitePT"):
        fine_tune(litept, old)
    assert all(torch.equal(before[name], value) for name, value in litept.state_dict().items())
    wide = fresh(channels=[16, 32], decoder_channels=[16])
    with pytest.raises(ValueError, match="only 4 of the backbone's 81 weights fit: 78 of"):
        fine_tune(wide, old)
