"""Published weights in and out."""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from pctx.checkpoint import load_checkpoint
from pctx.convert import (
    MisfitError,
    export_published,
    import_published,
    published_features,
    published_input,
    read_published,
    write_published,
)
from pctx.data.labels import LabelSet
from pctx.geometry.points import PointBatch
from pctx.models.factory import create_model
from pctx.models.families import FAMILIES, family_of
from pctx.models.octformer import OctFormer
from pctx.models.point_transformer_v1 import PointTransformerV1
from pctx.models.point_transformer_v2 import PointTransformerV2
from pctx.models.point_transformer_v3 import PointTransformerV3

# What the small models of the files have in place of the named one's settings.
PTV1 = {"channels": [16, 16, 24, 24, 32]}
PTV2 = {
    "channels": [12, 16, 24, 32],
    "depths": [1, 1, 2, 1],
    "groups": [3, 4, 6, 8],
    "num_neighbors": [8, 16, 16, 16],
    "cell_sizes": [3.0, 7.5, 18.75],
    "decoder_channels": [12, 16, 24],
    "decoder_depths": [1, 1, 1],
    "decoder_groups": [3, 4, 6],
}
PTV3 = {
    "channels": [16, 16, 32, 32, 48],
    "depths": [4, 1, 1, 2, 1],
    "num_heads": [1, 2, 2, 4, 4],
    "decoder_channels": [16, 16, 24, 32],
    "decoder_depths": [3, 1, 1, 1],
    "decoder_num_heads": [1, 2, 2, 4],
    "window_size": 32,
}
FILES = {
    "ptv1": ("ptv1_seg26", PTV1, 13, 0.04),
    "ptv2": ("ptv2_m2", PTV2, 13, 0.04),
    "ptv3": ("ptv3_base", PTV3, 16, 0.05),
}
# The reference's own float32 is at most 1.6e-5 from its float64; a wrong rule moves logits by 9e-3.
NEAR = {torch.float32: 1e-4, torch.float64: 1e-9}


def classes(count):
    return LabelSet(
        names=tuple(f"class {i}" for i in range(count)),
        colors=((0, 0, 0),) * count,
        raw=tuple((i,) for i in range(count)),
    )


def imported(golden, name, **changes):
    model, overrides, num_classes, grid_size = FILES[name]
    options = {"model": model, "overrides": overrides, "labels": classes(num_classes)}
    weights = read_published(golden / "pointcept_ckpt" / f"{name}_semseg.pth")
    return import_published(weights, **{**options, "grid_size": grid_size, **changes})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("name", FILES)
def test_an_imported_model_has_the_published_logits(golden, tmp_path, name, dtype):
    imported(golden, name).save(tmp_path / "model.pt")
    model = load_checkpoint(tmp_path / "model.pt").build().to(dtype)
    sample = np.load(golden / "pointcept_ckpt" / f"{name}_semseg_sample.npz")
    coord = torch.from_numpy(sample["input/coord"])
    grid_coord = sample.get("input/grid_coord", np.zeros(coord.shape, np.int64))
    batch = PointBatch(
        coord=coord.to(dtype),
        grid_coord=torch.from_numpy(grid_coord).long(),
        feat=torch.from_numpy(sample["input/feat"]).to(dtype),
        offsets=torch.tensor([0, *sample["input/offset"].tolist()]),
    )
    with torch.inference_mode():
        logits = model(batch).numpy()
    reference = sample["out/logits" if dtype == torch.float32 else "f64/out/logits"]
    assert np.abs(logits - reference).max() <= NEAR[dtype]


@pytest.mark.parametrize("name", FILES)
def test_out_and_in_again_every_bit_is_the_same(golden, tmp_path, name):
    path = golden / "pointcept_ckpt" / f"{name}_semseg.pth"
    imported(golden, name).save(tmp_path / "model.pt")
    write_published(tmp_path / "back.pth", load_checkpoint(tmp_path / "model.pt"))
    there, back = (
        torch.load(file, weights_only=True)["state_dict"] for file in (path, tmp_path / "back.pth")
    )
    assert set(there) == set(back)
    for key, value in there.items():
        assert value.dtype == back[key].dtype
        assert value.numpy().tobytes() == back[key].numpy().tobytes(), key


def test_octree_convolutions_go_out_by_their_published_axes_and_come_back():
    model = create_model("octformer_tiny", 6, 3)
    family = family_of(OctFormer)
    own = model.state_dict()
    published = {family.name(key): family.to_axes(key, value) for key, value in own.items()}
    features = published_features("color", "normal")
    checkpoint = import_published(
        published, model="octformer_tiny", labels=classes(3), features=features, grid_size=0.02
    )
    assert checkpoint.arguments["published"] is True
    assert all(torch.equal(checkpoint.weights[key], value) for key, value in own.items())
    back = export_published(checkpoint)
    assert all(torch.equal(back[f"module.{key}"], value) for key, value in published.items())


def test_the_model_does_as_released_and_describes_itself(golden):
    ptv2 = imported(golden, "ptv2")
    assert ptv2.arguments["published"] is True
    assert ptv2.arguments["grid_size"] == ptv2.grid_size == 0.04
    assert ptv2.arguments["qkv_bias"] is True  # a default, written down all the same
    assert ptv2.features.fields == ("coord", "color")
    ptv3 = imported(golden, "ptv3", grid_size=None)
    assert ptv3.features.fields == ("sensor_coord", "intensity")
    assert ptv3.grid_size == 0.05
    plain = imported(golden, "ptv3", overrides={**PTV3, "published": False})
    assert plain.arguments["published"] is False


def test_what_a_model_reads_is_told_by_its_channels():
    def reads(backbone, channels):
        features, grid_size = published_input(backbone, channels)
        assert features.width == channels
        return features.fields, grid_size

    lidar = (("sensor_coord", "intensity"), 0.05)
    assert reads(PointTransformerV3, 4) == reads(PointTransformerV2, 4) == lidar
    assert reads(PointTransformerV3, 6) == (("color", "normal"), 0.02)
    assert reads(PointTransformerV1, 6) == (("coord", "color"), 0.04)
    assert reads(PointTransformerV2, 9) == (("coord", "color", "normal"), 0.02)
    with pytest.raises(ValueError, match="read 10 channels, and nothing says which"):
        published_input(OctFormer, 10)


def test_a_file_that_does_not_fit_gives_a_short_report(golden):
    with pytest.raises(
        MisfitError, match="do not fit ptv3_base with 4 channels and 19 classes"
    ) as e:
        imported(golden, "ptv3", labels=classes(19))
    assert e.value.difference.lines() == [
        "of another shape: seg_head.weight (16, 16) for (19, 16)",
        "of another shape: seg_head.bias (16,) for (19,)",
    ]
    with pytest.raises(MisfitError) as e:
        imported(golden, "ptv1", model="ptv3_tiny", overrides={})
    lines = e.value.difference.lines()
    assert len(lines) <= 12
    assert any(line.startswith("missing: backbone.embedding.stem.conv.weight") for line in lines)
    assert any(line.startswith("unexpected: backbone.enc1.0.linear.weight") for line in lines)


def test_one_renamed_weight_is_found(golden):
    weights = read_published(golden / "pointcept_ckpt" / "ptv3_semseg.pth")
    weights["backbone.lost"] = weights.pop("backbone.enc.enc0.block0.norm1.0.weight")
    with pytest.raises(MisfitError) as e:
        import_published(weights, model="ptv3", overrides=PTV3, labels=classes(16))
    assert e.value.difference.lines() == [
        "missing: backbone.enc.enc0.block0.norm1.0.weight (16,)",
        "unexpected: backbone.lost (16,)",
    ]


def test_models_that_nobody_published_are_refused():
    with pytest.raises(ValueError, match="no published weights of Swin3D are known; of LitePT"):
        import_published({}, model="swin3d_tiny", labels=classes(3))
    with pytest.raises(ValueError, match="no model is called 'ptv9'"):
        import_published({}, model="ptv9", labels=classes(3))
    assert set(FAMILIES) >= {PointTransformerV1, PointTransformerV2, PointTransformerV3}


WEIGHTS = {"module.a": torch.ones(2), "module.b": torch.zeros(())}


@pytest.mark.parametrize("home", ["numpy.core", "numpy._core"])
def test_numbers_of_numpy_beside_the_weights_are_read(tmp_path, home, monkeypatch):
    content = {
        "state_dict": WEIGHTS,
        "best_metric_value": np.float64(0.7),
        "epoch": np.int64(3),
        "flags": [np.float32(1), np.bool_(True)],
    }
    torch.save(content, tmp_path / "a.pth")
    here = np.float64(0).__reduce__()[0].__module__.removesuffix(".multiarray")
    rewrite(tmp_path / "a.pth", here, home)
    found = read_published(tmp_path / "a.pth")
    assert list(found) == ["a", "b"] and torch.equal(found["a"], torch.ones(2))


def rewrite(path, old, new):
    """Give a file the module name of another version of NumPy."""
    import zipfile

    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            if name.endswith("data.pkl"):
                assert f"c{old}.multiarray\nscalar\n".encode() in data
                data = data.replace(f"c{old}.".encode(), f"c{new}.".encode())
            archive.writestr(name, data)


class Evil:
    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


@pytest.mark.parametrize("beside", [True, False], ids=["beside", "bare"])
@pytest.mark.parametrize("call", ["touch", "system", "eval", "numpy"])
def test_code_in_a_file_is_refused_and_not_run(tmp_path, call, beside):
    trace = tmp_path / "was here"
    evil = {
        "touch": Evil(Path.touch, trace),
        "system": Evil(os.system, f"touch '{trace}'"),
        "eval": Evil(eval, f"open({str(trace)!r}, 'w')"),
        "numpy": Evil(np.savetxt, str(trace), [1.0]),
    }[call]
    content = {"state_dict": WEIGHTS, "hook": evil} if beside else evil
    torch.save(content, tmp_path / "a.pth")
    with pytest.raises(ValueError, match=r"a.pth: not read, as it holds .*could run code"):
        read_published(tmp_path / "a.pth")
    assert not trace.exists()


def test_arrays_and_objects_of_numpy_are_refused(tmp_path):
    for value in (np.ones(3), np.array([None]), np.datetime64("2026-01-01")):
        torch.save({"state_dict": WEIGHTS, "extra": value}, tmp_path / "a.pth")
        with pytest.raises(ValueError, match="not read, as it"):
            read_published(tmp_path / "a.pth")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a file of weights"),
        (b"hello", "not read|not a file of weights"),
        (pickle.dumps({"state_dict": {}}, protocol=2), "not read|not a file of weights"),
        ({"state_dict": {}}, "no weights in it"),
        ([1, 2], "no weights in it"),
        ({"epoch": 3, "lr": 0.1}, "'epoch' in it is no tensor"),
    ],
)
def test_a_file_without_weights_is_refused_in_one_sentence(tmp_path, content, words):
    path = tmp_path / "a.pth"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(ValueError, match=words):
        read_published(path)


def test_a_bare_state_dict_is_read_and_a_missing_file_named(tmp_path):
    torch.save(WEIGHTS, tmp_path / "a.pth")
    assert list(read_published(tmp_path / "a.pth")) == ["a", "b"]
    with pytest.raises(FileNotFoundError, match="b.pth: no such file of weights"):
        read_published(tmp_path / "b.pth")


def test_settings_of_the_samples_are_those_used_here(golden):
    def settings(name):
        sample = np.load(golden / "pointcept_ckpt" / f"{name}_semseg_sample.npz")
        return json.loads(str(sample["meta/json"]))["backbone"]

    assert settings("ptv1")["planes"] == PTV1["channels"]
    assert settings("ptv2")["enc_groups"] == PTV2["groups"][1:]
    assert settings("ptv2")["grid_sizes"] == pytest.approx([0.04 * c for c in PTV2["cell_sizes"]])
    assert settings("ptv3")["enc_patch_size"] == [PTV3["window_size"]] * 5
