import pickle
from pathlib import Path

import pytest
import torch

from pctx.checkpoint import fine_tune, load_checkpoint
from tests.toy import toy_checkpoint, toy_cloud


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


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.pt: no such model file"):
        load_checkpoint(tmp_path / "nowhere.pt")


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


def test_fine_tuning_keeps_the_backbone_and_lists_what_is_new():
    from pctx.checkpoint import build_model
    from pctx.data.labels import LabelSet
    from tests.toy import ARGUMENTS, BACKBONE

    old = toy_checkpoint()
    other = LabelSet(names=("a", "b"), colors=((0, 0, 0),) * 2, raw=((1,), (2,)))
    model = build_model(BACKBONE, ARGUMENTS, old.features, other)
    assert fine_tune(model, old.weights) == ["head.weight", "head.bias"]
    stem = "backbone.stem.conv.weight"
    torch.testing.assert_close(model.state_dict()[stem], old.weights[stem])
